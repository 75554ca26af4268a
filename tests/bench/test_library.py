import json
import subprocess
import sys

import pytest

from lehd.bench.library import find_cases, run_library, summary, tsplib_cases
from lehd.bench.sets import Options
from lehd.bench.store import Store
from lehd.bench.watch import Watch
from lehd.errors import LehdError
from lehd.io import read
from lehd.io.solution import read_solution
from tests.bench.test_store import record

SQUARE = """NAME : square
TYPE : TSP
DIMENSION : 4
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 10 0
3 10 10.4
4 0 10.4
EOF
"""
CROSS = """NAME : cross
TYPE : CVRP
DIMENSION : 3
EDGE_WEIGHT_TYPE : EUC_2D
CAPACITY : 1
NODE_COORD_SECTION
1 0 0
2 10 0
3 0 10
DEMAND_SECTION
1 0
2 1
3 1
DEPOT_SECTION
1
-1
EOF
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "square.tsp").write_text(SQUARE)
    (tmp_path / "optima.csv").write_text(
        "name,n,edge_weight_type,optimum,in_paper70\nsquare,4,EUC_2D,40,1\nlinhp318,318,EUC_2D,1,0\n"
    )
    (tmp_path / "A").mkdir()
    (tmp_path / "A" / "cross.vrp").write_text(CROSS)
    header = "set,name,n_customers,best_known,paper_reference,in_paper192\n"
    (tmp_path / "best_known.csv").write_text(header + "A,cross,2,32,20,1\n")
    return tmp_path


def run(cases, store=None, time_limit=None, **options):
    return run_library(cases, Options(device="cpu", **options), store or Store(), Watch(), time_limit)


@pytest.mark.parametrize("limits", [{"budgets": (3,)}, {"time_limit": 0.5}])
def test_both_conventions_of_a_gap(folder, limits):
    for square in run(find_cases("tsplib", folder), **limits):
        assert square.cost == 40
        assert square.gap == 0
        assert square.paper_gap == pytest.approx(100 * (40.8 / 40 - 1))  # unrounded against the rounded optimum
        assert (square.set, square.nodes) == ("<100", 4)
    for cross in run(find_cases("cvrplib", folder), **limits):
        assert cross.cost == 40
        assert cross.gap == pytest.approx(25)
        assert cross.paper_gap == pytest.approx(100)
        assert (cross.set, cross.nodes) == ("A", 2)


def test_budgets_and_what_is_there_already(folder, monkeypatch):
    cases = find_cases("tsplib", folder)
    store = Store(folder / "r.jsonl")
    budgets = [each.budget for each in run(cases, store, budgets=(2, 4)) + run(cases, store, time_limit=0.5)]
    assert budgets == ["greedy", "RRC 2", "RRC 4", "0.5 s"]
    monkeypatch.setattr("lehd.bench.sets.solve", lambda *_, **__: pytest.fail("it is there"))
    monkeypatch.setattr("lehd.bench.sets.run_curve", lambda *_, **__: pytest.fail("it is there"))
    again = Store(folder / "r.jsonl")
    assert len(run(cases, again, budgets=(2, 4)) + run(cases, again, time_limit=0.5)) == 4


def test_files_are_chosen_and_come_in_order_of_size(folder):
    lines = "name,n,edge_weight_type,optimum,in_paper70\nb,30,EUC_2D,1,0\na,20,EUC_2D,1,1\nc,9,EUC_2D,1,1\n"
    (folder / "optima.csv").write_text(lines)
    assert [case.path.stem for case in find_cases("tsplib", folder)] == ["c", "a", "b"]
    assert [case.path.stem for case in find_cases("tsplib", folder, most_nodes=20, paper=True)] == ["c", "a"]
    assert [case.path.stem for case in find_cases("tsplib", folder, names=["b"])] == ["b"]
    with pytest.raises(LehdError, match="d of this size"):
        find_cases("tsplib", folder, names=["b", "d"])


def test_solutions_that_pictures_need_are_kept(folder):
    run(find_cases("tsplib", folder), budgets=(2,), solutions=folder / "kept", show=("square",))
    assert sorted(path.name for path in (folder / "kept").iterdir()) == ["square.RRC 2.tour", "square.greedy.tour"]
    read_solution(folder / "kept" / "square.greedy.tour", read(folder / "square.tsp"))


def test_groups_by_size_beside_the_papers():
    def file(group, gap, paper_gap=None):
        paper = {} if paper_gap is None else {"paper_reference": 100.0, "paper_cost": 100 + paper_gap}
        return record(f"{group}{gap}", cost=100 + gap, reference=100.0, bench="tsplib", set=group, **paper)

    lines = summary("tsplib", [file("<100", 1.0, 2.0), file("<100", 3.0), file(">1k", 8.0, 5.0)]).splitlines()
    assert lines[0] == "lehd greedy, cpu, 1 thread, weights unknown:"
    assert lines[4].startswith("| <100 | 2 | 2.000 | 1 of 6 | 2.000 | 2.00 | 0.792 |")
    assert lines[5].startswith("| >1k | 1 | 8.000 | 1 of 22 | 5.000 | 2.00 | 63.810 |")
    assert lines[6].startswith("| all | 3 | 4.000 | 2 of 70 | 3.500 | 2.00 | 26.439 |")


def test_the_command_writes_records_and_a_table(folder):
    command = [sys.executable, "-m", "lehd.bench.library", "tsplib", folder, "--rrc", "0", "--device", "cpu"]
    done = subprocess.run([*command, "--output", folder / "r.jsonl"], text=True, capture_output=True, check=True)
    assert "| <100 | 1 | 0.0000 |" in done.stdout
    assert json.loads((folder / "r.jsonl").read_text())["instance"] == "square"


def test_a_missing_list_is_named(tmp_path):
    with pytest.raises(LehdError, match=r"optima\.csv"):
        list(tsplib_cases(tmp_path))
