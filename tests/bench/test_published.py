"""The paper's numbers: some by heart, and all against the paper's source where it is at hand."""

import os
import re
from pathlib import Path

import pytest

from lehd.bench.published import Cell, paper_tables

DATA = os.environ.get("LEHD_DATA", "")
SOURCES = sorted(Path(DATA).parent.glob("paper/*.txt")) if DATA else []
TIME = re.compile(r"[0-9.]+[smh]")


@pytest.mark.parametrize(
    ("table", "row", "column", "cell"),
    [
        ("uniform_tsp", "LEHD RRC 1000", "TSP1000", Cell("0.719", "7h")),
        ("uniform_tsp", "EAS", "TSP1000", Cell("-")),
        ("uniform_tsp", "Att-GCN+MCTS*", "TSP500", Cell("2.536", "6m")),
        ("uniform_cvrp", "HGS", "CVRP1000", Cell("-2.162", "5.3h")),
        ("tsplib", ">1k", "LEHD greedy", Cell("11.267")),
        ("tsplib", ">1k", "files", Cell("22")),
        ("cvrplib", "X", "LEHD RRC 1000", Cell("3.511")),
        ("pomo_supervised", "POMO augx8 SL", "TSP500", Cell("20.418")),
        ("training_methods", "RL", "TSP50", Cell("5.372")),
        ("sampling_and_rrc", "POMO augx8 sample 100", "TSP1000", Cell("82.015", "117h")),
        ("so_mixed", "SO-mixed", "TSP1000", Cell("2.800", "56m")),
        ("h_tsp", "H-TSP with LKH-3", "TSP1000", Cell("4.06", "7.5m")),
        ("normalization_lehd", "IN", "TSP1000", Cell("222.730")),
        ("normalization_pomo", "w/o", "TSP200", Cell("4.990")),
        ("ortools_labels", "LEHD RRC 500", "CVRP100", Cell("2.525", "1.4h")),
        ("reinforcement", "LEHD-RL RRC 200", "TSP100", Cell("0.983", "26m")),
        ("self_improved", "LEHD-SI RRC 200", "TSP1000", Cell("1.721", "10.5h")),
    ],
)
def test_golden_values(table, row, column, cell):
    assert paper_tables()[table].cell(row, column) == cell


def test_there_are_all_twelve_tables_of_results():
    assert sorted({table.number for table in paper_tables().values()}) == list(range(1, 13))
    for table in paper_tables().values():
        assert all(len(cells) == len(table.columns) for cells in table.rows.values()), table.name


def printed(block):
    """Gaps and times of a LaTeX table, in the order in which they are printed."""
    body = block[block.index("\\begin{tabular}") :]
    cells = re.split(r"&|\\\\", re.sub(r"\\textbf\{([^}]*)\}", r"\1", body).replace("\\%", "%"))
    words = [" ".join(cell.split()).removesuffix("\\hline").strip() for cell in cells]
    return [word.rstrip("%") for word in words if word.endswith("%") or word == "-" or TIME.fullmatch(word)]


@pytest.mark.skipif(not SOURCES, reason="the paper's source does not lie beside LEHD_DATA")
def test_every_number_is_the_papers():
    text = SOURCES[0].read_text()
    blocks = re.findall(r"\\begin\{table\}.*?\\end\{table\}", text, re.DOTALL)
    seen = 0
    for block in blocks:
        label = re.search(r"\\label\{(.*?)\}", block)[1]
        tables = [table for table in paper_tables().values() if table.label == label]
        if label == "appendix: Licenses":
            assert not tables
            continue
        ours = []
        for table in tables:
            for cells in table.rows.values():
                for column, cell in zip(table.columns, cells, strict=True):
                    ours += [] if column == "files" else [cell.gap, *([cell.time] if cell.time else [])]
                    ours += ["-"] if cell.gap == "-" else []  # a missing result is printed as a missing time too
        assert ours == printed(block), label
        seen += len(ours)
    assert seen > 600
