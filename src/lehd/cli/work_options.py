"""Options of commands whose work is done in units."""

from __future__ import annotations

from typing import Annotated

import typer

from lehd.work.engines import CLUSTER_HELP, GPUS_HELP, PROCESSES_HELP

Cluster = Annotated[str, typer.Option("--cluster", metavar="ADDRESS", help=CLUSTER_HELP)]
Processes = Annotated[
    int | None, typer.Option("--processes", metavar="K", min=1, show_default="in this one", help=PROCESSES_HELP)
]
Gpus = Annotated[float, typer.Option("--gpus", metavar="G", min=0, help=GPUS_HELP)]
