"""Results of `lehd solve` on the screen: a line for each file, a table of them all."""

from __future__ import annotations

import json
from typing import Any

import typer

from lehd.words import brief, count

Record = dict[str, Any]  # as lehd.io.write.result_record makes them
ROWS = 100  # the longest table; of more files there is a line each, which says the same


def show(record: Record, as_json: bool, quiet: bool) -> None:
    if as_json:
        typer.echo(json.dumps(record))
    elif not quiet:
        work = f"{record['seconds']:.1f} s, {count(record['iterations'], 'iteration')}"
        routes = f", {count(len(record['routes']), 'route')}" if record["problem"] == "CVRP" else ""
        stopped = ", stopped" * record["interrupted"]
        typer.echo(f"{record['name']}: cost {brief(record['cost'])}{routes} ({work}{stopped})")
        for note in record["notes"]:
            typer.echo(f"  note: {note}")


class Summary:
    """Counts results, and keeps what a table shows of the first ones."""

    def __init__(self) -> None:
        self.solved = 0
        self.rows: list[tuple[int, list[str]]] = []

    def add(self, place: int, record: Record) -> None:
        """`place`: where the file stands among the inputs."""
        self.solved += 1
        if len(self.rows) < ROWS:
            nodes = len(record["tour"]) if record["problem"] == "TSP" else sum(map(len, record["routes"]))
            cells = [str(nodes), brief(record["cost"]), f"{record['seconds']:.1f}", str(record["iterations"])]
            self.rows.append((place, [record["name"], *cells, "; ".join(record["notes"])]))

    def show(self) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        title = count(self.solved, "file") + " solved"
        if self.solved > len(self.rows):
            typer.echo(title)
            return
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for heading in ("name", "n", "cost", "seconds", "iterations", "notes"):
            table.add_column(
                heading, justify="left" if heading in ("name", "notes") else "right", no_wrap=heading != "notes"
            )
        for _, cells in sorted(self.rows):
            table.add_row(*map(Text, cells))
        Console().print(table)
