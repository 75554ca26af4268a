"""Request bodies: read within limits of size and time, and understood as what they are."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request

from lehd.errors import LehdError
from lehd.io.text import decode
from lehd.service.config import Config, Limits
from lehd.service.jobs import Job
from lehd.service.task import DEFAULT_NAME, Options, Problem, parse_text
from lehd.service.vroom import parse_vroom


class BodyError(LehdError):
    """A body that is not even looked at."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


async def read_body(request: Request, limits: Limits) -> bytes:
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise BodyError(415, "Content-Encoding: compressed bodies are not taken; expected the plain one")
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limits.body_bytes:
                    raise too_large(limits)
                chunks.append(chunk)
    except TimeoutError:
        raise BodyError(408, f"the body did not arrive within {limits.body_seconds:g} seconds") from None
    except ClientDisconnect:
        raise BodyError(400, "the body ended early") from None
    return b"".join(chunks)


def too_large(limits: Limits) -> BodyError:
    return BodyError(413, f"the body is too large; expected at most {limits.body_mb:g} MB")


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
