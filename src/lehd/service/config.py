"""What a service allows and where it listens. Every limit has a default that suits a small machine."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from urllib.parse import urlsplit

from lehd.errors import LehdError
from lehd.work.engines import LOCAL

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Limits:
    """Bounds on what clients may ask for."""

    body_mb: float = 16  # largest request body, in megabytes
    nodes: int = 10_000  # of one problem, the depot included
    seconds: float = 300  # longest time limit of a job
    waiting: int = 100  # jobs in the queue
    waiting_per_client: int = 25  # of them from one client
    jobs_per_minute: int = 120  # submissions of one client, after a burst of as many
    requests_per_second: int = 100  # of one client, after a burst of twice as many
    streams: int = 200  # event streams and waiting answers open at once
    streams_per_client: int = 100  # of them for one client
    body_seconds: float = 30  # for a request body to arrive
    header_seconds: float = 10  # for the head of a request to arrive
    reading_seconds: float = 30  # for a client to take some more of its answer
    kept: int = 10_000  # jobs remembered

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not 0 < value < math.inf:
                raise LehdError(f"{each.name} = {value}: expected a positive number")

    @property
    def body_bytes(self) -> int:
        return int(self.body_mb * 1e6)


@dataclass(frozen=True)
class Config:
    """All that `lehd serve` is told."""

    host: str = "127.0.0.1"
    port: int = 8000
    devices: tuple[str, ...] = ("cpu",)  # one worker process each; "cpu" stands for `workers` of them
    workers: int = 1
    cluster: str = LOCAL  # or the address of a Ray cluster, which has `workers` for each of `devices`
    batch: int | None = None  # jobs solved together; None: 64 on a GPU, 1 on a CPU
    database: Path = field(default_factory=lambda: default_database())
    keys: tuple[str, ...] = ()  # any of them opens the service; none: it is open
    hosts: tuple[str, ...] = ()  # names the service is reached by, beside the loopback's and `host`
    tiles: str | None = None  # URL of map tiles with {z}, {x} and {y}
    tiles_credit: str = ""  # shown on the map
    default_seconds: float = 10
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.tiles is not None and self.tile_origin is None:
            raise LehdError(f"tiles {self.tiles!r}: expected an http(s) URL with {{z}}, {{x}} and {{y}}")
        if any(len(key) < 8 or not key.isascii() or not key.isprintable() for key in self.keys):
            raise LehdError("an API key: expected at least eight printable ASCII characters")

    @property
    def tile_origin(self) -> str | None:
        """The scheme and host that tiles come from."""
        if self.tiles is None:
            return None
        try:
            url = urlsplit(self.tiles)
        except ValueError:
            return None
        plain = bool(url.netloc) and all(sign.isalnum() or sign in ".-:[]" for sign in url.netloc)
        whole = all(part in self.tiles for part in ("{z}", "{x}", "{y}"))
        return f"{url.scheme}://{url.netloc}" if url.scheme in ("http", "https") and plain and whole else None

    @property
    def allowed_hosts(self) -> frozenset[str] | None:
        """Host names that requests may be for; None: any. Behind the loopback this keeps out pages of other sites
        whose names were made to point at this machine."""
        if self.host not in LOOPBACK and not self.hosts:
            return None
        return frozenset([*LOOPBACK, *(name.lower() for name in (self.host, *self.hosts))])

    def batch_on(self, device: str) -> int:
        return self.batch or (64 if device.startswith("cuda") else 1)


def default_database() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "lehd" / "jobs.sqlite"
