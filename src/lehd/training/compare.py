"""Several trainings side by side: the same budget, the same test sets, one table.

    python -m lehd.training.compare configs/compare_norm.toml --output runs/norm --data LABELS --sets FOLDER

The configuration has a table [[run]] for each training, with a name and the settings in which it differs, [common] with
those they share, [model], and [test]: which sets, at how many iterations of RRC. Every run has a folder of its own and
can be resumed; what is measured is kept in results.jsonl. Needs torch, numpy and safetensors alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lehd.bench.make import make_set
from lehd.bench.sets import Options, SetRun, TestSet
from lehd.bench.store import Store
from lehd.bench.summary import Summary, summarise
from lehd.bench.uniform import load_set
from lehd.bench.watch import PrintLines as PrintSummaries
from lehd.bench.watch import Watch as BenchWatch
from lehd.data.dataset import read_arrays
from lehd.data.label_file import read_label_file
from lehd.decoding.stop import Stop
from lehd.errors import LehdError, writing
from lehd.model.checkpoint import write_atomically
from lehd.training.config import TrainConfig, check_kinds, make_config, read_table, refuse_unknown
from lehd.training.loop import WEIGHTS, run_training
from lehd.training.processes import refuse_several
from lehd.training.self_improve import gap_to_reference
from lehd.training.table import lay_out
from lehd.training.trainer import PrintLines, Watch

RESULTS, RUNS = "results.jsonl", "runs.json"


@dataclass(frozen=True)
class Test:
    sets: tuple[str, ...] = ()  # NAME.npz in the folder of sets; made where missing, if the seed is known
    rrc: tuple[int, ...] = ()  # iterations at which to look, beside greedy construction
    limit: int | None = None  # only the first so many instances of a set
    reference: str | None = None  # the array of costs to measure against, where a set has several
    labels: str | None = None  # a compact label file, whose quality is told beside …
    labels_reference: str | None = None  # … that of another one of the same recipe

    def __post_init__(self) -> None:
        check_kinds(self)
        if not self.sets:
            raise LehdError("[test] names no `sets`")


@dataclass(frozen=True)
class Comparison:
    runs: dict[str, TrainConfig]
    test: Test


def make_comparison(table: dict[str, Any], path: str | Path) -> Comparison:
    """From the settings of a TOML file."""
    unknown = table.keys() - {"run", "common", "model", "test"}
    if unknown:
        raise LehdError(f"{path}: unknown setting {', '.join(sorted(unknown))}")
    for name in ("common", "model", "test"):
        if not isinstance(table.get(name, {}), dict):
            raise LehdError(f"{path}: expected a table [{name}]")
    tables, test = table.get("run"), table.get("test", {})
    if not isinstance(tables, list) or not tables or not all(map(_has_a_name, tables)):
        raise LehdError(f"{path}: expected a table [[run]] with a name for each training")
    runs = {}
    for each in tables:
        settings = {name: value for name, value in each.items() if name != "name"}
        model = table.get("model", {}) | settings.pop("model", {})
        runs[each["name"]] = make_config(
            table.get("common", {}) | settings | {"model": model}, f"{path} {each['name']}"
        )
    if len(runs) != len(tables) or any("/" in name or name.startswith(".") or not name for name in runs):
        raise LehdError(f"{path}: the names of runs become folders: they must be different and without slashes")
    refuse_unknown(test, Test, path)
    try:
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in test.items()
        }
        return Comparison(runs, Test(**values))
    except LehdError as error:
        raise LehdError(f"{path}: {error}") from None


def _has_a_name(table: object) -> bool:
    return isinstance(table, dict) and isinstance(table.get("name"), str)


@dataclass
class Compare:
    """Train and measure every run that is not done yet."""

    comparison: Comparison
    folder: Path
    data: Path = Path()
    sets: Path = Path()
    device: str | None = None
    watch: Watch | None = None
    bench_watch: BenchWatch | None = None
    pause: float = float("inf")
    tell: Callable[[str], None] = print

    def run(self) -> bool:
        """Whether all is done; if not, the time was up, and the next call goes on."""
        refuse_several("a comparison")
        self._refuse_missing_files()
        with writing(self.folder, lambda: "; the same command goes on from what is there"):
            return self._run()

    def _run(self) -> bool:
        begun = time.perf_counter()
        facts = self._facts()
        sets = [self._load(name) for name in self.comparison.test.sets]
        for name, config in self.comparison.runs.items():
            left = max(0.0, self.pause - (time.perf_counter() - begun))
            self.tell(f"training {name}")  # which ends at once, if it is done and the configuration wants no more
            folder = self.folder / name
            trainer = run_training(config, folder, self.data, None, self.device, True, self.watch, pause=left)
            facts[name] = {
                "progress": trainer.progress,
                "seconds": trainer.seconds,
                "decisions": trainer.decisions,
                "steps": trainer.step,
            }
            write_atomically(self._facts_path, json.dumps(facts).encode())
            if trainer.progress < 1:
                return False
            for test_set in sets:
                left = max(0.0, self.pause - (time.perf_counter() - begun))
                stop = Stop() if left == float("inf") else Stop(deadline=time.perf_counter() + left)
                self._measure(name, test_set, stop)
                if stop.out_of_time():
                    return False
        return True

    def _refuse_missing_files(self) -> None:
        """Before anything is trained that would be in vain."""
        test = self.comparison.test
        names = [name for config in self.comparison.runs.values() for name in config.data]
        for name in (*names, test.labels, test.labels_reference):
            if name is not None and not (self.data / name).is_file():
                raise LehdError(f"{self.data / name}: no such label file")

    @property
    def _facts_path(self) -> Path:
        return self.folder / RUNS

    def _facts(self) -> dict[str, Any]:
        """What is known of runs so far."""
        if not self._facts_path.exists():
            return {}
        try:
            found: dict[str, Any] = json.loads(self._facts_path.read_text())
        except (OSError, ValueError) as error:
            raise LehdError(f"{self._facts_path}: not readable ({error}); it may be deleted") from None
        return found

    def _load(self, name: str) -> TestSet:
        test = self.comparison.test
        path = self.sets / f"{name}.npz"
        if not path.exists():
            solver, seconds = ("hgs", 3.0) if name.startswith("cvrp") else ("fast-tsp", 0.03)
            make_set(name, self.sets, solver, seconds, watch=_say_each(self.tell, name), costs=self.data)
        found = load_set(path, test.limit)
        if test.reference is None:
            return found
        arrays = read_arrays(path)
        if test.reference not in arrays:
            raise LehdError(f"{path}: no array {test.reference} to measure against")
        return replace(found, reference=arrays[test.reference][: len(found.instances)].tolist())

    def _run_of(self, name: str, test_set: TestSet, stop: Stop, watch: BenchWatch) -> SetRun:
        weights = self.folder / name / WEIGHTS
        options = Options(self.comparison.test.rrc, weights, self.comparison.test.limit, self.device, stop=stop)
        return SetRun(test_set, options, Store(self.folder / name / RESULTS), watch)

    def _measure(self, name: str, test_set: TestSet, stop: Stop) -> None:
        self._run_of(name, test_set, stop, self.bench_watch or PrintSummaries()).run()

    def table(self) -> str:
        """Gap in per cent of every run, row by row of methods, set by set; and how long each was trained."""
        facts = self._facts()
        test = self.comparison.test
        rows = [["run", "method", *(f"{name} %" for name in test.sets), "trained s", "Mdecisions"]]
        for name in self.comparison.runs:
            if facts.get(name, {}).get("progress", 0) < 1:
                continue
            found: dict[str, dict[str, Summary]] = {}
            for set_name in test.sets:
                records = self._run_of(name, self._load(set_name), Stop(), BenchWatch()).records()
                for summary in summarise(records):
                    found.setdefault(summary.label, {})[set_name] = summary
            for number, (method, by_set) in enumerate(found.items()):
                gaps = [_gap(by_set.get(set_name)) for set_name in test.sets]
                trained = [f"{facts[name]['seconds']:.0f}", f"{facts[name]['decisions'] / 1e6:.1f}"]
                rows.append([name, method, *gaps, *(trained if number == 0 else ["", ""])])
        return lay_out(rows) + self._labels()

    def _labels(self) -> str:
        test = self.comparison.test
        if test.labels is None or test.labels_reference is None:
            return ""
        gap = gap_to_reference(read_label_file(self.data / test.labels), self.data / test.labels_reference)
        return f"\nlabels: {test.labels} {gap:.3f} % above {test.labels_reference}, instance by instance"


def _gap(summary: Summary | None) -> str:
    return "" if summary is None or summary.gap is None else f"{summary.gap:.4f}"


def _say_each(tell: Callable[[str], None], name: str) -> Callable[[int, int], None]:
    def say(done: int, total: int) -> None:
        if done % max(1, total // 10) == 0:
            tell(f"test set {name}: {done} of {total} references")

    return say


def main() -> None:
    parser = argparse.ArgumentParser(description="Train several models with the same budget and compare them.")
    parser.add_argument("config", type=Path)
    parser.add_argument("--output", type=Path, required=True, help="folder of the runs; goes on where it stopped")
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the label files")
    parser.add_argument("--sets", type=Path, default=Path(), help="folder of the test sets")
    parser.add_argument("--pause", type=float, default=float("inf"), help="stop after so many seconds")
    parser.add_argument("--device")
    parser.add_argument(
        "--set", nargs="*", action="extend", default=[], metavar="NAME=VALUE", help="settings that replace the file's"
    )
    options = parser.parse_args()
    try:
        comparison = make_comparison(read_table(options.config, options.set), options.config)
        run = Compare(
            comparison, options.output, options.data, options.sets, options.device, PrintLines(), pause=options.pause
        )
        complete = run.run()
        print(run.table())
    except LehdError as error:
        sys.exit(f"lehd: {error}")
    print("all runs done" if complete else "paused: the same command goes on")


if __name__ == "__main__":
    main()
