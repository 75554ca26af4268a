import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lehd.data.dataset import SHARD, draw_shard, load_labels
from lehd.errors import LehdError
from lehd.labels.pool import label, merge
from lehd.labels.solvers import KINDS, Solver, Task, check_routes, make_solver
from lehd.problems import of
from lehd.work.local import Pool


class Alone:
    """Every customer a route of its own; what is wrong with some instances is made up."""

    name, seconds, iterations = "alone", 0.5, None

    def __init__(self, trouble=()):
        self.trouble = dict(trouble)  # by the first coordinate of an instance

    def __call__(self, task):
        kind = self.trouble.get(float(task.coords[0, 0]))
        if kind == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "fail":
            raise RuntimeError("no idea")
        if task.demands is None:
            return [list(range(len(task.coords)))]
        return [[node] for node in range(1, len(task.coords))]


def test_hgs_labels_are_feasible_good_and_merge_into_one_file(tmp_path):
    pytest.importorskip("hygese")
    label("varied_cvrp", 8, range(2), tmp_path, make_solver("CVRP", seconds=0.003), Pool(2))
    assert merge(tmp_path, "varied_cvrp", 8, tmp_path / "all.npz") == 2 * SHARD
    labelled = load_labels(tmp_path / "all.npz")  # checks feasibility and costs
    assert len(labelled) == 2 * SHARD
    np.testing.assert_array_equal(labelled.instances.coords[SHARD:].numpy(), draw_shard("varied_cvrp", 8, 1).coords)
    instances = labelled.instances
    sweep = of(instances).cost(instances, of(instances).cheap_start(instances))
    assert (of(instances).cost(instances, labelled.solution) <= sweep + 1e-4).all()
    with np.load(tmp_path / "all.npz") as archive:
        assert archive["solver"].tolist() == ["hgs", "hgs"]
        assert archive["seconds"].tolist() == [0.003, 0.003]


@pytest.mark.parametrize("recipe", ["uniform_tsp", "shapes_tsp"])
def test_tsp_labels_are_shorter_than_a_cheap_start(tmp_path, recipe):
    pytest.importorskip("fast_tsp")
    label(recipe, 30, range(1), tmp_path, make_solver("TSP", seconds=0.01), Pool(2))
    merge(tmp_path, recipe, 30, tmp_path / "all.npz")
    labelled = load_labels(tmp_path / "all.npz")
    assert len(labelled) == SHARD
    instances = labelled.instances
    curve = of(instances).cost(instances, of(instances).cheap_start(instances))
    cost = of(instances).cost(instances, labelled.solution)
    assert (cost <= curve + 1e-5).float().mean() > 0.9  # on a busy machine a solver may get no time at all
    assert cost.mean() < 0.98 * curve.mean()


@pytest.mark.parametrize("recipe", ["uniform_tsp", "x_type_cvrp"])
def test_a_crash_or_a_failure_loses_its_instance_alone(tmp_path, recipe):
    coords = draw_shard(recipe, 6, 0).coords
    first = coords[:, 0, 0]  # of depots, some are alike
    lone = [row for row in range(SHARD) if (first == first[row]).sum() == 1][:3]
    solver = Alone({float(first[lone[0]]): "crash", float(first[lone[1]]): "crash", float(first[lone[2]]): "fail"})
    seen = []
    progress = label(recipe, 6, range(2), tmp_path, solver, Pool(2), watch=lambda now: seen.append(now.instances))
    assert seen == list(range(1, 2 * SHARD + 1))
    assert progress.failed == 3
    assert sum("no idea" in failure for failure in progress.failures) == 1
    assert sum("died" in failure for failure in progress.failures) == 2
    assert merge(tmp_path, recipe, 6, tmp_path / "all.npz") == 2 * SHARD - 3
    labelled = load_labels(tmp_path / "all.npz")
    kept = [row for row in range(SHARD) if row not in lone]
    np.testing.assert_array_equal(labelled.instances.coords[: SHARD - 3].numpy(), coords[kept])


def test_finished_shards_are_not_made_again(tmp_path):
    label("uniform_tsp", 5, range(1, 3), tmp_path, Alone(), Pool())
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    progress = label("uniform_tsp", 5, range(4), tmp_path, Alone(), Pool())
    assert (progress.shards, progress.total_shards, progress.instances) == (2, 2, 2 * SHARD)
    for path, data in before.items():
        assert path.read_bytes() == data
    late = label("uniform_tsp", 5, range(9), tmp_path, Alone(), Pool(), budget=-1)
    assert late.shards == 0


def test_a_solver_that_never_works_is_an_error(tmp_path):
    coords = draw_shard("uniform_tsp", 5, 0).coords
    with pytest.raises(LehdError, match="no idea"):
        label("uniform_tsp", 5, range(1), tmp_path, Alone({float(x): "fail" for x in coords[:, 0, 0]}), Pool())
    assert not list(tmp_path.glob("*.npz"))
    with pytest.raises(LehdError, match="no shard"):
        merge(tmp_path, "uniform_tsp", 5, tmp_path / "all.npz")
    with pytest.raises(LehdError, match="soup"):
        label("soup", 5, range(1), tmp_path, Alone(), Pool())


def test_a_solver_that_a_worker_lacks_is_not_held_against_instances(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "hygese", None)
    with pytest.raises(LehdError, match=r"lacks a package.*hygese"):
        label("uniform_cvrp", 5, range(1), tmp_path, Solver("hgs", 0.01), Pool(1))
    assert not list(tmp_path.glob("*.npz"))


def test_shards_from_before_solvers_were_recorded_merge_too(tmp_path):
    label("uniform_tsp", 5, range(2), tmp_path, Alone(), Pool())
    old = tmp_path / "uniform_tsp-5-000000.npz"
    with np.load(old) as archive:
        arrays = {name: archive[name] for name in archive.files if name not in ("solved", "solver", "seconds")}
    np.savez(old, **arrays)
    assert merge(tmp_path, "uniform_tsp", 5, tmp_path / "all.npz") == 2 * SHARD
    with np.load(tmp_path / "all.npz") as archive:
        assert archive["solver"].tolist() == ["unknown", "alone"]


def test_what_is_no_shard_is_named(tmp_path):
    label("uniform_tsp", 5, range(1), tmp_path, Alone(), Pool())
    path = tmp_path / "uniform_tsp-5-000000.npz"
    np.savez(path, nodes=np.zeros(3))
    with pytest.raises(LehdError, match=r"000000\.npz: the array 'cost' is missing"):
        merge(tmp_path, "uniform_tsp", 5, tmp_path / "all.npz")
    path.write_bytes(b"PK nothing")
    with pytest.raises(LehdError, match=r"000000\.npz: not a readable npz file"):
        merge(tmp_path, "uniform_tsp", 5, tmp_path / "all.npz")


def test_shards_are_counted_from_zero(tmp_path):
    with pytest.raises(LehdError, match="shard -1"):
        label("uniform_tsp", 5, range(-1, 2), tmp_path / "new", Alone(), Pool())
    assert not (tmp_path / "new").exists()


def test_answers_that_are_no_solutions_are_refused():
    task = Task(np.zeros((4, 2), np.float32), np.array([0, 5, 5, 5]), 10)
    check_routes(task, [[1, 2], [3]])
    for routes in ([[1, 2]], [[1, 2], [3, 3]], [[0, 1, 2], [3]], [[1, 2, 3]]):
        with pytest.raises(RuntimeError):
            check_routes(task, routes)


@pytest.mark.parametrize(
    ("problem", "name", "binary", "message"),
    [
        ("TSP", "hgs", None, "fast-tsp"),
        ("CVRP", "lkh", None, "no CVRP labels"),
        ("TSP", "lkh", None, "--binary"),
        ("TSP", "concorde", Path("/nowhere/concorde"), "/nowhere/concorde"),
        ("TSP", "fast-tsp", Path("/bin/true"), "--binary"),
        ("TSP", "magic", None, "magic"),
    ],
)
def test_solvers_that_are_not_there_are_refused(problem, name, binary, message):
    with pytest.raises(LehdError, match=message):
        make_solver(problem, name, binary=binary)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(KINDS, "hgs", KINDS["hgs"]._replace(package="not_a_package_at_all"))
    with pytest.raises(LehdError, match=r"lehd\[labels\]"):
        make_solver("CVRP")
    with pytest.raises(LehdError, match="positive"):
        make_solver("TSP", "fast-tsp", seconds=-1.0)


# A stand-in for both programs: it reads the problem file and answers with the nodes in order of their x.
PROGRAM = """#!{python}
import sys
lkh = sys.argv[1].endswith(".par")
settings = dict(line.split(" = ") for line in open(sys.argv[1]).read().splitlines()) if lkh else {{}}
text = open(settings["PROBLEM_FILE"] if lkh else sys.argv[-1]).read()
assert "EDGE_WEIGHT_TYPE : EUC_2D" in text
rows = text.split("NODE_COORD_SECTION")[1].split("EOF")[0].strip().splitlines()
order = [int(row.split()[0]) for row in sorted(rows, key=lambda row: int(row.split()[1]))]
if lkh:
    words = ["NAME : x", "TOUR_SECTION", *map(str, order), "-1", "EOF"]
    open(settings["OUTPUT_TOUR_FILE"], "w").write("\\n".join(words))
else:
    assert "-o" in sys.argv
    answer = [len(order), *(node - 1 for node in order)]
    open(sys.argv[sys.argv.index("-o") + 1], "w").write(" ".join(map(str, answer)))
sys.exit({code})
"""


@pytest.mark.parametrize("name", ["lkh", "concorde"])
def test_programs_of_the_user(tmp_path, name, monkeypatch):
    def program(code):
        path = tmp_path / f"program{code}"
        path.write_text(PROGRAM.format(python=sys.executable, code=code))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    coords = np.random.default_rng(0).random((9, 2), dtype=np.float32)
    solver = make_solver("TSP", name, binary=program(0))
    assert solver(Task(coords)) == [np.argsort(coords[:, 0]).tolist()]
    with pytest.raises(RuntimeError, match="code 3"):
        make_solver("TSP", name, binary=program(3))(Task(coords))
    monkeypatch.chdir(tmp_path)
    assert make_solver("TSP", name, binary=Path("./program0")).binary == solver.binary
    monkeypatch.chdir("/")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert make_solver("TSP", name, binary=Path("program0")).binary == solver.binary


def test_ortools_solves_both_problems():
    pytest.importorskip("ortools")
    rng = np.random.default_rng(0)
    coords, demands = rng.random((9, 2), dtype=np.float32), rng.integers(1, 10, 9)
    demands[0] = 0
    make_solver("CVRP", "ortools", 0.2)(Task(coords, demands, 20))  # checks its answer
    ((*tour,),) = make_solver("TSP", "ortools", 0.2)(Task(coords))
    assert sorted(tour) == list(range(9))


BARE = """
import sys
for name in ("typer", "rich", "matplotlib"):
    sys.modules[name] = None
from lehd.labels import pool
pool.main()
"""


def test_the_module_goes_on_after_a_kill(tmp_path):
    """The bare twin of `lehd label`, without what only the command line needs, stopped hard and started again."""
    pytest.importorskip("fast_tsp")
    words = [sys.executable, "-c", BARE, "uniform_tsp", str(tmp_path), "--customers", "12"]
    words += ["--shards", "0", "4", "--seconds", "0.005", "--processes", "2", "--merge", str(tmp_path / "all.npz")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("1/4 shards")
    process.kill()
    process.communicate()
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert f"{4 * SHARD} labels" in done.stdout
    assert len(load_labels(tmp_path / "all.npz")) == 4 * SHARD
