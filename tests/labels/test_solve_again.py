"""The instances of a label file solved again: never worse, and the old label where the solver fails."""

import pickle
import subprocess
import sys
from itertools import permutations, product

import numpy as np
import pytest
import torch

from lehd.data.dataset import SHARD, Labelled, draw_shard, load_labels
from lehd.data.foreign import write_plain
from lehd.data.label_file import NO_LABEL, fresh_instances, read_label_file
from lehd.errors import LehdError
from lehd.labels.improve import improve
from lehd.labels.makers import LEAST_PARTS, PART_SECONDS, by_solver
from lehd.labels.part_folder import merge_parts
from lehd.labels.parts import Settings, part_unit
from lehd.labels.pool import label, merge
from lehd.labels.solvers import Solver, make_solver
from lehd.problems import PROBLEMS, of
from lehd.types import Solution
from lehd.work.local import Pool
from tests.builders import cvrp, random_solution, tiny_model, tsp
from tests.labels.test_improve import by_the_model, costs, plain
from tests.labels.test_pool import Alone

NODES = 6


class Exact(Alone):
    """Shortest tours by trying all of them; what is wrong with some instances is made up."""

    name = "exact"

    def __call__(self, task):
        super().__call__(task)
        apart = np.linalg.norm(task.coords[:, None] - task.coords, axis=2)
        tours = [(0, *rest) for rest in permutations(range(1, len(task.coords)))]
        return [list(min(tours, key=lambda tour: apart[list(tour), list(tour[1:] + tour[:1])].sum()))]


def bad_tours(folder, count=12):
    """A file of random tours, and each instance's first coordinate, by which trouble is told."""
    instances = tsp(count, NODES)
    write_plain(Labelled(instances, random_solution(instances)), folder / "old.npz")
    return folder / "old.npz", load_labels(folder / "old.npz").instances.coords[:, 0, 0].tolist()


def solve_again(path, folder, solver, batch=5, engine=None, **options):
    file = read_label_file(path)
    maker = by_solver(file, solver, batch)
    progress = improve(maker, file, folder, engine=engine or Pool(1), **options)
    return progress, lambda target: merge_parts(folder, file, maker.name, target)


def lowest_costs(instances):
    """By trying all visiting orders, and for a CVRP all ways to cut them into routes."""
    problem, first = of(instances), of(instances).first_node
    length = instances.num_nodes - first
    cuts = [(False,) * length] if first == 0 else [(True, *rest) for rest in product((False, True), repeat=length - 1)]
    pairs = [*product(permutations(range(first, instances.num_nodes)), cuts)]
    every = Solution(torch.tensor([nodes for nodes, _ in pairs]), torch.tensor([via for _, via in pairs]))
    best = []
    for row in range(len(instances)):
        copies = instances.rows(torch.full((len(pairs),), row))
        cost = problem.cost(copies, every)
        if copies.demands is not None:
            routes = every.via_depot.cumsum(1)
            load = torch.zeros(len(pairs), length + 1, dtype=torch.long)
            load.scatter_add_(1, routes, copies.demands.gather(1, every.nodes))
            cost[(load > copies.capacity[:, None]).any(1)] = torch.inf
        best.append(cost.min())
    return torch.stack(best).double().numpy()


@pytest.mark.parametrize(
    ("make", "name", "limit", "package"),
    [(tsp, "fast-tsp", {"seconds": 0.002}, "fast_tsp"), (cvrp, "hgs", {"iterations": 50}, "hygese")],
)
def test_bad_labels_become_the_shortest_and_tell_their_maker(tmp_path, make, name, limit, package):
    pytest.importorskip(package)
    instances = make(12, 6)
    write_plain(Labelled(instances, random_solution(instances)), tmp_path / "old.npz")
    solver = make_solver(of(instances).name, name, **limit)
    progress, merged = solve_again(tmp_path / "old.npz", tmp_path / "parts", solver, engine=Pool(2))
    assert progress.complete
    assert merged(tmp_path / "new.npz") == 12
    old, new = load_labels(tmp_path / "old.npz"), load_labels(tmp_path / "new.npz")
    assert torch.equal(old.instances.coords, new.instances.coords)
    np.testing.assert_allclose(costs(new), lowest_costs(new.instances), rtol=1e-5)
    shorter = costs(new) < costs(old) - 1e-6
    assert 6 < shorter.sum() == progress.improved
    same = (old.solution.nodes == new.solution.nodes).all(1) & (old.solution.via_depot == new.solution.via_depot).all(1)
    assert (same.numpy() == ~shorter).all()  # what is not shorter stays as it was
    file = read_label_file(tmp_path / "new.npz")
    names = np.array(file.sources)[file.source]
    assert (names[shorter] == f"{name} " + ("0.002 s" if "seconds" in limit else "50 iterations")).all()
    assert (names[~shorter] == "unknown (old.npz)").all()
    again, merged = solve_again(tmp_path / "new.npz", tmp_path / "again", solver)
    assert again.improved == 0
    merged(tmp_path / "again.npz")
    with np.load(tmp_path / "new.npz") as first, np.load(tmp_path / "again.npz") as second:
        for array in first.files:
            np.testing.assert_array_equal(first[array], second[array])


def test_no_label_gets_longer_by_a_solver_that_knows_nothing(tmp_path):
    path = plain(tmp_path, cvrp)
    progress, merged = solve_again(path, tmp_path / "parts", Alone(), batch=20)
    merged(tmp_path / "new.npz")
    before, after = costs(load_labels(path)), costs(load_labels(tmp_path / "new.npz"))
    assert (after <= before).all()
    assert 0 <= progress.improved == (after < before - 1e-6).sum() < 50


def test_the_same_tour_from_elsewhere_is_not_shorter(tmp_path):
    path, _ = bad_tours(tmp_path)
    solve_again(path, tmp_path / "parts", Exact())[1](tmp_path / "best.npz")
    best = load_labels(tmp_path / "best.npz")
    turned = Solution(best.solution.nodes.roll(2, 1).flip(1), best.solution.via_depot)
    write_plain(Labelled(best.instances, turned), tmp_path / "turned.npz")
    progress, merged = solve_again(tmp_path / "turned.npz", tmp_path / "again", Exact())
    assert progress.improved == 0
    merged(tmp_path / "new.npz")
    assert torch.equal(load_labels(tmp_path / "new.npz").solution.nodes, turned.nodes)
    assert read_label_file(tmp_path / "new.npz").sources == ("unknown (turned.npz)",)


def test_where_the_solver_fails_or_crashes_the_old_label_stays(tmp_path):
    path, marks = bad_tours(tmp_path)
    solve_again(path, tmp_path / "well", Exact())[1](tmp_path / "well.npz")
    # Of the parts 0-4, 5-9 and 10-11 the first loses an instance, the second two and its worker.
    solver = Exact({marks[2]: "fail", marks[6]: "crash", marks[9]: "fail"})
    progress, merged = solve_again(path, tmp_path / "parts", solver, engine=Pool(2))
    assert progress.complete
    assert progress.unsolved == 3
    said = sorted(progress.reasons)
    assert [words.split(":")[0] for words in said] == ["instance 2", "instance 6", "instance 9"]
    assert ["no idea" in words for words in said] == [True, False, True]
    assert "died" in said[1]
    assert "3 not solved" in str(progress)
    assert merged(tmp_path / "new.npz") == 12
    old, well, new = (load_labels(each).solution.nodes for each in (path, tmp_path / "well.npz", tmp_path / "new.npz"))
    lost = torch.zeros(12, dtype=torch.bool)
    lost[[2, 6, 9]] = True
    assert torch.equal(new[lost], old[lost])
    assert torch.equal(new[~lost], well[~lost])
    assert not (well[lost] == old[lost]).all(1).any()
    file = read_label_file(tmp_path / "new.npz")
    assert (np.array(file.sources)[file.source[lost.numpy()]] == "unknown (old.npz)").all()


def test_parts_of_which_nothing_is_solved_are_left_to_a_later_run(tmp_path):
    path, marks = bad_tours(tmp_path)
    trouble = dict.fromkeys(marks[5:10], "fail") | {marks[11]: "crash", marks[10]: "fail"}
    progress, merged = solve_again(path, tmp_path / "parts", Exact(trouble))
    assert progress.parts == 1
    assert not progress.complete
    assert sorted(words.split(":")[0] for words in progress.failures) == ["part-000001", "part-000002"]
    assert any("no idea" in words for words in progress.failures)
    assert progress.troubles()[-1].startswith("2 parts left")
    assert merged(tmp_path / "new.npz") == 12
    new, old = load_labels(tmp_path / "new.npz").solution.nodes, load_labels(path).solution.nodes
    assert torch.equal(new[5:], old[5:])
    again, _ = solve_again(path, tmp_path / "parts", Exact())
    assert again.complete
    assert again.done_here == 7


def test_an_instance_alone_that_always_crashes_is_given_up(tmp_path):
    path, marks = bad_tours(tmp_path, 3)
    progress, merged = solve_again(path, tmp_path / "parts", Exact({marks[1]: "crash"}), batch=1)
    assert (progress.parts, len(progress.failures)) == (2, 1)
    assert merged(tmp_path / "new.npz") == 3


def test_instances_without_a_label_get_one_or_stay_without(tmp_path):
    coords = draw_shard("uniform_tsp", NODES, 1).coords
    trouble = {float(coords[row, 0, 0]): "fail" for row in (5, 6)}
    label("uniform_tsp", NODES, range(2), tmp_path, Alone(trouble), Pool(1))
    merge(tmp_path, "uniform_tsp", NODES, tmp_path / "old.npz")
    missing = [SHARD + 5, SHARD + 6]
    file = read_label_file(tmp_path / "old.npz")
    assert np.flatnonzero(~file.labelled).tolist() == missing

    trouble.pop(float(coords[5, 0, 0]))
    progress, merged = solve_again(tmp_path / "old.npz", tmp_path / "parts", Exact(trouble), batch=30)
    assert (progress.new, progress.unsolved, progress.instances) == (1, 1, 2 * SHARD - 2)
    assert np.isfinite(progress.before)
    assert "1 new label, 1 not solved" in str(progress)
    assert merged(tmp_path / "new.npz") == 2 * SHARD - 1
    new = read_label_file(tmp_path / "new.npz")
    assert np.flatnonzero(~new.labelled).tolist() == missing[1:]
    assert (new.costs() <= file.costs()).all()
    assert set(new.sources) == {"alone 0.5 s", "exact 0.5 s"}
    assert new.sources[new.source[missing[0]]] == "exact 0.5 s"
    assert new.source[missing[1]] == NO_LABEL
    assert len(load_labels(tmp_path / "new.npz")) == 2 * SHARD - 1


@pytest.mark.parametrize("recipe", ["uniform_tsp", "varied_cvrp"])
def test_a_file_without_any_label(tmp_path, recipe):
    np.savez(tmp_path / "old.npz", **fresh_instances(recipe, 5, range(1)).arrays)
    coords = draw_shard(recipe, 5, 0).coords
    solver = Alone({float(coords[7, 0, 0]): "fail"})
    none_yet, merged = solve_again(tmp_path / "old.npz", tmp_path / "parts", solver, batch=30, budget=-1)
    assert none_yet.parts == 0
    assert merged(tmp_path / "none.npz") == 0
    progress, merged = solve_again(tmp_path / "old.npz", tmp_path / "parts", solver, batch=30)
    assert (progress.new, progress.instances) == (SHARD - 1, 0)
    assert merged(tmp_path / "new.npz") == SHARD - 1
    assert read_label_file(tmp_path / "new.npz").sources == ("alone 0.5 s",)


def test_the_plain_layout_has_no_place_for_instances_without_a_label(tmp_path):
    instances = tsp(4, NODES)
    np.savez(tmp_path / "old.npz", coords=instances.coords.numpy().astype(np.float32))
    mark = float(read_label_file(tmp_path / "old.npz").instances.coords[2, 0, 0])
    progress, merged = solve_again(tmp_path / "old.npz", tmp_path / "parts", Exact({mark: "fail"}))
    assert progress.new == 3
    with pytest.raises(LehdError, match="1 instance without a label"):
        merged(tmp_path / "new.npz")
    progress, merged = solve_again(tmp_path / "old.npz", tmp_path / "other", Exact())
    assert merged(tmp_path / "new.npz") == 4


def test_a_run_goes_on_where_it_stopped_and_ends_the_same(tmp_path):
    path, _ = bad_tours(tmp_path)
    solve_again(path, tmp_path / "whole", Exact())

    class StopError(Exception):
        pass

    def stop(progress):
        if progress.parts == 1:
            raise StopError

    with pytest.raises(StopError):
        solve_again(path, tmp_path / "halves", Exact(), watch=stop)
    first = (tmp_path / "halves" / "part-000000.npz").read_bytes()
    again, _ = solve_again(path, tmp_path / "halves", Exact(), batch=None)  # the folder knows its parts
    assert again.done_here == 7
    assert (tmp_path / "halves" / "part-000000.npz").read_bytes() == first
    names = sorted(each.name for each in (tmp_path / "halves").glob("part*"))
    assert names == [f"part-00000{number}.npz" for number in range(3)]
    for name in names:
        with np.load(tmp_path / "whole" / name) as whole, np.load(tmp_path / "halves" / name) as halves:
            assert whole.files == halves.files
            for array in set(whole.files) - {"seconds"}:
                np.testing.assert_array_equal(whole[array], halves[array])


def test_a_folder_belongs_to_one_maker_and_one_file(tmp_path):
    path, _ = bad_tours(tmp_path)
    file, model = read_label_file(path), tiny_model(PROBLEMS["TSP"])
    solve_again(path, tmp_path / "parts", Exact())
    longer = Exact()
    longer.seconds = 0.7
    (tmp_path / "more").mkdir()
    other, _ = bad_tours(tmp_path / "more", 13)
    for given in ((path, Alone(), 5), (path, longer, 5), (path, Exact(), 6), (other, Exact(), 5)):
        with pytest.raises(LehdError, match="another run"):
            solve_again(given[0], tmp_path / "parts", *given[1:])
    with pytest.raises(LehdError, match="another run"):
        by_the_model(file, tmp_path / "parts", model, torch.device("cpu"), Settings(2))
    by_the_model(file, tmp_path / "model", model, torch.device("cpu"), Settings(2, batch=5))
    with pytest.raises(LehdError, match="another run"):
        solve_again(path, tmp_path / "model", Exact())
    with pytest.raises(LehdError, match="0 instances in a part"):
        solve_again(path, tmp_path / "none", Exact(), batch=0)


def test_a_solver_that_a_worker_lacks_is_not_held_against_instances(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "hygese", None)
    with pytest.raises(LehdError, match=r"lacks a package.*hygese"):
        solve_again(plain(tmp_path, cvrp), tmp_path / "parts", Solver("hgs", 0.01))
    assert not list((tmp_path / "parts").glob("*.npz"))


@pytest.mark.parametrize(
    ("shards", "seconds", "size"),
    [(1, 0.01, 2), (640, 0.01, 1000), (640, 0.5, 20), (640, 60.0, 1)],
)
def test_parts_are_seconds_of_work_and_enough_for_many_workers(shards, seconds, size):
    assert (PART_SECONDS, LEAST_PARTS) == (10, 64)
    assert by_solver(fresh_instances("uniform_tsp", 4, range(shards)), Solver("fast-tsp", seconds)).usual_batch == size


def test_a_part_takes_its_own_instances_to_a_worker_and_no_others():
    few, many = (len(pickle.dumps(part_unit(fresh_instances("uniform_tsp", 50, range(n)), 0, 2))) for n in (1, 20))
    assert many == few


BARE = """
import sys
for name in ("typer", "rich", "matplotlib"):
    sys.modules[name] = None
from lehd.labels import improve
improve.main()
"""


def bare(*words):
    return subprocess.run([sys.executable, "-c", BARE, *map(str, words)], capture_output=True, text=True)


def test_the_module_runs_without_the_command_lines_packages(tmp_path):
    pytest.importorskip("fast_tsp")
    path = plain(tmp_path, tsp, count=6)
    words = [path, tmp_path / "parts", "--solver", "fast-tsp", "--seconds", 0.002, "--processes", 2]
    done = bare(*words, "--batch", 4, "--merge", tmp_path / "new.npz")
    assert done.returncode == 0, done.stderr
    assert "2/2 parts" in done.stdout
    assert "6 labels" in done.stdout
    assert (costs(load_labels(tmp_path / "new.npz")) <= costs(load_labels(path))).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["old.npz", "parts"], "one of the arguments --weights --solver is required"),
        (["old.npz", "parts", "--solver", "lkh", "--weights", "w"], "not allowed with argument"),
        (["old.npz", "parts", "--solver", "fast-tsp", "--device", "cpu"], "are for models"),
        (["uniform_tsp", "parts", "--solver", "fast-tsp", "--shards", "0", "1"], "lehd.labels.pool"),
        (["old.npz", "parts", "--weights", "w", "--seconds", "1"], "are for solvers"),
        (["old.npz", "parts", "--solver", "fast-tsp"], "old.npz: no such label file"),
    ],
)
def test_mistakes_are_told(words, message, monkeypatch, capsys):
    from lehd.labels.improve import main

    monkeypatch.setattr(sys, "argv", ["improve", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert message in f"{end.value.code} {capsys.readouterr().err}"
