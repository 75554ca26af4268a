"""`lehd serve`: the web page and the HTTP service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from lehd.cli.common import reporting
from lehd.errors import LehdError
from lehd.work.engines import LOCAL

Positive = {"min": 1}


def serve(
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0 for everybody.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="0 takes any free one.")] = 8000,
    device: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", show_default="all GPUs, else cpu", help="cpu, cuda:0 …; may be repeated."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, show_default="one per core", help="Processes on the CPU.")
    ] = None,
    cluster: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Where workers run. local: here. auto or HOST:PORT: on a Ray cluster."),
    ] = LOCAL,
    batch: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, show_default="64 on a GPU, else 1", help="Jobs of equal size at once."),
    ] = None,
    database: Annotated[
        Path | None, typer.Option(metavar="FILE", show_default="~/.local/state/lehd/jobs.sqlite", help="Keeps jobs.")
    ] = None,
    api_keys: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keys, one per line, that clients must show; or set LEHD_API_KEY."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name the service is reached by; may be repeated.")
    ] = None,
    tiles: Annotated[
        str | None, typer.Option(metavar="URL", help="Map tiles, such as https://tiles.example/{z}/{x}/{y}.png")
    ] = None,
    tiles_credit: Annotated[str, typer.Option(metavar="TEXT", help="Shown on the map.")] = "",
    max_nodes: Annotated[int, typer.Option(metavar="N", min=2, max=100_000, help="Largest problem.")] = 10_000,
    max_seconds: Annotated[float, typer.Option(metavar="S", help="Longest time limit of a job.")] = 300,
    max_body: Annotated[float, typer.Option(metavar="MB", help="Largest request body.")] = 16,
    max_waiting: Annotated[int, typer.Option(metavar="N", min=1, help="Jobs in the queue.")] = 100,
    max_waiting_per_client: Annotated[int, typer.Option(metavar="N", min=1, help="Of them from one client.")] = 25,
    jobs_per_minute: Annotated[int, typer.Option(metavar="N", min=1, help="Of one client.")] = 120,
    requests_per_second: Annotated[int, typer.Option(metavar="N", min=1, help="Of one client.")] = 100,
    keep: Annotated[int, typer.Option(metavar="N", min=1, help="Jobs remembered.")] = 10_000,
) -> None:
    """Open the web page and the HTTP service.

    It listens on this machine alone unless --host says otherwise. Ctrl-C ends it; finished jobs are kept.

    [bold]Examples[/bold]

    [dim]The page at http://127.0.0.1:8000:[/dim]

      lehd serve

    [dim]For colleagues, with a key:[/dim]

      LEHD_API_KEY=a-long-secret lehd serve --host 0.0.0.0 --allow-host routes.example.org

    [dim]With workers on the machines of a Ray cluster, of which this is one:[/dim]

      lehd serve --cluster auto
    """
    with reporting():
        try:
            from lehd.service.server import run
        except ImportError as error:
            raise LehdError(
                f"lehd serve needs the extra 'serve' ({error.name} is missing): pip install 'lehd[serve]'"
            ) from None
        from lehd.service.config import Config, Limits, default_database
        from lehd.work.units import usable_cores

        limits = Limits(
            nodes=max_nodes,
            seconds=max_seconds,
            body_mb=max_body,
            waiting=max_waiting,
            waiting_per_client=max_waiting_per_client,
            jobs_per_minute=jobs_per_minute,
            requests_per_second=requests_per_second,
            kept=keep,
        )
        if cluster == LOCAL:
            devices, number = device or default_devices(), workers or usable_cores()
        else:
            devices, number = cluster_devices(cluster, device, workers)
        run(
            Config(
                host=host,
                port=port,
                devices=tuple(devices),
                workers=number,
                cluster=cluster,
                batch=batch,
                database=database or default_database(),
                keys=read_keys(api_keys),
                hosts=tuple(allow_host or ()),
                tiles=tiles,
                tiles_credit=tiles_credit,
                limits=limits,
            ),
            typer.echo,
        )


def default_devices() -> list[str]:
    import torch

    return [f"cuda:{number}" for number in range(torch.cuda.device_count())] or ["cpu"]


def cluster_devices(cluster: str, device: list[str] | None, workers: int | None) -> tuple[list[str], int]:
    from lehd.service.places import OnRay

    if device is not None and len(device) > 1:
        raise LehdError("--device: all workers on a cluster are alike; expected cpu or cuda once")
    kind, number = OnRay(cluster).workers(device[0] if device else None, workers)
    return [kind], number


def read_keys(path: Path | None) -> tuple[str, ...]:
    keys = [os.environ["LEHD_API_KEY"]] if os.environ.get("LEHD_API_KEY") else []
    if path is not None:
        try:
            keys += [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise LehdError(f"{path}: cannot be read ({error})") from None
        if not keys:
            raise LehdError(f"{path}: no key in it; expected one per line")
    return tuple(keys)
