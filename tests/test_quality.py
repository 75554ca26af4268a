"""What the shipped weights reach on benchmark files in ten seconds of one CPU core. Run by `make soak`."""

import os
from pathlib import Path
from statistics import mean

import pytest

from lehd.bench.library import cvrplib_cases, run_library, tsplib_cases
from lehd.bench.sets import Options
from lehd.bench.store import Store
from lehd.bench.watch import Watch

DATA = os.environ.get("LEHD_DATA")
pytestmark = [pytest.mark.soak, pytest.mark.skipif(DATA is None, reason="LEHD_DATA names no folder of benchmark files")]


class Tell(Watch):
    def measured(self, records):
        for record in records:
            print(f"{record.instance:12} {record.gap:7.3f} % after {record.iterations} iterations", flush=True)


def mean_gap(cases):
    records = run_library(cases, Options(device="cpu"), Store(), Tell(), time_limit=10)
    gap = mean(record.gap for record in records)
    print(f"mean of {len(records)}: {gap:.3f} %")
    return gap


def test_small_tsplib_files_in_ten_seconds():
    folder = Path(DATA or "") / "tsplib"
    plane = [case for case in tsplib_cases(folder) if case.nodes <= 200 and "EUC_2D" in case.path.read_text()]
    assert len(plane) > 25
    assert mean_gap(plane) <= 2


def test_small_cvrplib_files_in_ten_seconds():
    cases = [case for case in cvrplib_cases(Path(DATA or "") / "cvrplib") if case.group in "AX" and case.nodes <= 200]
    assert mean_gap(cases[::2]) <= 5
