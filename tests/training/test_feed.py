"""The paper's way through the data: whole partial solutions, step after step, pass after pass."""

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from lehd.data.dataset import Labelled
from lehd.errors import LehdError
from lehd.model.lehd import LEHD
from lehd.problems import of
from lehd.training.feed import ConstructionSteps, Data, RandomStates
from lehd.training.loop import Trainer, read_config, train
from lehd.training.partial import ALL, decisions
from tests.builders import cvrp, generator, random_solution, tsp
from tests.training.circles import CONFIG, SMALL, star_labels, write_circles

CPU = torch.device("cpu")


def feed(make=tsp, count=50, batch=8, nodes=10, seed=0, held_out=2):
    instances = make(count, nodes)
    config = replace(CONFIG, states="steps", batch=batch, seed=seed)
    data = Data([Labelled(instances, random_solution(instances))], (), held_out, CPU)
    return ConstructionSteps(config, of(instances), data, random.Random(seed), generator(seed)), data


def one_batch(steps):
    batches = [steps.next().draw(ALL)]
    while not steps.between:
        batches.append(steps.next().draw(ALL))
    return batches


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_a_batch_goes_through_every_decision_of_its_partial_solutions(make):
    steps, _ = feed(make)
    problem, lengths = steps.problem, set()
    for _ in range(150):
        batches = one_batch(steps)
        length = len(batches) + problem.fixed_in_suffix
        lengths.add(length)
        for done, batch in enumerate(batches):
            assert batch.instances.coords is batches[0].instances.coords
            assert batch.state.available.shape[1] == len(batches) - done
            allowed = problem.feasible(batch.instances, batch.state)
            if allowed is not None:
                assert allowed.flatten(1).gather(1, batch.action[:, None]).all()
        for before, after in pairwise(batches):
            assert torch.equal(after.state.start, before.state.available[:, 0])  # the label's choice, in slot 0
            assert torch.equal(after.state.available, before.state.available[:, 1:])
    assert lengths == set(range(4, 11))


def test_a_pass_takes_every_label_once_in_an_order_of_its_own():
    steps, data = feed(count=50, batch=8)
    whole = [set(map(tuple, each.tolist())) for each in data.parts[0].instances.coords]
    orders = []
    for number in range(3):
        assert steps.passes == number
        rows = []
        for _ in range(6):
            partial = steps._cut()
            steps.batches += 1
            shown = [set(map(tuple, each.tolist())) for each in partial.instances.coords]
            rows += [next(row for row, nodes in enumerate(whole) if part <= nodes) for part in shown]
        assert sorted(rows) == list(range(48))
        orders.append(rows)
    assert orders[0] != orders[1] != orders[2]


def test_positions_are_left_as_they_are():
    steps, data = feed()
    known = {tuple(point) for point in data.parts[0].instances.coords.flatten(0, 1).tolist()}
    batch = steps.next().draw(ALL)
    assert {tuple(point) for point in batch.instances.coords.flatten(0, 1).tolist()} <= known


def test_the_learning_rate_falls_with_every_pass():
    labelled = Labelled(tsp(60, 8), random_solution(tsp(60, 8)))
    changes = {"steps": None, "epochs": 3, "states": "steps", "batch": 32, "epoch_decay": 0.5, "warmup": 0}
    config = replace(CONFIG, held_out=10, decay_from=1.0, learning_rate=1.0, **changes)
    run = Trainer(config, LEHD(SMALL), Data([labelled], (), 10, CPU), CPU)
    rates, passes = [], []
    while run.progress < 1:
        rates.append(run.learning_rate())
        passes.append(int(run.feed.passes))
        run.train_step()
    assert run.feed.batches == 6  # 50 labels are two batches, the second one of 18
    assert rates == [0.5**number for number in passes]
    assert set(passes) == {0, 1, 2}


@pytest.mark.parametrize(("name", "epochs", "decay"), [("tsp100-paper", 150, 0.97), ("cvrp100-paper", 40, 0.9)])
def test_the_papers_configurations_are_the_papers_and_run(tmp_path, request, name, epochs, decay):
    path = request.config.rootpath / "configs" / f"{name}.toml"
    config = read_config(path)
    assert (config.epochs, config.epoch_decay, config.batch, config.learning_rate) == (epochs, decay, 1024, 1e-4)
    assert (config.betas, config.weight_decay, config.states) == ((0.9, 0.999), 0.0, "steps")
    assert config.model.box is False
    assert (config.model.dim, config.model.heads, config.model.feed_forward) == (128, 8, 512)
    assert config.model.decoder_layers == 6
    if config.problem == "TSP":
        write_circles(tmp_path, count=30)
        file = "circle.npz"
    else:
        file = "star.npz"
        np.savez(tmp_path / file, **star_labels(30))
    tiny = [f"model.{key}={value}" for key, value in (("dim", 8), ("heads", 1), ("feed_forward", 8))]
    changes = [f'data=["{file}"]', "held_out=5", "epochs=2", "batch=10", "model.decoder_layers=1", *tiny]
    train(read_config(path, changes), tmp_path / "run", tmp_path, device="cpu")
    assert '"validation_loss"' in (tmp_path / "run" / "log.jsonl").read_text()


def test_the_average_follows_the_weights():
    labelled = Labelled(tsp(60, 8), random_solution(tsp(60, 8)))
    torch.manual_seed(0)
    run = Trainer(replace(CONFIG, average=0.75), LEHD(SMALL), Data([labelled], (), 10, CPU), CPU)
    expected = [p.detach().clone() for p in run.model.parameters()]
    for _ in range(5):
        run.train_step()
        expected = [0.75 * old + 0.25 * new.detach() for old, new in zip(expected, run.model.parameters())]
    for average, value in zip(run.average.parameters(), expected):
        torch.testing.assert_close(average, value, atol=1e-6, rtol=1e-5)


def test_rows_of_a_batch_are_decisions_of_their_own():
    instances = cvrp(7, 9)
    problem = of(instances)
    batch = decisions(problem, instances, random_solution(instances), 6, 4, generator(0))
    part = batch.rows(slice(1, None, 3))
    assert torch.equal(part.action, batch.action[[1, 4]])
    assert torch.equal(part.instances.coords, batch.instances.coords[[1, 4]])
    whole, some = (problem.feasible(each.instances, each.state) for each in (batch, part))
    assert torch.equal(whole[[1, 4]], some)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"states": "all"}, "states"),
        ({"steps": None, "epochs": 2}, "need states"),
        ({"epoch_decay": 0.9}, "need states"),
        ({"states": "steps", "shares": (1.0,)}, "shares"),
        ({"states": "steps", "epochs": 2}, "one of them"),
        ({"batch": 0}, "at least 1"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes, message):
    with pytest.raises(LehdError, match=message):
        replace(CONFIG, **changes)


def labelled(count, nodes):
    instances = tsp(count, nodes)
    return Labelled(instances, random_solution(instances))


@pytest.mark.parametrize(("shares", "expected"), [((0.0, 1.0, 0.5), {20: 0.0, 30: 0.75}), (0.3, {20: 0.3, 30: 0.3})])
def test_each_file_has_its_own_share_of_neighbourhoods(shares, expected):
    """Files of one size are drawn from together: theirs is the mean."""
    names = ("small.npz", "large.npz", "large too.npz")
    config = replace(CONFIG, data=names, shares=(2.0, 1.0, 1.0), views=(8,), view_share=shares)
    data = Data([labelled(9, 20), labelled(9, 30), labelled(9, 30)], config.shares, 2, CPU)
    feed = RandomStates(config, of(data.parts[0].instances), data, random.Random(0), generator(0))
    assert {mixture.nodes: mixture.view_share for mixture in feed.mixtures} == pytest.approx(expected)
    seen = {20: [], 30: []}
    for _ in range(1000):
        number, shape = feed.next().key
        seen[feed.mixtures[number].nodes].append(shape.view is not None)
    for nodes, share in expected.items():
        assert np.mean(seen[nodes]) == pytest.approx(share, abs=0.07)


@pytest.mark.parametrize(
    ("shares", "views"), [((3.0, 1.0), (0.1, 0.5)), ((), (0.3, 0.1)), ((2.0, 1.0, 1.0), (0, 0.3, 0.5))]
)
def test_files_of_ones_own_have_the_mean_share_of_neighbourhoods(shares, views):
    """As many as the configuration has of its own, or others."""
    data = Data([labelled(9, 20), labelled(9, 30)], shares, 2, CPU, own=True)
    assert [mixture.view_share for mixture in data.mixtures(views)] == pytest.approx([0.2, 0.2])


@pytest.mark.parametrize(
    ("share", "message"),
    [((0.1,), "one for every file"), ((0.1, 0.1, 2.0), "from 0 to 1"), ("much", "expected float"), (-1, "from 0 to 1")],
)
def test_shares_of_neighbourhoods_that_make_no_sense_are_refused(share, message):
    with pytest.raises(LehdError, match=message):
        replace(CONFIG, data=("a", "b", "c"), views=(8,), view_share=share)
