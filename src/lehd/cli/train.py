"""`lehd train`: a configuration and label files in, weights out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from rich.progress import BarColumn, TextColumn

from lehd.cli.bar import LiveBar
from lehd.cli.common import reporting

if TYPE_CHECKING:
    from lehd.training.loop import Trainer
    from lehd.training.prepare import Made


def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The settings of the run.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where log, weights and checkpoints go.")
    ],
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="Folder of the label files; or labels and problems of your own, files or folders. May be repeated.",
        ),
    ] = None,
    init: Annotated[
        Path | None, typer.Option(metavar="WEIGHTS", help="Start from trained weights; shipped: the package's own.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in the output folder, if there is one.")
    ] = False,
    pause: Annotated[
        float | None, typer.Option(metavar="S", help="Stop with a checkpoint after so many seconds; --resume goes on.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", show_default="chosen", help="cpu, cuda, cuda:1 …")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Replace a setting of the file; may be repeated."),
    ] = None,
) -> None:
    """Train a model: on labelled instances, by reinforcement, or on labels it makes itself. The configuration decides.

    Problems of your own without a solution are labelled first: by fast-tsp or HGS where they are installed, else by the
    model (--set 'labels_by="model"').

    A run may be stopped or killed at any moment: the same command with --resume goes on.

    [bold]Examples[/bold]

      lehd train configs/tsp100.toml --data labels --output runs/tsp100

      lehd train configs/tsp100.toml --data labels --output runs/tsp100 --resume

      lehd train mine.toml --data labels --output runs/mine --init weights.safetensors --set seconds=600 --set seed=1

      lehd train configs/rl_tsp20.toml --output runs/rl

      lehd train configs/si_tsp100.toml --output runs/si --pause 3600

      lehd train configs/fine-tune.toml --init shipped --data my_problems --output runs/mine
    """
    with reporting():
        from lehd.training.config import make_config, read_table
        from lehd.training.loop import CURVES, WEIGHTS, only_folder
        from lehd.training.loop import train as run

        table = read_table(config, changes or [])
        limit = float("inf") if pause is None else pause
        if "rounds" in table:
            _self_improve(table, config, output, only_folder(data or [Path()]), init, device, resume, limit)
            return
        settings = make_config(table, config)
        with Labels() as labels, Bar() as bar:
            run(settings, output, data or [Path()], init, device, resume, bar, labels, limit)
        if bar.share < 1:
            typer.echo(f"{output}: {100 * bar.share:.0f} % done; the same command with --resume goes on", err=True)
        elif bar.last:
            curves = f"; curves in {output / CURVES}" if (output / CURVES).is_file() else ""
            typer.echo(f"{output / WEIGHTS}: {summary(bar.last)}{curves}", err=True)


def _self_improve(
    table: dict[str, Any],
    config: Path,
    output: Path,
    data: Path,
    init: Path | None,
    device: str | None,
    resume: bool,
    pause: float,
) -> None:
    from lehd.cli.label import PartsBar
    from lehd.labels.improve import PrintParts
    from lehd.training.self_improve import SelfImprovement, make_self_improve, table_of

    settings = make_self_improve(table, config)
    with Bar() as bar, PartsBar() as parts:
        on_parts = PrintParts() if parts.bars.disable else parts
        told = _tell(bar, parts)
        run = SelfImprovement(settings, output, data, init, device, bar, on_parts, told, pause)
        complete = run.run(resume)
    if run.done:
        typer.echo(table_of(run.done))
    if not complete:
        typer.echo(f"{output}: not done yet; the same command with --resume goes on", err=True)


def _tell(*bars: LiveBar) -> Callable[[dict[str, Any]], None]:
    """A line for every finished step; the bars make way for the next one's."""

    def tell(line: dict[str, Any]) -> None:
        for bar in bars:
            bar.bars.stop()
        name = f"round {line['round']}, {line['step_name']}" if line["round"] else str(line["step_name"])
        typer.echo(f"{name}: done in {duration(line['seconds'])}", err=True)

    return tell


class Labels(LiveBar):
    """Called with each label that is made, or large file that is read; without a terminal it prints a line for each."""

    def __init__(self) -> None:
        super().__init__(TextColumn("labels", style="cyan"), BarColumn(bar_width=24))

    def __call__(self, made: Made) -> None:
        words = f"{made.done}/{made.total} {made.last}"
        if self.bars.disable:
            typer.echo(f"labels {words}", err=True)
            return
        self.bars.start()
        self.bars.update(self.task, completed=made.done, total=made.total, state=words, refresh=True)
        if made.done == made.total:
            self.bars.stop()  # the line belongs to training from now on

    def __enter__(self) -> Self:
        return self


class Bar(LiveBar):
    """Shows a run on a terminal; elsewhere the lines of its log are printed. Of several processes, one speaks."""

    interval = 1.0  # each look waits for the GPU

    def __init__(self) -> None:
        words, share = TextColumn("training", style="cyan"), TextColumn("{task.percentage:3.0f} %")
        super().__init__(words, BarColumn(bar_width=24), share, total=1.0)
        self.last: dict[str, Any] = {}  # the latest line of the log
        self.share = 1.0  # of the run that is done

    def stepped(self, trainer: Trainer) -> None:
        if not trainer.processes.writes:
            return
        self.share = trainer.progress
        if self.due():
            self.bars.start()
            self.bars.update(self.task, completed=trainer.progress, state=state_words(trainer), refresh=True)

    def logged(self, record: dict[str, Any]) -> None:
        self.last = record
        if self.bars.disable:
            typer.echo(json.dumps(record))
        elif "learning_rate" not in record:  # a validation on the way; what the last one found is told at the end
            self.bars.console.print(f"step {record['step']}: {summary(record)}", highlight=False)

    def __enter__(self) -> Self:
        return self  # the display starts with the first step: the labels are read before


def state_words(trainer: Trainer) -> str:
    seen = trainer.glance()
    if "loss" in seen:
        what = [f"loss {seen['loss']:.4f}", f"accuracy {100 * seen['accuracy']:.1f} %"]
    else:
        what = [f"cost {seen['cost']:.4f}", f"best of the starts {seen['best_cost']:.4f}"]
    left = trainer.seconds * (1 / trainer.progress - 1) if trainer.progress > 0 else 0.0
    return ", ".join(
        [
            f"step {trainer.step}",
            *what,
            f"{seen['tokens_per_second'] / 1e6:.3g} Mtok/s",
            f"{duration(left)} left",
        ]
    )


SUMMARY = {
    "validation_loss": "validation loss {:.4f}",
    "greedy_cost": "greedy cost {:.4f}",
    "greedy_gap": "greedy gap {:.2f} %",
    "average_greedy_cost": "of the averaged weights {:.4f}",
    "average_greedy_gap": "of the averaged weights {:.2f} %",
}


def summary(record: dict[str, Any]) -> str:
    return ", ".join(words.format(record[name]) for name, words in SUMMARY.items() if name in record)


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
