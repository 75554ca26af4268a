import json
import subprocess
import sys

import pytest

from lehd.bench.library import cvrplib_cases, measure, summary, tsplib_cases
from lehd.errors import LehdError

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


def test_both_conventions_of_a_gap(folder):
    (square,) = tsplib_cases(folder)
    record = measure(square, rrc=0)
    assert record["cost"] == 40
    assert record["gap"] == 0
    assert record["paper_gap"] == pytest.approx(100 * (40.8 / 40 - 1))  # unrounded against the rounded optimum
    (cross,) = cvrplib_cases(folder)
    record = measure(cross, rrc=0)
    assert record["cost"] == 40
    assert record["gap"] == pytest.approx(25)
    assert record["paper_gap"] == pytest.approx(100)


def test_groups_by_size():
    records = [
        {"group": "<100", "gap": 1.0, "paper_gap": 2.0},
        {"group": "<100", "gap": 3.0},
        {"group": ">1k", "gap": 8.0, "paper_gap": 5.0},
    ]
    lines = summary("tsplib", records).splitlines()
    assert lines[2].startswith("| <100 | 2 | 2.000 | 1 | 2.000 | 0.792 |")
    assert lines[3].startswith("| >1k | 1 | 8.000 | 1 | 5.000 | 63.81 |")
    assert lines[4].startswith("| all | 3 | 4.000 | 2 | 3.500 | 26.439 |")


def test_the_command_writes_records_and_a_table(folder):
    command = [
        sys.executable,
        "-m",
        "lehd.bench.library",
        "tsplib",
        folder,
        "--rrc",
        "0",
        "--output",
        folder / "r.jsonl",
    ]
    done = subprocess.run(command, text=True, capture_output=True, check=True)
    assert "| <100 | 1 | 0.000 |" in done.stdout
    assert json.loads((folder / "r.jsonl").read_text())["instance"] == "square"


def test_a_missing_list_is_named(tmp_path):
    with pytest.raises(LehdError, match=r"optima\.csv"):
        list(tsplib_cases(tmp_path))
