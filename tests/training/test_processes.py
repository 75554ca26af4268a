"""Several processes train like one."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from lehd.data.dataset import Labelled
from lehd.errors import LehdError
from lehd.model.checkpoint import load_model, save_model
from lehd.model.lehd import LEHD
from lehd.problems import PROBLEMS, of
from lehd.training import optimizer
from lehd.training.checkpoint import load_checkpoint
from lehd.training.config import TrainConfig
from lehd.training.loop import train
from lehd.training.mixture import Mixture
from lehd.training.partial import Shape
from lehd.training.processes import Processes
from lehd.training.reinforce import Reinforce
from tests.builders import cvrp, generator, random_solution, tsp
from tests.training.circles import CONFIG, SMALL, star_labels, write_circles
from tests.training.ranks import run_ranks

CIRCLES = replace(CONFIG, steps=12, tokens=600, held_out=4, log_every=1000.0)


def run(config, folder, data, init=None, resume=False):
    train(config, folder, data, init, "cpu", resume, Quiet())


class Quiet:
    def stepped(self, trainer):
        pass

    def logged(self, record):
        pass


class StopAfter(Quiet):
    """Ends a run with an error, as that of a lost process."""

    def __init__(self, step):
        self.step = step

    def stepped(self, trainer):
        if trainer.step == self.step:
            raise LehdError("lost")


def run_until_lost(config, folder, data, step):
    train(replace(config, checkpoint_every=0.0), folder, data, device="cpu", watch=StopAfter(step))


def descend(config, folder, data, resume=False):
    """Plain gradient descent: the weights then are a sum of gradients, which Adam would blow out of proportion."""

    def descent(parameters, lr, betas, weight_decay, fused, capturable):
        return torch.optim.SGD(parameters, lr=lr, fused=fused)

    before, optimizer.torch.optim.AdamW = optimizer.torch.optim.AdamW, descent
    try:
        run(config, folder, data, resume=resume)
    finally:
        optimizer.torch.optim.AdamW = before


def weights(folder):
    return load_model(folder / "weights.safetensors").state_dict()


def assert_same(one, other):
    for a, b in zip(weights(one).values(), weights(other).values()):
        assert torch.equal(a, b)


def log(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("instances", [tsp(40, 9), cvrp(40, 9)])
def test_shares_are_disjoint_and_together_the_batch_of_one_process(instances):
    problem = of(instances)
    mixture = Mixture([Labelled(instances, random_solution(instances))], [1.0])
    shape = Shape(11, 7, 4)
    whole = mixture.batch(problem, shape, generator(0), Processes().rows)
    parts = [mixture.batch(problem, shape, generator(0), Processes(rank, 3).rows) for rank in range(3)]
    assert [len(part.action) for part in parts] == [4, 4, 3]
    for rank, part in enumerate(parts):
        mine = whole.rows(slice(rank, None, 3))
        assert torch.equal(part.instances.coords, mine.instances.coords)
        assert torch.equal(part.action, mine.action)
        for name in ("instance", "start", "destination", "available", "resources"):
            assert torch.equal(getattr(part.state, name), getattr(mine.state, name))


@pytest.mark.parametrize(
    ("problem", "count", "changes"),
    [
        ("TSP", 2, {"tokens": 801}),
        ("CVRP", 2, {"states": "steps", "batch": 17}),
        ("CVRP", 3, {"states": "steps", "batch": 2}),  # one of them has nothing to do
    ],
)
def test_gradients_are_those_of_one_process(tmp_path, problem, count, changes):
    write_circles(tmp_path, count=60)
    np.savez(tmp_path / "star.npz", **star_labels(60))
    config = TrainConfig(
        problem=problem,
        data=("circle.npz" if problem == "TSP" else "star.npz",),
        steps=3,
        held_out=4,
        learning_rate=0.1,
        warmup=0,
        clip=float("inf"),
        model=replace(SMALL, **PROBLEMS[problem].model_sizes),
        **changes,
    )
    descend(config, tmp_path / "one", tmp_path)
    run_ranks(descend, [(config, tmp_path / "several", tmp_path)] * count)
    one, several = weights(tmp_path / "one"), weights(tmp_path / "several")
    for name in one:
        torch.testing.assert_close(one[name], several[name], atol=1e-5, rtol=1e-5)
    (first,), (second,) = log(tmp_path / "one"), log(tmp_path / "several")  # one writer
    for key in ("loss", "accuracy", "validation_loss"):
        assert first[key] == pytest.approx(second[key], abs=1e-5)
    assert first["decisions"] == second["decisions"]


def test_only_the_first_process_needs_the_folder_and_the_weights(tmp_path):
    write_circles(tmp_path)
    torch.manual_seed(5)
    save_model(LEHD(SMALL), tmp_path / "init.safetensors")
    nowhere = tmp_path / "nowhere"
    given = tmp_path / "init.safetensors"
    longer = replace(CIRCLES, steps=20)
    for folders in ((tmp_path / "run", nowhere), (tmp_path / "shared", tmp_path / "shared")):
        both = [(folder, tmp_path, nowhere if folder == nowhere else given) for folder in folders]
        run_ranks(run, [(CIRCLES, *each) for each in both])
        run_ranks(run, [(longer, *each, True) for each in both])
    assert not nowhere.exists()
    assert_same(tmp_path / "run", tmp_path / "shared")
    assert [line["step"] for line in log(tmp_path / "run")] == [12, 20]


def test_processes_that_were_lost_go_on_under_the_same_torchrun_alone(tmp_path):
    write_circles(tmp_path)
    run_ranks(run, [(CIRCLES, tmp_path / "whole", tmp_path)] * 2)
    lost = run_ranks(run_until_lost, [(CIRCLES, tmp_path / "run", tmp_path, 7)] * 2, "/logs/none_a1/attempt_0")
    assert [str(error) for error in lost] == ["lost", "lost"]
    assert load_checkpoint(tmp_path / "run").facts["step"] == 6
    again = [(CIRCLES, tmp_path / "run", tmp_path)] * 2
    for launcher in ("/logs/none_b2/attempt_0", "/logs/none_b2/attempt_1", ""):  # another one, even when it tries again
        refused = run_ranks(run, again, launcher)
        assert all("--resume" in str(error) for error in refused)
    run_ranks(run, again, "/logs/none_a1/attempt_1")
    assert_same(tmp_path / "whole", tmp_path / "run")


def test_a_run_goes_on_with_another_number_of_processes(tmp_path):
    write_circles(tmp_path)
    config = replace(CIRCLES, decay_from=1.0, clip=float("inf"))
    descend(config, tmp_path / "alone", tmp_path)
    half = replace(config, steps=6)
    run_ranks(descend, [(half, tmp_path / "run", tmp_path)] * 3)
    run_ranks(descend, [(config, tmp_path / "run", tmp_path, True)] * 2)
    for a, b in zip(weights(tmp_path / "run").values(), weights(tmp_path / "alone").values()):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_labels_must_be_the_same_everywhere(tmp_path):
    folders = [tmp_path / name for name in "ab"]
    for seed, folder in enumerate(folders):
        folder.mkdir()
        write_circles(folder, seed=seed)
    told = run_ranks(run, [(CIRCLES, tmp_path / "run", folder) for folder in folders])
    assert all("different labels" in str(error) for error in told)


def test_files_without_a_solution_are_labelled_once(tmp_path):
    (tmp_path / "mine").mkdir()
    for number in range(6):
        lines = [f"{x},{y}" for x, y in tsp(1, 9, seed=number).coords[0].tolist()]
        (tmp_path / "mine" / f"{number}.csv").write_text("\n".join(["x,y", *lines]))
    config = replace(CIRCLES, data=(), steps=2, labels_by="model", label_iterations=1)
    nowhere = tmp_path / "nowhere"
    assert run_ranks(run, [(config, folder, tmp_path / "mine") for folder in (tmp_path / "run", nowhere)]) == [None] * 2
    assert len(list((tmp_path / "run" / "labels").iterdir())) == 6
    assert not nowhere.exists()


def test_processes_sample_with_numbers_of_their_own():
    config = replace(CONFIG, method="reinforce", data=(), customers=7, batch=3, tokens=300)
    problem, states = PROBLEMS["TSP"], {}
    for rank in (0, 1, 0):
        feed = Reinforce(config, problem, torch.device("cpu"), generator(0), Processes(rank, 2))
        feed.batches = 3
        torch.manual_seed(0)
        feed.load()
        sums = feed.backward(LEHD(SMALL))
        assert int(sums[2]) == (2 - rank) * 7  # they have two instances and one
        assert feed.decisions == 3 * 7 * 5  # of all processes
        states.setdefault(rank, []).append(feed.generator.get_state())
    assert torch.equal(*states[0])
    assert not torch.equal(states[0][0], states[1][0])
