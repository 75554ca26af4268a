"""The log of a run: JSON lines in a file, and TensorBoard's files where tensorboard is installed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from lehd.model.checkpoint import write_atomically

NAME = "log.jsonl"


class Log:
    """Lines go on after the given step; later ones, which a killed run wrote after its last checkpoint, are dropped."""

    def __init__(self, folder: Path, after: int = 0):
        folder.mkdir(parents=True, exist_ok=True)
        kept = [record for record in read_log(folder) if record.get("step", 0) <= after]
        write_atomically(folder / NAME, "".join(json.dumps(record) + "\n" for record in kept).encode())
        self.file = open(folder / NAME, "a", encoding="utf-8")  # noqa: SIM115 - open for the whole run
        self.board = _board(folder, after)

    def write(self, record: dict[str, Any]) -> None:
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()
        if self.board is not None:
            for name, value in record.items():
                if name != "step":
                    self.board.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self.file.close()
        if self.board is not None:
            self.board.close()


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The log of a run."""
    return read_lines(folder / NAME)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file of JSON objects; the last one of a killed run may be torn."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    records = []
    for line in lines:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def _board(folder: Path, after: int) -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorBoard greets at length
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=after + 1)
