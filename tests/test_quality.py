"""What the shipped weights reach on benchmark files in ten seconds of one CPU core. Run by `make soak`."""

import csv
import os
from pathlib import Path

import pytest

import lehd

DATA = os.environ.get("LEHD_DATA")
needs_data = pytest.mark.skipif(DATA is None, reason="LEHD_DATA names no folder of benchmark files")


def table(name):
    return list(csv.DictReader((Path(DATA or ".") / name).read_text().splitlines()))


def mean_gap(cases, seconds):
    """Mean over (file, reference) of the gap in per cent, by each file's own distance rule."""
    gaps = []
    for path, reference in cases:
        result = lehd.solve(lehd.read(path), time_limit=seconds, device="cpu")
        gaps.append((result.cost / reference - 1) * 100)
        print(f"{path.stem:12} {result.cost:9} {gaps[-1]:7.3f} % after {result.iterations} iterations", flush=True)
    print(f"mean of {len(gaps)}: {sum(gaps) / len(gaps):.3f} %")
    return sum(gaps) / len(gaps)


@pytest.mark.soak
@needs_data
def test_small_tsplib_files_in_ten_seconds():
    cases = [
        (Path(DATA) / "tsplib" / f"{row['name']}.tsp", int(row["optimum"]))
        for row in table("tsplib/optima.csv")
        if row["edge_weight_type"] == "EUC_2D" and int(row["n"]) <= 200
    ]
    assert len(cases) > 25
    assert mean_gap(cases, 10) <= 2


@pytest.mark.soak
@needs_data
def test_small_cvrplib_files_in_ten_seconds():
    cases = [
        (Path(DATA) / "cvrplib" / row["set"] / f"{row['name']}.vrp", int(row["best_known"]))
        for row in table("cvrplib/best_known.csv")
        if row["set"] in "AX" and int(row["n_customers"]) <= 200
    ]
    assert mean_gap(cases[::2], 10) <= 5
