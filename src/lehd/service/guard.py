"""What every request passes: host, origin, key, rate and size; and the headers that every answer gets."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from lehd.service.config import Config

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/", "/health", "/config", "/docs", "/openapi.json", "/favicon.ico")  # and /static/: without a key
LINGER = 5.0  # seconds that a refused body may go on
CLIENTS = 10_000  # whose rates are remembered


class Rate:
    """A bucket of tokens for each client: so many per second, saved up to `burst`."""

    def __init__(self, per_second: float, burst: float):
        self.per_second, self.burst = per_second, burst
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # client -> tokens, when

    def wait(self, client: str) -> float:
        """Take a token: 0, or the seconds until there is one."""
        now = time.monotonic()
        tokens, then = self.buckets.pop(client, (self.burst, now))
        tokens = min(self.burst, tokens + (now - then) * self.per_second)
        taken = tokens >= 1
        self.buckets[client] = (tokens - 1 if taken else tokens, now)
        if len(self.buckets) > CLIENTS:
            self.buckets.popitem(last=False)
        return 0.0 if taken else (1 - tokens) / self.per_second


class Guard:
    """The outermost layer of the service."""

    def __init__(self, app: App, config: Config):
        self.app, self.config = app, config
        self.rate = Rate(config.limits.requests_per_second, 2 * config.limits.requests_per_second)
        self.keys = [hashlib.sha256(key.encode()).digest() for key in config.keys]
        self.answers: Counter[tuple[str, str, int]] = Counter()  # method, route, status
        self.headers = [(name.encode(), value.encode()) for name, value in security_headers(config).items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1003})
            return
        status = 500

        async def send_safely(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = {name for name, _ in message["headers"]}
                extra = [(name, value) for name, value in self.headers if name not in given]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        refusal = self.refuse(scope)
        try:
            if refusal is not None:
                await answer_error(receive, send_safely, *refusal)
            else:
                await self.app(scope, receive, send_safely)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.answers[scope["method"] if scope["method"].isalpha() else "other", route, status] += 1

    def refuse(self, scope: Scope) -> tuple[int, str, dict[str, str]] | None:
        """Why a request goes no further: status, message, headers."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        allowed = self.config.allowed_hosts
        if allowed is not None and host_name(host) not in allowed:
            return 421, "Host: not a name of this service; `lehd serve --allow-host` adds one", {}
        origin = headers.get(b"origin")
        if origin is not None and scope["method"] not in ("GET", "HEAD") and origin.partition("://")[2] != host:
            return 403, "Origin: pages of other sites may not use this service", {}
        path = scope["path"]
        given = key_of(headers)
        mine = hashlib.sha256(given.encode("utf-8", "replace")).digest()
        known = any(hmac.compare_digest(mine, key) for key in self.keys)
        client = f"key {mine.hex()[:12]}" if known else (scope.get("client") or ("unknown",))[0]
        scope["lehd.client"] = client
        wait = self.rate.wait(client)  # before the key is asked for, so that keys cannot be tried quickly
        if wait:
            return 429, "too many requests; slow down", {"retry-after": str(int(wait) + 1)}
        if self.keys and not known and path not in OPEN and not path.startswith("/static/"):
            return 401, "expected an API key: Authorization: Bearer KEY", {"www-authenticate": "Bearer"}
        length = headers.get(b"content-length", "0")
        if not length.isdecimal():
            return 400, "Content-Length: expected a number", {}
        if len(length) > 12 or int(length) > self.config.limits.body_bytes:
            return 413, f"the body is too large; expected at most {self.config.limits.body_mb:g} MB", {}
        return None


def host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def key_of(headers: dict[bytes, str]) -> str:
    scheme, _, token = headers.get(b"authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get(b"x-api-key", "")


async def answer_error(receive: Receive, send: Send, status: int, message: str, headers: dict[str, str]) -> None:
    body = json.dumps({"code": 2, "error": message}).encode()
    extra = [(name.encode(), value.encode()) for name, value in headers.items()]
    first = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send(
        {"type": "http.response.start", "status": status, "headers": [*first, (b"connection", b"close"), *extra]}
    )
    await send({"type": "http.response.body", "body": body, "more_body": True})
    # A client that is still sending would see its connection reset, not the answer: let it send for a moment.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER):
            while (message_in := await receive())["type"] == "http.request" and message_in.get("more_body"):
                pass
    await send({"type": "http.response.body", "body": b""})


def security_headers(config: Config) -> dict[str, str]:
    images = " ".join(filter(None, ["'self'", "blob:", "data:", config.tile_origin]))
    policy = [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        f"img-src {images}",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return {
        "content-security-policy": "; ".join(policy),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "x-frame-options": "DENY",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), microphone=(), geolocation=()",
        "cache-control": "no-cache",
    }
