"""Results as a Markdown report with tables and pictures, or two files of results compared.

    python -m lehd.bench.report results --output docs/results.md
    python -m lehd.bench.report before.jsonl after.jsonl

A file of results is .jsonl or .jsonl.gz, a folder stands for all of them in it; its notes.md, which tells the
conditions of the runs, goes into the report. What is measured and what is published are told apart in every table.

A file called TABLE-….jsonl, such as `reinforcement-h200.jsonl.gz`, holds results of models that were trained for that
table of the paper alone (published.toml has the names), and are shown nowhere else.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lehd.bench import library
from lehd.bench.compare import compare
from lehd.bench.compare import table as comparison
from lehd.bench.peers_table import BENCH as PEERS
from lehd.bench.peers_table import TOGETHER, peers_table
from lehd.bench.published import PAPER, PaperTable, paper_tables
from lehd.bench.speed import Speed, to_speeds
from lehd.bench.speed import table as speed_table
from lehd.bench.store import LEHD, Record, read_lines, to_records
from lehd.bench.summary import Summary, summarise
from lehd.bench.text import NOTHING, duration, markdown, percent
from lehd.errors import LehdError, writing
from lehd.model.checkpoint import write_atomically
from lehd.words import brief, count

ENDINGS = (".jsonl", ".jsonl.gz")
NOTES = "notes.md"  # in a folder of results
# Tables of models like ours on test sets like those of `lehd bench uniform`.
SAME_SETS = (
    "uniform_tsp",
    "uniform_cvrp",
    "pomo_supervised",
    "sampling_and_rrc",
    "so_mixed",
    "h_tsp",
    "normalization_lehd",
)
LIBRARIES = {"tsplib": "TSPLIB", "cvrplib": "CVRPLIB"}
MEASURED, PUBLISHED = "measured", "published"


@dataclass
class Results:
    """Everything some files hold."""

    records: list[Record] = field(default_factory=list)
    trained_for: dict[str, list[Record]] = field(default_factory=dict)  # of models for one table of the paper
    speeds: list[Speed] = field(default_factory=list)
    trainings: list[dict[str, Any]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    notes: str = ""  # the conditions of the runs, in the words of who made them

    def of(self, bench: str) -> list[Record]:
        return [record for record in self.records if record.bench == bench]


def read_results(paths: Iterable[Path]) -> Results:
    results = Results()
    found: dict[str, dict[tuple[object, ...], Record]] = {}  # by the table they are for, "": by the kind of bench
    for path in paths:
        files = sorted(p for p in path.iterdir() if p.name.endswith(ENDINGS)) if path.is_dir() else [path]
        if (path / NOTES).is_file():
            results.notes += (path / NOTES).read_text(encoding="utf-8").strip()
        for file in files:
            lines = read_lines(file)
            name = file.name.partition("-")[0]
            table = name if name in paper_tables() and name not in LIBRARIES else ""
            found.setdefault(table, {}).update({record.key: record for record in to_records(lines, file)})
            results.speeds += to_speeds(lines)
            results.trainings += [line for line in lines if line["bench"] == "train"]
            results.files.append(file.name)
    results.records = list(found.pop("", {}).values())
    results.trained_for = {table: list(records.values()) for table, records in found.items()}
    if not results.files:
        raise LehdError(f"no results ({' or '.join(ENDINGS)}) in {', '.join(map(str, paths))}")
    return results


def report(results: Results, pictures: dict[str, str] | None = None) -> str:
    """The whole report; `pictures` are paths by title, relative to it."""
    parts = [_head(results), *([results.notes] if results.notes else []), "## Uniform test sets", *_uniform(results)]
    for bench, title in LIBRARIES.items():
        parts += [f"## {title}", *_library(bench, results.of(bench))]
    parts += ["## Other solvers", *_peers(results.of(PEERS)), "## Speed", *_speeds(results), "## Training"]
    parts += [*_trainings(results.trainings), "## Pictures", *_pictures(pictures or {}), "## The paper's other tables"]
    rest = [table for table in paper_tables().values() if table.name not in (*SAME_SETS, *LIBRARIES)]
    parts += ["Of models that were trained for them alone. Where nothing is called measured, nothing was."]
    parts += [
        _with_own(table, results, []) if table.name in results.trained_for else _published(table) for table in rest
    ]
    return "\n\n".join(parts) + "\n"


def write_report(
    results: Results,
    output: Path | None = None,
    pictures: Path | None = None,
    data: Path | None = None,
    solutions: Path | None = None,
) -> str:
    """The report, also as a file where `output` says so; pictures need matplotlib."""
    shown = {}
    if pictures is not None:
        from lehd.bench.pictures import draw_all

        base = Path() if output is None else output.parent
        for path in draw_all(results.records, pictures, data, solutions):
            shown[path.stem.replace("-", " ")] = Path(os.path.relpath(path, base)).as_posix()
    text = report(results, shown)
    if output is not None:
        with writing(output):
            write_atomically(output, text.encode())
    return text


def _head(results: Results) -> str:
    weights = sorted({(r.problem, r.weights) for r in results.records if r.weights})
    devices = sorted({record.device for record in results.records} | {speed.device for speed in results.speeds})
    return "\n".join(
        [
            "# Results",
            "",
            "Generated by `lehd bench report`; do not edit. Every figure called measured can be traced to lines of",
            f"{', '.join(f'`{name}`' for name in results.files)}; what is published is from {PAPER}.",
            "A gap is per cent above the reference; times are wall-clock.",
            "",
            f"- Weights: {', '.join(f'{problem} {name}' for problem, name in weights) or NOTHING}",
            f"- Measured on: {'; '.join(devices) or NOTHING}",
        ]
    )


# ---- uniform sets


def _uniform(results: Results) -> list[str]:
    summaries = summarise(results.of("uniform"))
    if not summaries:
        return ["Not measured yet.", *(_published(paper_tables()[name]) for name in SAME_SETS)]
    text = (
        "The gap of a set is the ratio of mean costs, ± its standard error over instances. In brackets the time for "
        "all instances and, where measured, how many there were. With several seeds, costs and times are their means, "
        "and the error counts how far their gaps are apart."
    )
    tables = [paper_tables()[name] for name in SAME_SETS]
    return [text, *(_with_own(table, results, summaries) for table in tables)]


def _with_own(table: PaperTable, results: Results, summaries: list[Summary]) -> str:
    """With models that were trained for this table in front."""
    return uniform_table(table, summaries, summarise(results.trained_for.get(table.name, [])))


def uniform_table(table: PaperTable, summaries: list[Summary], own: Sequence[Summary] = ()) -> str:
    """A table of the paper with what was measured on its test sets in front, and columns for other sizes behind. Of its
    `own` summaries all are shown, of others those with a budget that the table has."""
    whole = table.name.startswith("uniform")
    problem = table.columns[0].rstrip("0123456789")
    fitting = [each for each in summaries if each.problem == problem and (whole or table.has(each.budget))]
    fitting = [*own, *fitting]
    others = [f"{each.problem}{each.nodes}" for each in fitting] if whole else []
    columns = list(dict.fromkeys([*table.columns, *others]))
    rows: dict[tuple[str, str, str], list[Summary]] = {}
    for summary in fitting:
        if f"{summary.problem}{summary.nodes}" in columns:
            rows.setdefault((f"lehd {summary.budget}", summary.device, summary.weights), []).append(summary)
    lines: list[list[object]] = [
        [method, f"{MEASURED}, {device}, weights {weights}", *(_measured(name, found) for name in columns)]
        for (method, device, weights), found in rows.items()
    ]
    empty = [NOTHING] * (len(columns) - len(table.columns))
    lines += [[method, PUBLISHED, *cells, *empty] for method, cells in table.rows.items()]
    sets = ", ".join(
        dict.fromkeys(f"{each.problem}{each.nodes} is {each.set}" for found in rows.values() for each in found)
    )
    return "\n\n".join([_title(table), f"Measured: {sets or NOTHING}.", markdown(["method", "", *columns], lines)])


def _measured(column: str, summaries: list[Summary]) -> str:
    cells = [
        f"{percent(each.gap)}{_error(each)} ({duration(each.seconds)}, {each.instances}{_seeds(each)})"
        for each in summaries
        if f"{each.problem}{each.nodes}" == column
    ]
    return "; ".join(cells) or NOTHING


def _error(summary: Summary) -> str:
    return "" if summary.standard_error is None else f" ± {percent(summary.standard_error)}"


def _seeds(summary: Summary) -> str:
    return "" if summary.seeds == 1 else f", {summary.seeds} seeds"


def _published(table: PaperTable) -> str:
    rows = [[method, *cells] for method, cells in table.rows.items()]
    return "\n\n".join([_title(table), markdown([PUBLISHED, *table.columns], rows)])


def _title(table: PaperTable) -> str:
    note = f" {table.note}" if table.note else ""
    return f"### {table.title}\n\n{table.source}: {PUBLISHED} rows are the paper's.{note}"


# ---- libraries


def _library(bench: str, records: list[Record]) -> list[str]:
    if not records:
        return ["Not measured yet.", _published(paper_tables()[bench])]
    paper = "unrounded lengths against rounded optima" if bench == "tsplib" else "costs against the paper's references"
    text = f"Gaps are means over files: by the files' own rule against the best known, and as in the paper, {paper}. "
    if bench == "cvrplib":
        text += "No limit is put on the number of routes, so that a cost below one found with a limit is possible. "
    return [text + f"Columns called paper are published ({PAPER}).", library.summary(bench, records), _files(records)]


def files_table(records: list[Record]) -> str:
    """A row for each file and budget, small ones first."""
    rows = [
        [
            record.instance,
            record.nodes,
            record.budget,
            NOTHING if record.cost is None else brief(record.cost),
            NOTHING if record.reference is None else brief(record.reference),
            percent(record.gap),
            percent(record.paper_gap),
            f"{record.seconds:.2f}",
            record.device,
            record.weights,
        ]
        for record in sorted(records, key=lambda record: (record.nodes, record.instance, record.order))
    ]
    columns = ["file", "nodes", "budget", "cost", "best known", "gap %", "gap % as in the paper", "seconds", "on"]
    return markdown([*columns, "weights"], rows)


def _files(records: list[Record]) -> str:
    files = count(len({record.instance for record in records}), "file")
    return f"<details><summary>All {files}</summary>\n\n{files_table(records)}\n\n</details>"


# ---- the rest


def _peers(records: list[Record]) -> list[str]:
    if not records:
        return ["Not measured yet."]
    versions = {record.method: record.version for record in records if record.method != LEHD}
    text = (
        "The same instances and machine, each instance alone with so many seconds of wall-clock time; gaps are means "
    )
    text += "over instances. The best of each budget is bold. Versions: "
    words = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    alone = [record for record in records if not record.budget.endswith(TOGETHER)]
    together = [record for record in records if record.budget.endswith(TOGETHER)]
    tables = [peers_table(alone)] if alone else []
    if together:
        tables += ["The instances of a set together, in the time that all of them have:", peers_table(together)]
    return [text + (words or NOTHING) + ".", *tables]


def _speeds(results: Results) -> list[str]:
    if not results.speeds:
        return ["Not measured yet."]
    text = (
        "Latency is the time of one batch, for RRC of one iteration of it. The ceiling is what large matrix products "
    )
    return [text + "reach: 790 TFLOP/s on an H200, measured elsewhere.", speed_table(results.speeds)]


def _trainings(lines: list[dict[str, Any]]) -> list[str]:
    if not lines:
        return ["Not measured yet."]
    groups = list(lines[0]["shares"])
    columns = ["configuration", "layers", "tokens/s", "% of ceiling", "GiB", *(f"{name} %" for name in groups), "on"]
    rows = [
        [
            line["config"],
            line["variant"],
            f"{line['tokens_per_second']:,}",
            f"{100 * line['share_of_ceiling']:.1f}",
            NOTHING if line["memory"] is None else f"{line['memory']:.1f}",
            *(f"{100 * line['shares'].get(name, 0):.1f}" for name in groups),
            line["device"],
        ]
        for line in lines
    ]
    return [
        "Tokens through the decoder, forward, backward and optimizer; where the time goes.",
        markdown(columns, rows),
    ]


def _pictures(pictures: dict[str, str]) -> list[str]:
    return [f"![{title}]({path})" for title, path in pictures.items()] or ["None yet."]


def main() -> None:
    parser = argparse.ArgumentParser(description="Report results, or compare two files of them.")
    parser.add_argument("results", type=Path, help="a file or folder of results")
    parser.add_argument("other", type=Path, nargs="?", help="a second one, to compare with the first")
    parser.add_argument("--output", type=Path, help="where the report goes; standard output by default")
    parser.add_argument("--pictures", type=Path, help="a folder for pictures; needs matplotlib")
    parser.add_argument("--data", type=Path, help="the benchmark files, for pictures of tours")
    parser.add_argument("--solutions", type=Path, help="solutions that a run wrote, for pictures of tours")
    given = parser.parse_args()
    try:
        if given.other is not None:
            print(compare_files(given.results, given.other))
        else:
            text = write_report(
                read_results([given.results]), given.output, given.pictures, given.data, given.solutions
            )
            print(text if given.output is None else given.output)
    except LehdError as error:
        sys.exit(f"lehd: {error}")


def compare_files(first: Path, second: Path) -> str:
    rows = compare(*(read_results([path]).records for path in (first, second)))
    text = f"A is {first}, B is {second}. Differences are of B's costs to A's, in per cent of A's: negative is shorter."
    return f"{text}\n\n{comparison(rows)}"


if __name__ == "__main__":
    main()
