"""Gradients from the hardest decisions alone."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from lehd.data.dataset import Labelled
from lehd.errors import LehdError
from lehd.problems import of
from lehd.training.feed import Data, RandomStates
from lehd.training.loop import train
from lehd.training.partial import decisions
from lehd.training.supervised import cross_entropy, learn
from tests.builders import cvrp, generator, random_solution, tiny_model, tsp
from tests.training.circles import CONFIG, write_circles

CPU = torch.device("cpu")


def gradient(model):
    row = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    model.zero_grad()
    return row


@pytest.mark.parametrize("make", [tsp, cvrp])
@pytest.mark.parametrize("share", [0.1, 0.34, 1.0])
def test_the_gradient_is_that_of_the_greatest_losses(make, share):
    instances = make(50, 12)
    problem = of(instances)
    model = tiny_model(problem)
    batch = decisions(problem, instances, random_solution(instances), 9, 5, generator(1))

    sums = learn(model, problem, batch, share, rows=50)
    learnt = gradient(model)

    loss, right = cross_entropy(model, problem, batch)
    count = {0.1: 5, 0.34: 17, 1.0: 50}[share]
    (loss.sort(descending=True).values[:count].sum() / 50).backward()
    torch.testing.assert_close(learnt, gradient(model), rtol=1e-4, atol=1e-6)
    # What the log says is of all decisions.
    torch.testing.assert_close(sums, torch.stack([loss.sum(), right.sum(), torch.tensor(50.0)]).detach())


def test_a_loss_that_is_not_finite_is_learnt_from_so_that_the_guard_sees_it():
    instances = tsp(20, 9)
    problem = of(instances)
    model = tiny_model(problem)
    solution = random_solution(instances)
    instances.coords[3] = torch.nan
    sums = learn(model, problem, decisions(problem, instances, solution, 9, 5, generator(1)), 0.05, rows=20)
    assert not torch.isfinite(sums[0])
    assert not torch.isfinite(gradient(model)).all()


def test_more_of_the_early_decisions_are_learnt_from():
    instances = tsp(30, 40)
    data = Data([Labelled(instances, random_solution(instances))], (), 2, CPU)
    feed = RandomStates(replace(CONFIG, hardest=0.3), of(instances), data, random.Random(0), generator(0))
    plans = [feed.next() for _ in range(600)]
    assert {plan.available for plan in plans if plan.share == 0.3} == set(range(2, 37))
    assert {plan.available for plan in plans if plan.share == 1} == {37, 38}


def test_training_on_the_hardest_decisions_learns(tmp_path):
    config = replace(CONFIG, hardest=0.4)
    train(config, tmp_path / "run", write_circles(tmp_path), device="cpu")
    last = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])
    assert last["validation_loss"] < 0.5 * np.log(4)  # guessing among the available nodes would be about log 4
    assert last["decisions"] > 200 * 200  # all that were looked at


@pytest.mark.parametrize(
    "changes",
    [
        {"hardest": 0.0},
        {"hardest": 1.5},
        {"hardest": 0.5, "states": "steps"},
        {"hardest": 0.5, "model": replace(CONFIG.model, norm="batch")},
    ],
)
def test_shares_that_make_no_sense_are_refused(changes):
    with pytest.raises(LehdError, match="hardest"):
        replace(CONFIG, **changes)
