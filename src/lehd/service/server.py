"""Running the service under uvicorn."""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
from collections.abc import Callable

import uvicorn

from lehd.device import find_device
from lehd.errors import LehdError
from lehd.service.app import create_app
from lehd.service.config import Config
from lehd.service.protocol import patient
from lehd.work.engines import LOCAL

CONNECTIONS = 4000  # at once; more are answered 503


def run(config: Config, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C."""
    if config.cluster == LOCAL:
        for device in config.devices:
            find_device(device)
    _allow_connections()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    server, listening = prepare(config)
    port = listening.getsockname()[1]
    host = f"[{config.host}]" if ":" in config.host else config.host
    say(f"lehd serves at http://{host}:{port} (jobs in {config.database}); Ctrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):  # how a service is ended
        server.run(sockets=[listening])


def _allow_connections() -> None:
    """Many systems allow a process 1,024 open files, connections included, until it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, 2 * CONNECTIONS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def prepare(config: Config) -> tuple[uvicorn.Server, socket.socket]:
    """A server, ready to run, and the socket it will listen on."""
    listening = _listen(config.host, config.port)
    settings = uvicorn.Config(
        create_app(config),
        http=patient(config.limits.header_seconds, config.limits.reading_seconds),
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=3,
    )
    return uvicorn.Server(settings), listening


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Without its protocol's name asyncio leaves Nagle's algorithm on, and every answer is 40 ms late.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(512)
    except OSError as error:
        raise LehdError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
    return listening
