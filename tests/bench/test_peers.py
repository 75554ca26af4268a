import itertools
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lehd import distance
from lehd.bench import rivals
from lehd.bench.items import Item, find_items
from lehd.bench.peers import Options, Race
from lehd.bench.peers_table import peers_table
from lehd.bench.rivals import RIVALS, Rival, Work
from lehd.bench.store import Store
from lehd.bench.watch import Watch
from lehd.errors import LehdError
from lehd.io import read
from lehd.labels.solvers import Task, check_routes
from lehd.types import Instances
from tests.bench.test_library import CROSS, SQUARE
from tests.bench.test_store import record

NINE = np.stack(np.meshgrid(np.arange(3.0), np.arange(3.0)), 2).reshape(9, 2)
LOADS = np.array([0, *[1] * 8])


@pytest.mark.parametrize(
    ("name", "problem"),
    [(name, problem) for name, rival in RIVALS.items() if rival.package for problem in rival.problems],
)
@pytest.mark.parametrize("rounded", [False, True])
def test_every_solver_solves(name, problem, rounded):
    rival = RIVALS[name]
    if rival.version() is None:
        pytest.skip(f"{rival.distribution} is not installed")
    apart = np.linalg.norm(NINE[:, None] - NINE, axis=2)
    cvrp = problem == "CVRP"
    work = Work(
        coords=NINE,
        distances=np.rint(apart) if rounded else apart,
        rounded=rounded,
        plain=not rounded,
        demands=LOADS if cvrp else None,
        capacity=4 if cvrp else None,
        seconds=0.1,
    )
    routes = rival.solve(work)
    check_routes(Task(work.coords, work.demands, work.capacity), routes)
    stops = [[0, *route, 0] if cvrp else [*route, route[0]] for route in routes]
    length = sum(work.distances[a, b] for route in stops for a, b in itertools.pairwise(route))
    # Found by trying everything. A diagonal step is 1 where it is rounded.
    best = {"TSP": (8 + 2**0.5, 9), "CVRP": (8 + 3 * 2**0.5, 12)}[problem][rounded]
    assert length == pytest.approx(best)


@pytest.mark.parametrize("name", [name for name, rival in RIVALS.items() if rival.package and "TSP" in rival.problems])
def test_distances_count_not_positions(name):
    """Nodes on a line, whose distances are steps along a ring that has them in another order."""
    if RIVALS[name].version() is None:
        pytest.skip(f"{RIVALS[name].distribution} is not installed")
    place = np.argsort([0, 3, 6, 2, 5, 1, 4])
    apart = np.abs(place[:, None] - place)
    steps = np.minimum(apart, 7 - apart)
    line = np.stack([np.arange(7.0), np.zeros(7)], 1)
    (tour,) = RIVALS[name].solve(Work(line, steps.astype(float), True, False, None, None, 0.1))
    assert steps[tour, np.roll(tour, -1)].sum() == 7


# A stand-in for LKH and Concorde: it keeps the problem it was given, and answers with the nodes in their order.
PROGRAM = """#!{python}
import pathlib, shutil, sys
shutil.copy("problem.tsp", "{copy}")
pathlib.Path("found.tour").write_text("TOUR_SECTION\\n" + "\\n".join(map(str, range(1, 8))) + "\\n-1\\nEOF\\n")
pathlib.Path("found.sol").write_text("7 0 1 2 3 4 5 6")
"""


@pytest.mark.parametrize("name", ["LKH", "Concorde"])
@pytest.mark.parametrize("rule", ["EUCLIDEAN", "EUC_2D", "GEO"])
def test_programs_are_given_the_distances_of_the_instance(tmp_path, name, rule):
    program, copy = tmp_path / "program", tmp_path / "copy.tsp"
    program.write_text(PROGRAM.format(python=sys.executable, copy=copy))
    program.chmod(0o755)
    coords = torch.from_numpy(np.random.default_rng(0).random((1, 7, 2)) * 40)
    instance = Instances(coords, getattr(distance, rule))
    options = Options(binaries={name: program}, device="cpu")
    work = Race([], options, Store(), Watch())._work(name, Item("set", "one", instance, None), 0.1)
    assert RIVALS[name].solve(work) == [list(range(7))]
    assert ("EXPLICIT" in copy.read_text()) == (rule != "EUCLIDEAN")
    given, (a, b) = read(copy), torch.combinations(torch.arange(7)).T[:, None]
    got, wanted = given.distance(a, b).double(), instance.distance(a, b).double()
    torch.testing.assert_close(got * (wanted.max() / got.max()), wanted, rtol=1e-4, atol=0)


def test_programs_are_run_where_the_user_has_them(tmp_path):
    script = f"""#!{sys.executable}
import pathlib
pathlib.Path("found.tour").write_text("TOUR_SECTION\\n" + "\\n".join(map(str, range(1, 10))) + "\\n-1\\nEOF\\n")
"""
    program = tmp_path / "lkh"
    program.write_text(script)
    program.chmod(0o755)
    work = Work(NINE, np.ones((9, 9)), False, True, None, None, 0.1, binary=program)
    assert RIVALS["LKH"].solve(work) == [list(range(9))]


@pytest.fixture
def data(tmp_path):
    (tmp_path / "uniform").mkdir()
    coords = np.random.default_rng(0).random((4, 15, 2))
    np.savez(tmp_path / "uniform" / "small.npz", coords=coords, ref_cost=np.array([3.0, 4.0, 3.5, 3.5]))
    (tmp_path / "tsplib").mkdir()
    (tmp_path / "tsplib" / "square.tsp").write_text(SQUARE)
    (tmp_path / "tsplib" / "optima.csv").write_text("name,n,optimum,in_paper70\nsquare,4,40,1\n")
    (tmp_path / "cvrplib" / "A").mkdir(parents=True)
    (tmp_path / "cvrplib" / "A" / "cross.vrp").write_text(CROSS)
    header = "set,name,n_customers,best_known,paper_reference,in_paper192\n"
    (tmp_path / "cvrplib" / "best_known.csv").write_text(header + "A,cross,2,32,20,1\n")
    return tmp_path


def in_order(work):
    if work.demands is None:
        return [list(range(len(work.coords)))]
    return [[node] for node in range(1, len(work.coords))]


@pytest.fixture
def rivals_at_hand(monkeypatch):
    """One that is bad, one that fails, one that cheats and one that is missing."""

    def fail(work):
        raise RuntimeError("no luck")

    both = ("TSP", "CVRP")
    stand_ins = {
        "naive": Rival(in_order, both, "numpy", "numpy"),
        "unlucky": Rival(fail, both, "numpy", "numpy"),
        "cheat": Rival(lambda work: [[1, 2]], both, "numpy", "numpy"),
        "absent": Rival(fail, both, "no_such_package", "no-such-package"),
        "program": Rival(fail, ("TSP",), None, "--program"),
    }
    monkeypatch.setattr(rivals, "RIVALS", stand_ins)
    monkeypatch.setattr("lehd.bench.peers.RIVALS", stand_ins)
    return ("lehd", *stand_ins)


def race(data, solvers, store=None, **options):
    items = find_items(data, ["small"], 3, ["square", "cross"])
    settings = Options(seconds=(0.2,), solvers=solvers, device="cpu", **options)
    return Race(items, settings, store or Store(), Watch())


def test_all_solvers_meet_the_same_instances(data, rivals_at_hand, tmp_path):
    store = Store(tmp_path / "r.jsonl")
    running = race(data, rivals_at_hand, store)
    records = running.run()
    assert running.missing == {
        "absent": "not installed (pip install no-such-package)",
        "program": "no program given (--program PATH)",
    }
    found = {(record.method, record.set, record.instance): record for record in records}
    assert len(found) == 4 * 5  # four that ran, on three, one and one instances
    assert found["naive", "TSPLIB", "square"].cost == 40
    assert found["naive", "CVRPLIB A", "cross"].gap == pytest.approx(25)
    assert all(0 <= record.cpu_seconds < 2 for record in records if record.cost is not None)
    assert found["lehd", "small", "0"].cost <= found["naive", "small", "0"].cost
    assert "no luck" in found["unlucky", "small", "2"].error
    assert "visit every node" in found["cheat", "small", "0"].error
    again = race(data, ("lehd", "naive"), Store(tmp_path / "r.jsonl"))
    again._lehd = again._rival = lambda *_: pytest.fail("it is there")
    assert len(again.run()) == 10

    lines = peers_table(records, running.missing).splitlines()
    assert lines[0].startswith("| solver | seconds | on | CVRPLIB A (CVRP): gap % (s each) |")
    naive = next(line for line in lines if line.startswith("| naive | 0.2 s | cpu, 1 core |"))
    assert "| **25.000** (" in naive  # as good as lehd
    assert any(line.startswith("| unlucky | 0.2 s | cpu, 1 core | failed |") for line in lines)
    assert "| absent | not installed (pip install no-such-package) | - | - | - | - |" in lines


def test_throughput_solves_a_set_at_once(data, rivals_at_hand):
    records = race(data, ("lehd", "naive"), cores=2, throughput=True).run()
    together = [record for record in records if record.set == "small"]
    assert {(record.method, record.batch, record.budget) for record in together} == {
        ("lehd", 3, "0.2 s throughput"),
        ("naive", 2, "0.2 s throughput"),
    }
    lehd = [record.seconds for record in together if record.method == "lehd"]
    assert sum(lehd) <= 0.2 * 2 + 0.2  # three instances on two cores take the others two rounds


def test_a_search_that_was_stopped_is_no_measurement(data, monkeypatch):
    def stopped(instance, **settings):
        return SimpleNamespace(interrupted="time_limit" in settings, cost=40, seconds=0.0, iterations=1)

    monkeypatch.setattr("lehd.bench.peers.solve", stopped)
    store = Store()
    options = Options(seconds=(60,), solvers=("lehd",), device="cpu")
    with pytest.raises(KeyboardInterrupt):
        Race(find_items(data, [], 1, ["square"]), options, store, Watch()).run()
    assert not store.found


def test_instances_alone_have_one_core_each(data, rivals_at_hand, monkeypatch):
    threads = []

    def solve(instance, **settings):
        threads.append(torch.get_num_threads())
        return SimpleNamespace(interrupted=False, cost=40, seconds=0.0, iterations=1)

    monkeypatch.setattr("lehd.bench.peers.solve", solve)
    options = Options(seconds=(0.1,), solvers=("lehd", "naive"), device="cpu", cores=2)
    records = Race(find_items(data, [], 1, ["square"]), options, Store(), Watch()).run()
    assert set(threads) == {1}
    assert [record.device for record in records] == ["cpu, 1 core"] * 2


def test_small_instances_come_first(data):
    items = find_items(data, ["small"], 2, ["cross", "square"])
    large = replace(items[2], instance=items[0].instance.rows(slice(0, 1)), name="large", set="TSPLIB")
    groups = Race([large, *items], Options(device="cpu"), Store(), Watch())._sets()
    assert [[item.name for item in group] for group in groups] == [["cross"], ["square", "large"], ["0", "1"]]


def cells_of(text, solver):
    return [line.strip("| ").split(" | ")[3:] for line in text.splitlines() if line.startswith(f"| {solver} |")]


def test_a_cell_says_how_many_instances_it_is_about():
    records = [record(str(row), bench="peers", budget="1 s") for row in range(10)]
    records += [record(str(row), bench="peers", budget="60 s") for row in range(2)]
    records += [record("2", bench="peers", budget="60 s", cost=None, error="no luck")]
    text = peers_table(records)
    assert text.startswith("| solver | seconds | on | small (TSP): gap % (s each) |")
    assert cells_of(text, "lehd") == [["**10.000** (2s, 10 instances)"], ["**10.000** (2s, 3 instances, 1 failed)"]]


def test_what_reads_the_same_is_as_good():
    costs = {"lehd": 10 * (1 + 1e-12), "HGS": 10 * (1 - 1e-12), "PyVRP": 10.0, "VROOM": 10.001}
    records = [record("0", cost, "1 s", bench="peers", method=name) for name, cost in costs.items()]
    bold = {name: "**" in cells_of(peers_table(records), name)[0][0] for name in costs}
    assert bold == {"lehd": True, "HGS": True, "PyVRP": True, "VROOM": False}


def test_every_device_has_its_row():
    records = [record("0", 11.0, "1 s", bench="peers"), record("0", 10.0, "1 s", bench="peers", device="NVIDIA H200")]
    assert cells_of(peers_table(records), "lehd") == [["10.000 (2s, 1 instance)"], ["**0.0000** (2s, 1 instance)"]]


def test_wishes_that_cannot_be_met(data):
    with pytest.raises(LehdError, match="no solver ant"):
        race(data, ("ant",))
    with pytest.raises(LehdError, match="lists nowhere"):
        find_items(data, [], 1, ["nowhere"])
    with pytest.raises(LehdError, match="nothing to solve"):
        find_items(data, [], 1, [])
