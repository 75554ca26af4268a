"""`lehd train`: a configuration and label files in, weights out."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lehd.cli.common import reporting

if TYPE_CHECKING:
    from lehd.training.loop import Trainer

INTERVAL = 1.0  # seconds between two looks: each waits for the GPU


def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The settings of the run.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where log, weights and checkpoints go.")
    ],
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the label files are.")] = Path(),
    init: Annotated[Path | None, typer.Option(metavar="WEIGHTS", help="Start from trained weights.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in the output folder, if there is one.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", show_default="chosen", help="cpu, cuda, cuda:1 …")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Replace a setting of the file; may be repeated."),
    ] = None,
) -> None:
    """Train a model on labelled instances.

    A run may be stopped or killed at any moment: the same command with --resume goes on.

    [bold]Examples[/bold]

      lehd train configs/tsp100.toml --data labels --output runs/tsp100

      lehd train configs/tsp100.toml --data labels --output runs/tsp100 --resume

      lehd train mine.toml --data labels --output runs/mine --init weights.safetensors --set seconds=600 --set seed=1
    """
    with reporting():
        from lehd.training.config import read_config
        from lehd.training.loop import CURVES, WEIGHTS
        from lehd.training.loop import train as run

        settings = read_config(config, changes or [])
        with Bar() as bar:
            run(settings, output, data, init, device, resume, bar)
        if bar.last:
            typer.echo(f"{output / WEIGHTS}: {summary(bar.last)}; curves in {output / CURVES}", err=True)


class Bar:
    """Shows a run on a terminal; elsewhere the lines of its log are printed. Of several processes, one speaks."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(stderr=True)
        self.bars = Progress(
            TextColumn("training", style="cyan"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:3.0f} %"),
            TextColumn("{task.fields[state]}"),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.bars.add_task("", total=1.0, state="")
        self.next_look = 0.0
        self.last: dict[str, Any] = {}  # the latest line of the log

    def stepped(self, trainer: Trainer) -> None:
        now = time.monotonic()
        if self.bars.disable or not trainer.processes.writes or now < self.next_look:
            return
        self.next_look = now + INTERVAL
        self.bars.start()
        self.bars.update(self.task, completed=trainer.progress, state=state_words(trainer), refresh=True)

    def logged(self, record: dict[str, Any]) -> None:
        self.last = record
        if self.bars.disable:
            typer.echo(json.dumps(record))
        elif "loss" not in record:  # a validation on the way; what the last one found is told at the end
            self.bars.console.print(f"step {record['step']}: {summary(record)}", highlight=False)

    def __enter__(self) -> Bar:
        return self  # the display starts with the first step: the labels are read before

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()


def state_words(trainer: Trainer) -> str:
    seen = trainer.glance()
    left = trainer.seconds * (1 / trainer.progress - 1) if trainer.progress > 0 else 0.0
    return ", ".join(
        [
            f"step {trainer.step}",
            f"loss {seen['loss']:.4f}",
            f"accuracy {100 * seen['accuracy']:.1f} %",
            f"{seen['tokens_per_second'] / 1e6:.3g} Mtok/s",
            f"{duration(left)} left",
        ]
    )


def summary(record: dict[str, Any]) -> str:
    words = [f"validation loss {record['validation_loss']:.4f}", f"greedy gap {record['greedy_gap']:.2f} %"]
    if "average_greedy_gap" in record:
        words.append(f"of the averaged weights {record['average_greedy_gap']:.2f} %")
    return ", ".join(words)


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
