"""Request bodies: read within limits of size and time, and understood as what they are."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request

from lehd.errors import LehdError
from lehd.io.text import decode
from lehd.service.config import Config, Limits
from lehd.service.jobs import Job, TooManyError
from lehd.service.task import DEFAULT_NAME, Options, Problem, parse_text
from lehd.service.vroom import parse_vroom

MOST_HELD, MOST_OF_ONE = 16, 4  # bodies of the largest size in memory at once, and those of one client


class BodyError(LehdError):
    """A body that is not even looked at."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Bodies:
    """Reads bodies, and knows how much of memory those take up that are on their way."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.held: Counter[str] = Counter()  # bytes, by client

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """The body, held until the end of the block."""
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise BodyError(415, "Content-Encoding: compressed bodies are not taken; expected the plain one")
        if request.headers.get("content-type", "").lower().startswith("multipart/"):
            raise BodyError(415, "Content-Type: forms are not taken; expected the file itself as the body")
        client: str = request.scope["lehd.client"]
        parts: list[bytes] = []
        try:
            await self._collect(request, client, parts)
            parts[:] = [b"".join(parts)]
            yield parts[0]
        finally:
            self.held[client] -= sum(map(len, parts))
            if not self.held[client]:
                del self.held[client]

    async def _collect(self, request: Request, client: str, parts: list[bytes]) -> None:
        size = 0
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for part in request.stream():
                    parts.append(part)
                    self.held[client] += len(part)
                    size += len(part)
                    self._check(size, client)
        except TimeoutError:
            raise BodyError(408, f"the body did not arrive within {self.limits.body_seconds:g} seconds") from None
        except ClientDisconnect:
            raise BodyError(400, "the body ended early") from None

    def _check(self, size: int, client: str) -> None:
        most = self.limits.body_bytes
        if size > most:
            raise BodyError(413, f"the body is too large; expected at most {self.limits.body_mb:g} MB")
        if self.held[client] > MOST_OF_ONE * most or self.held.total() > MOST_HELD * most:
            raise TooManyError("too many large bodies at once; try again later", 5)


@dataclass(frozen=True)
class Order:
    """A body and what was said beside it: all that it takes to put a job together, now or after a restart."""

    body: bytes
    is_json: bool
    options: Options  # those of the query

    @classmethod
    def of(cls, body: bytes, content_type: str, options: Options) -> Order:
        is_json = "json" in content_type or body.lstrip()[:1] in (b"{", b"[")
        if options.name is None and "csv" in content_type and not is_json:
            options = options.model_copy(update={"name": f"{DEFAULT_NAME}.csv"})
        return cls(body, is_json, options)

    def pack(self) -> bytes:
        head = {"is_json": self.is_json, "options": self.options.model_dump(exclude_none=True)}
        return json.dumps(head).encode() + b"\n" + self.body

    @classmethod
    def unpack(cls, packed: bytes) -> Order:
        head, body = packed.split(b"\n", 1)
        said = json.loads(head)
        return cls(body, said["is_json"], Options(**said["options"]))

    def problem(self, limits: Limits) -> tuple[Problem, Options]:
        """The problem, and the options of query and body together."""
        name = self.options.name or DEFAULT_NAME
        if not self.is_json:
            return parse_text(decode(self.body), name, limits.nodes, self.options), self.options
        problem, options = parse_vroom(self.body, name, limits.nodes)
        for field in ("capacity", "vehicles"):
            if getattr(self.options, field) is not None or getattr(options, field) is not None:
                raise LehdError(f"{field}: not with JSON, which has the vehicles in its body")
        return problem, self.options.over(options)

    def job(self, client: str, config: Config) -> Job:
        problem, options = self.problem(config.limits)
        most = config.limits.seconds
        limit = options.time_limit
        if limit is None:
            limit = min(most, config.default_seconds) if options.iterations is None else most
        if limit > most:
            raise LehdError(f"time_limit: {limit:g} seconds; expected at most {most:g}")
        return Job(client, problem, options.model_copy(update={"time_limit": limit}))
