"""Jobs in SQLite. What `save` has returned from survives a crash; a job that a crash cut short is marked so."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
import zlib
from pathlib import Path
from typing import IO, Any

from lehd.errors import LehdError

Record = dict[str, Any]

_TABLE = """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    created REAL NOT NULL,
    record BLOB NOT NULL,
    request BLOB NOT NULL
) WITHOUT ROWID
"""
_ORDER = "CREATE INDEX IF NOT EXISTS by_age ON jobs (created)"
_FORGET = """
DELETE FROM jobs WHERE id IN (
    SELECT id FROM jobs WHERE state NOT IN ('queued', 'running') ORDER BY created LIMIT ?
)
"""
COUNTED = 100  # counting takes a while: after so many new jobs


class Store:
    """A record (what clients see) and the request (to go on from) of every job."""

    def __init__(self, path: Path, keep: int):
        self.keep = keep
        self._added = 0
        self._guard = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._alone = _lock(path)
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
            os.chmod(path, 0o600)  # clients' data
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute(_TABLE)
            self._db.execute(_ORDER)
        except (OSError, sqlite3.Error) as error:
            raise LehdError(f"{path}: cannot be used as the jobs' database ({error})") from None
        self.interrupted = self._mark_interrupted()

    def _mark_interrupted(self) -> int:
        """Jobs that were waiting or running when the last service ended."""
        cursor = self._db.execute("UPDATE jobs SET state = 'interrupted' WHERE state IN ('queued', 'running')")
        return cursor.rowcount

    def add(self, record: Record, request: bytes) -> None:
        """A new job; the oldest ones that have ended make room for it."""
        row = (record["id"], record["state"], record["created"], _pack(record), zlib.compress(request, 1))
        with self._guard:
            self._db.execute("INSERT INTO jobs VALUES (?, ?, ?, ?, ?)", row)
            self._added += 1
            if self._added % COUNTED == 1:
                count = self._db.execute("SELECT count(*) FROM jobs").fetchone()[0]
                self._db.execute(_FORGET, (max(0, count - self.keep),))

    def save(self, record: Record) -> None:
        with self._guard:
            self._db.execute(
                "UPDATE jobs SET state = ?, record = ? WHERE id = ?", (record["state"], _pack(record), record["id"])
            )

    def record(self, identity: str) -> Record | None:
        with self._guard:
            row = self._db.execute("SELECT state, record FROM jobs WHERE id = ?", (identity,)).fetchone()
        if row is None:
            return None
        record: Record = json.loads(zlib.decompress(row[1]))
        return record | {"state": row[0]}

    def request(self, identity: str) -> bytes | None:
        with self._guard:
            row = self._db.execute("SELECT request FROM jobs WHERE id = ?", (identity,)).fetchone()
        return None if row is None else zlib.decompress(row[0])

    def count(self) -> dict[str, int]:
        """Jobs by state."""
        with self._guard:
            return dict(self._db.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall())

    def remove(self, identity: str) -> None:
        with self._guard:
            self._db.execute("DELETE FROM jobs WHERE id = ?", (identity,))

    def close(self) -> None:
        with self._guard:
            self._db.close()
            self._alone.close()


def _pack(record: Record) -> bytes:
    return zlib.compress(json.dumps(record, allow_nan=False, separators=(",", ":")).encode(), 1)


def _lock(path: Path) -> IO[str]:
    """Hold a lock for as long as the service lives: a second one would mark the first one's jobs as interrupted."""
    file = path.with_name(path.name + ".lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise LehdError(f"{path}: another `lehd serve` uses this database; give this one its own") from None
    return file
