import gzip
import subprocess
import sys

import numpy as np
import pytest

from lehd.bench.library import find_cases, run_library
from lehd.bench.pictures import draw_all, gap_over_size, gap_over_time, solvers_over_time, tours
from lehd.bench.published import paper_tables
from lehd.bench.report import Results, compare_files, read_results, report, uniform_table
from lehd.bench.sets import Options
from lehd.bench.store import Store
from lehd.bench.summary import summarise
from lehd.bench.watch import Watch
from lehd.errors import LehdError
from tests.bench.test_library import SQUARE
from tests.bench.test_store import record


def uniform(nodes, budget, gap, **changes):
    return [
        record(str(row), cost=10 + gap / 10, budget=budget, nodes=nodes, set=f"tsp{nodes}", weights="abc", **changes)
        for row in range(2)
    ]


MEASURED = [
    *uniform(200, "greedy", 2.0),
    *uniform(200, "RRC 100", 0.05),
    *uniform(10_000, "greedy", 7.0),
]


def rows_of(text, start):
    return [line for line in text.splitlines() if line.startswith(start)]


def test_several_seeds_are_one_row_with_the_mean_of_each_instance():
    def seed(number, *costs):
        same = {"budget": "RRC 50", "nodes": 200, "set": "tsp200", "seed": number}
        return [record(str(row), cost=cost, **same) for row, cost in enumerate(costs)]

    once = summarise(seed(0, 11.0, 12.0))
    (both,) = summarise([*seed(0, 11.0, 12.0), *seed(7, 13.0, 12.0)])
    assert (once[0].instances, once[0].seeds, both.instances, both.seeds) == (2, 1, 2, 2)
    assert both.cost == pytest.approx(12.0)
    assert both.gap == pytest.approx(20.0)
    assert both.standard_error == pytest.approx(5.0)  # gaps of 15 and 25 %; the means of both instances are 12
    assert once[0].standard_error > 0
    assert both.seconds == once[0].seconds
    (row,) = rows_of(uniform_table(paper_tables()["uniform_tsp"], [both]), "| lehd")
    assert "20.000 ± 5.000 (4s, 2, 2 seeds)" in row
    (some,) = summarise([*seed(0, 11.0, 12.0), *seed(7, 13.0)])
    assert (some.seeds, some.standard_error) == (1, pytest.approx(0.0))  # not all instances have more
    # What one seed failed on is another's.
    (rest,) = summarise([*seed(0, None, 12.0), *seed(7, 13.0, None)])
    assert (rest.cost, rest.failed) == (pytest.approx(12.5), 0)


def test_measured_and_published_rows_of_a_table_are_told_apart():
    text = uniform_table(paper_tables()["uniform_tsp"], summarise(MEASURED))
    assert "| method |  | TSP100 | TSP200 | TSP500 | TSP1000 | TSP10000 |" in text
    on = "measured, cpu, 1 thread, weights abc"
    assert rows_of(text, "| lehd") == [
        f"| lehd greedy | {on} | - | 2.000 ± 0.0000 (4s, 2) | - | - | 7.000 ± 0.0000 (4s, 2) |",
        f"| lehd RRC 100 | {on} | - | 0.0500 ± 0.0000 (4s, 2) | - | - | - |",
    ]
    published = rows_of(text, "| LEHD RRC 1000")
    assert published == [
        "| LEHD RRC 1000 | published | 0.0016 (2.2h) | 0.0182 (10.5m) | 0.167 (1.2h) | 0.719 (7h) | - |"
    ]
    assert "TSP200 is tsp200" in text
    # Other tables on the same sets take the budgets they have a row for.
    text = uniform_table(paper_tables()["so_mixed"], summarise([*MEASURED, *uniform(200, "RRC 300", 1.0)]))
    assert [line.split(" | ")[0] for line in rows_of(text, "| lehd")] == ["| lehd greedy", "| lehd RRC 100"]
    # Or that say in other words what they are about.
    text = uniform_table(paper_tables()["normalization_lehd"], summarise(MEASURED))
    assert [line.split(" | ")[0] for line in rows_of(text, "| lehd")] == ["| lehd greedy"]
    assert rows_of(text, "| w/o")


def test_a_report_of_everything(tmp_path):
    library = record("pr76", bench="tsplib", set="<100", nodes=76, paper_cost=11.2, paper_reference=10.0)
    peer = record("0", bench="peers", method="HGS", budget="1 s", version="0.1.0")
    many = [record(str(row), bench="peers", method="HGS", budget="1 s throughput") for row in range(3)]
    (tmp_path / "a.jsonl").write_text("".join(each.line() + "\n" for each in [*MEASURED, library, peer, *many]))
    again = record("pr76", bench="tsplib", set="<100", nodes=76, cost=10.5)  # measured twice: the later file counts
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress((again.line() + "\n").encode()))
    (tmp_path / "notes.md").write_text("The machine was busy.\n")
    results = read_results([tmp_path])
    assert len(results.records) == len(MEASURED) + 5
    text = report(results, {"Tours": "tours.png"})
    assert "| pr76 | 76 | greedy | 10.5 | 10 | 5.000 | - | 2.00 | cpu, 1 thread |" in text
    assert "| HGS | 1 s | cpu, 1 thread | **10.000** (2s, 1 instance) |" in text
    assert "| HGS | 1 s throughput | cpu, 1 thread | **10.000** (2s, 3 instances) |" in text
    assert "![Tours](tours.png)" in text
    assert "\n\nThe machine was busy.\n\n## Uniform" in text
    assert "`a.jsonl`, `b.jsonl.gz`" in text
    for table in paper_tables().values():
        if table.name not in ("tsplib", "cvrplib"):
            assert f"### {table.title}" in text
    (tmp_path / "empty").mkdir()
    with pytest.raises(LehdError, match="no results"):
        read_results([tmp_path / "empty"])


def test_models_trained_for_one_table_are_shown_there_alone(tmp_path):
    own = uniform(20, "RRC 100", 0.02) + uniform(100, "RRC 100", 1.5)
    (tmp_path / "reinforcement-gpu.jsonl").write_text("".join(each.line() + "\n" for each in own))
    (tmp_path / "tsplib-cpu.jsonl").write_text(record("pr76", bench="tsplib", set="<100", nodes=76).line() + "\n")
    results = read_results([tmp_path])
    assert [each.bench for each in results.records] == ["tsplib"]
    text = report(results)
    assert rows_of(text, "| lehd RRC") == [
        "| lehd RRC 100 | measured, cpu, 1 thread, weights abc | 0.0200 ± 0.0000 (4s, 2) | 1.500 ± 0.0000 (4s, 2) |"
    ]
    after = text.split("### LEHD trained by reinforcement learning on TSP20")[1]
    assert after.index("| lehd RRC 100 |") < after.index("| LEHD-RL RRC 100 | published |") < after.index("###")


def test_nothing_measured_is_said():
    text = report(Results())
    assert text.count("Not measured yet.") == 6


def test_the_module_compares_two_files(tmp_path):
    for name, cost in (("a", 10.0), ("b", 9.0)):
        Store(tmp_path / f"{name}.jsonl").add(record(str(row), cost=cost) for row in range(3))
    assert "-10.0000" in compare_files(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    command = [sys.executable, "-m", "lehd.bench.report", tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    done = subprocess.run(command, text=True, capture_output=True, check=True)
    assert "| small | TSP | lehd | greedy | 3 | -10.0000 | -10.0000 to -10.0000 | 3 | 0 | 0 |" in done.stdout


def lines_of(figure):
    return {line.get_label(): line for axes in figure.axes for line in axes.lines}


def test_pictures_show_the_records():
    elsewhere = uniform(200, "1 s", 9.0, bench="peers")  # of the same set, but not a point of the run
    curve = lines_of(gap_over_time(MEASURED + elsewhere))["tsp200, cpu, 1 thread, abc"]
    assert curve.get_ydata() == pytest.approx([2.0, 0.05])
    assert list(curve.get_xdata()) == [2.0, 2.0]
    dots = gap_over_size([record("a", bench="cvrplib", nodes=30), record("b", bench="cvrplib", nodes=50)])
    assert np.allclose(dots.axes[0].collections[0].get_offsets(), [[30, 10], [50, 10]])
    peers = [record(str(row), bench="peers", method=name, budget="1 s") for row in range(2) for name in ("lehd", "HGS")]
    assert lines_of(solvers_over_time(peers)).keys() == {"lehd", "HGS"}
    assert gap_over_time([]) is gap_over_size([]) is solvers_over_time([]) is None


def test_lines_join_points_of_the_same_instances():
    def peer(row, gap, budget, method="HGS"):
        return record(str(row), cost=10 + gap / 10, bench="peers", method=method, budget=budget)

    short = [peer(row, 10 * row, "1 s") for row in range(3)]
    failed = record("0", cost=None, bench="peers", method="VROOM", budget="1 s", error="no luck")
    figure = solvers_over_time([*short, peer(0, 5, "60 s"), peer(1, 7, "60 s"), peer(9, 50, "60 s"), failed])
    assert lines_of(figure)["HGS"].get_ydata() == pytest.approx([5, 6])  # of 0 and 1 alone
    assert figure.axes[0].get_title(loc="left") == "small TSP, 2 instances"
    assert lines_of(figure).keys() == {"HGS"}
    # Nobody is compared on instances that others had not.
    figure = solvers_over_time([*short, peer(1, 3, "1 s", "lehd")])
    assert {name: list(line.get_ydata()) for name, line in lines_of(figure).items()} == {
        "HGS": pytest.approx([10]),
        "lehd": pytest.approx([3]),
    }
    more = record("2", cost=20.0, budget="greedy", nodes=200, set="tsp200", weights="abc")
    searched = [
        record("0", cost=12.0, budget=each, nodes=200, set="tsp200", weights="abc") for each in ("60 of 300 s", "300 s")
    ]
    curves = lines_of(gap_over_time([*MEASURED, more, *searched]))
    assert curves["tsp200, cpu, 1 thread, abc"].get_ydata() == pytest.approx([2.0, 0.05])
    assert curves["tsp200, cpu, 1 thread, search, abc"].get_ydata() == pytest.approx([20, 20])


def test_tours_beside_the_reference(tmp_path):
    (tmp_path / "tsplib" / "tours").mkdir(parents=True)
    (tmp_path / "tsplib" / "square.tsp").write_text(SQUARE)
    (tmp_path / "tsplib" / "optima.csv").write_text("name,n,optimum,in_paper70\nsquare,4,40,1\n")
    tour = "TYPE : TOUR\nDIMENSION : 4\nTOUR_SECTION\n1\n3\n2\n4\n-1\nEOF\n"
    (tmp_path / "tsplib" / "tours" / "square.tour").write_text(tour)
    options = Options((2, 10), device="cpu", solutions=tmp_path / "kept", show=("square",))
    run_library(find_cases("tsplib", tmp_path / "tsplib"), options, Store(), Watch())
    (tmp_path / "kept" / "square.opt.tour").write_text("somebody else's\n")
    figure = tours("square", tmp_path, tmp_path / "kept")
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["reference: 48", "greedy: 40 (0.00 % above 40)", "RRC 10: 40 (0.00 % above 40)"]
    assert tours("cross", tmp_path, tmp_path / "kept") is None
    paths = draw_all(MEASURED, tmp_path / "pictures")
    assert [path.name for path in paths] == ["gap-over-time.png"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
