"""Training on a user's own files."""

import json
import random
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest
import torch

import lehd
from lehd.data.foreign import write_plain
from lehd.data.own_files import by_size, find_files, read_problem
from lehd.errors import LehdError
from lehd.labels.solvers import KINDS
from lehd.model.checkpoint import load_model, save_model
from lehd.problems import PROBLEMS, of
from lehd.training.feed import ConstructionSteps, Data
from lehd.training.log import read_log
from lehd.training.loop import run_training, train
from lehd.training.prepare import Labelling, own_labels
from tests.builders import generator, tiny_model
from tests.cli.command import lehd_command
from tests.training.circles import CONFIG, circle_labels, write_circles

CPU = torch.device("cpu")
QUICK = replace(CONFIG, data=(), problem="auto", steps=3, tokens=300)


def vrp(path, customers, seed=0, demand=1.0):
    rng = np.random.default_rng(seed)
    points, demands = rng.integers(0, 100, (customers + 1, 2)), demand * rng.integers(1, 9, customers + 1)
    demands[0] = 0
    lines = [f"NAME : {path.stem}", "TYPE : CVRP", f"DIMENSION : {customers + 1}", "EDGE_WEIGHT_TYPE : EUC_2D"]
    lines += ["CAPACITY : 20", "NODE_COORD_SECTION", *(f"{i} {x} {y}" for i, (x, y) in enumerate(points, 1))]
    lines += ["DEMAND_SECTION", *(f"{i} {q:g}" for i, q in enumerate(demands, 1))]
    path.write_text("\n".join([*lines, "DEPOT_SECTION", "1", "-1", "EOF", ""]))


def tsp(path, nodes, seed=0, kind="EUC_2D"):
    points = np.random.default_rng(seed).integers(0, 80, (nodes, 2))
    lines = [f"NAME : {path.stem}", "TYPE : TSP", f"DIMENSION : {nodes}", f"EDGE_WEIGHT_TYPE : {kind}"]
    path.write_text("\n".join([*lines, "NODE_COORD_SECTION", *(f"{i} {x} {y}" for i, (x, y) in enumerate(points, 1))]))


@pytest.fixture
def mine(tmp_path):
    """Seven problems of three sizes, two of them with a solution."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for number in range(7):
        vrp(folder / f"day{number}.vrp", 6 + number % 3, number)
    for number in (1, 4):
        path = folder / f"day{number}.vrp"
        lehd.solve(lehd.read(path), rrc=0, model=tiny_model(PROBLEMS["CVRP"])).write(path.with_suffix(".sol"))
    (folder / "notes.txt").write_text("not a label file")
    return folder


@pytest.fixture
def weights(tmp_path):
    save_model(tiny_model(PROBLEMS["CVRP"]), tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


def test_problems_of_several_sizes_are_labelled_once_and_trained_on(mine, weights, tmp_path):
    seen = []
    config = replace(QUICK, labels_by="model", label_iterations=1)
    model = train(config, tmp_path / "run", mine, weights, "cpu", on_label=seen.append)
    assert [(made.done, made.total) for made in seen] == [(number, 5) for number in range(1, 6)]
    assert model.config == load_model(weights).config
    assert len(list((tmp_path / "run" / "labels").iterdir())) == 5
    last = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])
    assert last["step"] == 3
    assert np.isfinite(last["greedy_gap"])
    seen.clear()
    train(replace(config, steps=4), tmp_path / "run", mine, weights, "cpu", resume=True, on_label=seen.append)
    assert not seen


def test_labels_are_the_solutions_beside_the_problems_and_feasible(mine, tmp_path):
    labels = own_labels([mine], tmp_path / "run", Labelling("model", iterations=0))
    assert [len(label.solution.nodes[0]) for label in labels] == [6 + number % 3 for number in range(7)]
    for label, path in zip(labels, sorted(mine.glob("*.vrp"))):
        problem = read_problem(path)
        of(problem.instances).check(problem.instances, label.solution)
        if problem.solution is not None:
            assert torch.equal(problem.solution.nodes, label.solution.nodes)
        assert label.instances.coords.min() >= 0
        assert label.instances.coords.max() <= 1


@pytest.mark.parametrize(("make", "package"), [(vrp, "hygese"), (tsp, "fast_tsp")])
def test_solvers_label_what_they_can(tmp_path, make, package):
    pytest.importorskip(package)
    suffix = "vrp" if make is vrp else "tsp"
    for number in range(3):
        make(tmp_path / f"{number}.{suffix}", 8, number)
    seen = []
    labels = own_labels([tmp_path], tmp_path / "run", Labelling(seconds=0.005), seen.append)
    by_model = own_labels([tmp_path], tmp_path / "other", Labelling("model", iterations=0))
    assert all(package.replace("hygese", "hgs").replace("_", "-") in made.last for made in seen)
    for solver, model in zip(labels, by_model):
        cost, other = (of(x.instances).cost(x.instances, x.solution) for x in (solver, model))
        assert cost <= other * 1.01  # rounding aside


def test_what_a_solver_cannot_take_the_model_labels(tmp_path, monkeypatch):
    vrp(tmp_path / "fractions.vrp", 6, demand=0.5)
    seen = []
    own_labels([tmp_path / "fractions.vrp"], tmp_path / "run", Labelling(iterations=0), seen.append)
    assert "the model" in seen[0].last
    with pytest.raises(LehdError, match="whole demands"):
        own_labels([tmp_path / "fractions.vrp"], tmp_path / "again", Labelling("hgs"))
    first, again = (
        own_labels([tmp_path / "fractions.vrp"], tmp_path / "run", Labelling(iterations=0), seen.append)
        for _ in range(2)
    )
    assert len(seen) == 1  # the label is kept, and its demands are not cut
    assert torch.equal(first[0].solution.nodes, again[0].solution.nodes)
    assert first[0].instances.demands.is_floating_point()
    tsp(tmp_path / "town.tsp", 7)
    monkeypatch.setitem(KINDS, "fast-tsp", KINDS["fast-tsp"]._replace(package="not_a_package_at_all"))
    own_labels([tmp_path / "town.tsp"], tmp_path / "run", Labelling(iterations=0), seen.append)
    assert "the model" in seen[1].last


def test_label_files_and_problems_together(tmp_path):
    write_circles(tmp_path, count=20)
    tsp(tmp_path / "town.tsp", 9)
    model = train(replace(QUICK, labels_by="model", label_iterations=0), tmp_path / "run", tmp_path, device="cpu")
    assert model.config.num_features == 2
    labels, problems = find_files([tmp_path / "circle.npz", tmp_path])
    assert (len(labels), len(problems)) == (2, 1)


def test_every_fifth_label_is_held_out_whatever_its_size(mine, tmp_path):
    labels = own_labels([mine], tmp_path / "run", Labelling("model", iterations=0))
    data = Data(labels, (), 200, CPU, own=True)
    assert sum(map(len, data.validation)) == 1
    assert sum(map(len, data.parts)) == 6
    assert torch.equal(data.validation[0].instances.coords, labels[4].instances.coords)
    assert sorted(part.instances.num_nodes for part in data.parts) == [7, 8, 9]
    few = Data(labels[:3], (), 200, CPU, own=True)
    assert sum(map(len, few.validation)) == sum(map(len, few.parts)) == 3
    assert len(by_size(labels)) == 3


def test_shares_are_those_of_the_files_that_a_configuration_names(tmp_path):
    write_circles(tmp_path)
    coords, order = circle_labels(count=40, nodes=6)
    np.savez(tmp_path / "other.npz", coords=coords, nodes=order)
    config = replace(QUICK, problem="TSP", data=("a.npz", "b.npz"), shares=(0.9, 0.1))
    for number, files in enumerate((["circle.npz"], ["circle.npz", "other.npz"])):
        trainer = run_training(config, tmp_path / f"run{number}", [tmp_path / name for name in files], device="cpu")
        assert trainer.data.shares == tuple(map(len, trainer.data.parts))


def test_reinforcement_validates_on_files(tmp_path):
    write_circles(tmp_path)
    config = replace(QUICK, problem="TSP", method="reinforce", customers=6, batch=4, steps=1)
    train(config, tmp_path / "run", tmp_path / "circle.npz", device="cpu")
    assert "greedy_gap" in read_log(tmp_path / "run")[-1]
    with pytest.raises(LehdError, match=r"nobody\.npz: no such file"):
        train(config, tmp_path / "other", tmp_path / "nobody.npz", device="cpu")
    train(config, tmp_path / "without", tmp_path, device="cpu")  # a folder, of which the configuration names no file
    assert "greedy_gap" not in read_log(tmp_path / "without")[-1]


def test_a_pass_goes_through_labels_of_all_sizes(mine, tmp_path):
    labels = own_labels([mine], tmp_path / "run", Labelling("model", iterations=0))
    config = replace(CONFIG, states="steps", batch=2)
    steps = ConstructionSteps(
        config, PROBLEMS["CVRP"], Data(labels, (), 200, CPU, own=True), random.Random(0), generator(0)
    )
    assert steps.per_pass == sum(-(-len(group) // 2) for group in steps.groups)
    sizes = []
    for _ in range(steps.per_pass):
        partial = steps._cut()
        sizes += [len(partial.path)]
        steps.batches += 1
    assert sum(sizes) == 6
    assert steps.passes == 1


@pytest.mark.parametrize("trouble", ["empty", "small", "asymmetric", "mixed", "missing", "ending", "problem"])
def test_mistakes_are_told(tmp_path, trouble):
    (tmp_path / "in").mkdir()
    given, message = tmp_path / "in", None
    config = QUICK
    match trouble:
        case "empty":
            message = "no label files and no problems"
        case "small":
            tsp(given / "a.tsp", 4)
            message = "at least 5"
        case "asymmetric":
            text = (
                "NAME : a\nTYPE : ATSP\nDIMENSION : 3\nEDGE_WEIGHT_TYPE : EXPLICIT\nEDGE_WEIGHT_FORMAT : FULL_MATRIX\n"
            )
            (given / "a.atsp").write_text(text + "EDGE_WEIGHT_SECTION\n0 1 2\n3 0 4\n5 6 0\nEOF\n")
            message = "direction"
        case "mixed":
            tsp(given / "a.tsp", 6)
            vrp(given / "b.vrp", 6)
            message = "several problems"
        case "missing":
            given, message = given / "nobody.tsp", "no such file"
        case "ending":
            given = given / "a.doc"
            given.write_text("")
            message = "neither labels"
        case "problem":
            tsp(given / "a.tsp", 6)
            config, message = replace(QUICK, problem="CVRP"), "the labels are of a TSP"
    with pytest.raises(LehdError, match=message):
        train(replace(config, labels_by="model", label_iterations=0), tmp_path / "run", given, device="cpu")
    assert not (tmp_path / "run" / "checkpoint.json").exists()


def test_the_tutorial_runs(mine, tmp_path, request, monkeypatch):
    """Every command of docs/fine-tuning.md, with a few steps in place of minutes."""
    pytest.importorskip("hygese")
    root = request.config.rootpath
    text = (root / "docs" / "fine-tuning.md").read_text()
    commands = re.findall(r"^    \$ lehd (.*)$", text, re.MULTILINE)
    assert len(commands) >= 6
    monkeypatch.chdir(tmp_path)
    write_plain_file(mine, tmp_path / "mine.npz")
    tiny = ["--set", "steps=2", "--set", "seconds=null", "--set", "tokens=300", "--device", "cpu"]
    for command in commands:
        name, *words = shlex.split(command)
        words = [str(root / word) if word.startswith("configs/") else word for word in words]
        words = [re.sub(r"^(label_\w+)=.*", r"\1=1", word).replace("seconds=1", "seconds=0.01") for word in words]
        extra = {"train": tiny, "label": ["--iterations", "1"], "solve": ["--rrc", "1"]}[name]
        done = lehd_command(name, *words, *extra)
        assert done.exit_code == 0, (command, done.stderr)
    assert (tmp_path / "runs" / "again" / "weights.safetensors").exists()


def write_plain_file(mine, path):
    labels = own_labels([mine], path.parent / "made", Labelling("model", iterations=0))
    write_plain(by_size(labels)[0], path)
