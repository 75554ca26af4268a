"""REINFORCE with many starts: the right gradient, in memory that does not grow, and costs that fall."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from lehd.decoding.construct import construct
from lehd.decoding.select import GREEDY, Sample
from lehd.decoding.view import see_all
from lehd.errors import LehdError
from lehd.model.lehd import LEHD
from lehd.problems import PROBLEMS, of
from lehd.training import reinforce as module
from lehd.training.config import read_config
from lehd.training.loop import train
from lehd.training.processes import Processes
from lehd.training.reinforce import Reinforce, pick_starts, reinforce, replay, sampled_costs, starting_states
from lehd.training.supervised import cross_entropy, log_probabilities
from lehd.training.trainer import Trainer
from lehd.types import Rollout, Solution
from tests.builders import cvrp, generator, tiny_model, tsp
from tests.training.circles import CONFIG, SMALL, write_circles
from tests.training.test_resume import StopAt, StopError, assert_same, weights

CPU = torch.device("cpu")
RL = replace(CONFIG, data=(), method="reinforce", customers=6, batch=4, steps=6, tokens=400, held_out=40)


def samples(make, batch=3, nodes=7, starts=4, seed=0):
    instances = make(batch, nodes)
    problem = of(instances)
    model = tiny_model(problem)
    begin = starting_states(problem, instances, pick_starts(problem, instances, starts, generator(seed)))
    rollout = construct(model, problem, instances, begin, Sample(1, generator(seed)))
    return instances, problem, model, begin, rollout


def whole_solutions(problem, begin, rollout):
    """As nodes and flags from the very first node on."""
    if problem.first_node == 0:
        return problem.complete(begin, rollout)
    first = torch.ones_like(rollout.via_depot[:, :1])
    return Solution(torch.cat([begin.start[:, None], rollout.nodes], 1), torch.cat([first, rollout.via_depot], 1))


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_samples_are_feasible_from_different_starts_and_costs_are_theirs(make):
    instances, problem, _, begin, rollout = samples(make)
    solution = whole_solutions(problem, begin, rollout)
    copies = instances.rows(begin.instance)
    problem.check(copies, solution)
    assert all(len(set(row)) == 4 for row in begin.start.view(3, 4).tolist())
    cost = sampled_costs(problem, instances, begin, rollout)
    torch.testing.assert_close(cost.flatten(), problem.cost(copies, solution).double())


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_replayed_states_are_those_of_the_construction(make):
    instances, problem, _, begin, rollout = samples(make)
    state = begin
    for step, batch in enumerate(replay(problem, instances, begin, rollout)):
        assert torch.equal(batch.state.start, state.start)
        assert torch.equal(batch.state.destination, state.destination)
        assert torch.equal(batch.state.available.sort(1).values, state.available.sort(1).values)
        torch.testing.assert_close(batch.state.resources, state.resources)
        assert torch.equal(batch.state.available[:, 0], rollout.nodes[:, step])
        slot = (state.available == rollout.nodes[:, step, None]).long().argmax(1)
        state = problem.advance(instances, state, slot, rollout.via_depot[:, step])


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_the_gradient_is_that_of_plain_reinforce(make):
    """Against one graph through all decisions, in which the cost times the log-probability is differentiated."""
    instances, problem, model, begin, rollout = samples(make)
    cost = sampled_costs(problem, instances, begin, rollout)
    total = torch.zeros(len(begin.start))
    state, embeddings = begin, model.encode(problem.features(instances, model.config.box))
    for step in range(rollout.nodes.shape[1]):
        logits = see_all(model, problem, instances, embeddings, state).scores()
        slot = (state.available == rollout.nodes[:, step, None]).long().argmax(1)
        flag = rollout.via_depot[:, step]
        action = slot * problem.actions_per_node + flag.long()
        total = total + logits.flatten(1).log_softmax(1).gather(1, action[:, None])[:, 0]
        state = problem.advance(instances, state, slot, flag)
    torch.testing.assert_close(total, rollout.log_probability)
    advantage = (cost - cost.mean(1, keepdim=True)).float().flatten()
    (advantage * total).mean().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    assert max(float(g.abs().max()) for g in expected) > 1e-4

    model.zero_grad()
    starts = begin.start.view(3, 4)
    sums = reinforce(model, problem, instances, starts, 12, generator(0))  # draws the same samples
    for parameter, gradient in zip(model.parameters(), expected):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(sums[0] / 12, cost.mean().float())
    torch.testing.assert_close(sums[1] / 12, cost.amin(1).mean().float())
    assert sums[2] == 12


def test_no_more_than_one_decision_is_held_in_memory(monkeypatch):
    """Each decision's graph is gone before the next one begins."""
    alive = []

    class Guard(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            alive.append(1)
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            alive.pop()
            return gradient

    def watched(model, problem, batch):
        assert not alive
        return Guard.apply(original(model, problem, batch))

    original = module.log_probabilities
    monkeypatch.setattr(module, "log_probabilities", watched)
    instances = tsp(3, 9)
    reinforce(tiny_model(of(instances)), of(instances), instances, torch.arange(9).expand(3, -1), 27, generator(0))
    assert not alive


@pytest.mark.parametrize(("problem", "recipe", "fewest"), [("TSP", "uniform_tsp", 2), ("CVRP", "uniform_cvrp", 1)])
def test_decisions_and_tokens_are_counted(monkeypatch, problem, recipe, fewest):
    """Six nodes are visited, the first is given. A single one that is left is no choice in a TSP."""
    counted = []

    def counting(model, problem, batch):
        counted.append((len(batch.action), batch.state.available.shape[1] + 2))
        return original(model, problem, batch)

    original = module.log_probabilities
    monkeypatch.setattr(module, "log_probabilities", counting)
    sizes = tiny_model(PROBLEMS[problem]).config
    run = Trainer(replace(RL, problem=problem, recipe=recipe, starts=3, model=sizes), LEHD(sizes), None, CPU)
    run.train_step()
    assert [shape for _, shape in counted] == [available + 2 for available in range(5, fewest - 1, -1)]
    assert run.decisions == sum(rows for rows, _ in counted)
    assert run.tokens == sum(rows * tokens for rows, tokens in counted)


def test_small_parts_and_several_processes_add_up_to_the_same_gradient(monkeypatch):
    """With samples that do not depend on who draws them: greedy ones from all nodes."""
    monkeypatch.setattr(Sample, "__call__", lambda _, *given: GREEDY(*given))

    def gradient(tokens, *processes):
        model = tiny_model(PROBLEMS["TSP"])
        for process in processes:
            config = replace(RL, tokens=tokens, model=model.config)
            feed = Reinforce(config, PROBLEMS["TSP"], CPU, generator(0), process)
            feed.load()
            feed.backward(model)
        return [p.grad.clone() for p in model.parameters()]

    whole = gradient(10_000, Processes())
    for other in (gradient(60, Processes()), gradient(10_000, Processes(0, 2), Processes(1, 2))):
        for a, b in zip(whole, other):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(("problem", "recipe"), [("TSP", "uniform_tsp"), ("CVRP", "uniform_cvrp")])
def test_costs_fall(problem, recipe):
    sizes = replace(SMALL, **PROBLEMS[problem].model_sizes)
    config = replace(
        RL,
        problem=problem,
        recipe=recipe,
        customers=10,
        batch=16,
        steps=80,
        tokens=10_000,
        learning_rate=3e-3,
        model=sizes,
    )
    torch.manual_seed(0)
    run = Trainer(config, LEHD(sizes), None, CPU)
    costs = []
    for _ in range(80):
        run.train_step()
        costs.append(run.line()["cost"])
    first, last = sum(costs[:5]) / 5, sum(costs[-10:]) / 10
    assert last < 0.87 * first


def test_a_run_from_the_configuration_can_be_stopped_and_goes_on(tmp_path):
    write_circles(tmp_path)
    config = replace(RL, model=SMALL, checkpoint_every=0.0, log_every=0.0, average=0.5, data=("circle.npz",))
    train(config, tmp_path / "whole", tmp_path, device="cpu", watch=StopAt(-1))
    with pytest.raises(StopError):
        train(config, tmp_path / "parts", tmp_path, device="cpu", watch=StopAt(4))
    train(config, tmp_path / "parts", tmp_path, device="cpu", resume=True, pause=0.0, watch=StopAt(-1))
    assert not (tmp_path / "parts" / "weights.safetensors").exists()  # paused before the end
    train(config, tmp_path / "parts", tmp_path, device="cpu", resume=True, watch=StopAt(-1))
    assert_same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    last = json.loads((tmp_path / "parts" / "log.jsonl").read_text().splitlines()[-1])
    assert {"cost", "best_cost", "greedy_cost", "greedy_gap", "average_greedy_gap"} <= last.keys()
    assert last["best_cost"] < last["cost"]
    assert (tmp_path / "parts" / "curves.png").exists()


def test_instances_are_fresh_and_the_held_out_ones_never_trained_on():
    run = Reinforce(RL, PROBLEMS["TSP"], CPU, generator(0))
    drawn = [run.draw(number, 4).coords for number in range(5)] + [run.held_out(4).coords]
    for first, second in pairwise(drawn):
        assert not torch.equal(first, second)
    assert torch.equal(run.draw(3, 4).coords, drawn[3])
    run.batches = 25_000
    assert run.passes == 1


def test_the_papers_setting(request, tmp_path):
    path = request.config.rootpath / "configs" / "rl_tsp20.toml"
    config = read_config(path)
    assert (config.method, config.customers, config.instances, config.epochs) == ("reinforce", 20, 100_000, 40)
    assert config.starts == 0  # all nodes
    tiny = ["customers=6", "batch=3", "instances=6", "epochs=2", "tokens=500"]
    tiny += [f"model.{key}={value}" for key, value in (("dim", 8), ("heads", 1), ("feed_forward", 8))]
    train(read_config(path, [*tiny, "model.decoder_layers=1"]), tmp_path / "run", device="cpu")
    assert '"greedy_cost"' in (tmp_path / "run" / "log.jsonl").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "evolution"}, "method"),
        ({"recipe": "soup"}, "recipe"),
        ({"recipe": "uniform_cvrp"}, "draws no TSP"),
        ({"customers": 3}, "customers"),
        ({"starts": 1}, "starts"),
        ({"entropy": -0.1}, "entropy"),
        ({"entropy": 0.1, "method": "supervised", "data": CONFIG.data}, "entropy"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(LehdError, match=message):
        replace(RL, **changes)


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_with_a_share_the_gradient_is_that_of_the_decisions_that_count_most(make):
    instances, problem, model, begin, rollout = samples(make, batch=5)
    advantage = sampled_costs(problem, instances, begin, rollout)
    advantage = (advantage.mean(1, keepdim=True) - advantage).float().flatten() / 20
    taken = []
    for batch in replay(problem, instances, begin, rollout):
        loss, _ = cross_entropy(model, problem, batch)
        counts = advantage.abs() * (1 - (-loss.detach()).exp())
        most = counts >= counts.sort(descending=True).values[5]  # 0.3 of 20
        taken.append(int(most.sum()))
        (loss * advantage)[most].sum().backward()
    assert set(taken) == {6}
    expected = [p.grad.clone() for p in model.parameters()]

    model.zero_grad()
    reinforce(model, problem, instances, begin.start.view(5, 4), 20, generator(0), share=0.3)
    for parameter, gradient in zip(model.parameters(), expected):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_being_unsure_is_worth_something(make):
    """With `entropy` the gradient is that of the expected cost minus what the entropy of all decisions is worth."""
    instances, problem, model, begin, rollout = samples(make, batch=5)
    reinforce(model, problem, instances, begin.start.view(5, 4), 20, generator(0))
    for batch in replay(problem, instances, begin, rollout):
        logits = log_probabilities(model, problem, batch)
        unsure = torch.distributions.Categorical(logits=logits.clamp(min=-1e6)).entropy().sum()
        (-0.3 / 20 * unsure).backward()
    expected = [p.grad.clone() for p in model.parameters()]

    model.zero_grad()
    reinforce(model, problem, instances, begin.start.view(5, 4), 20, generator(0), entropy=0.3)
    for parameter, gradient in zip(model.parameters(), expected):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(("problem", "recipe"), [("TSP", "uniform_tsp"), ("CVRP", "uniform_cvrp")])
@pytest.mark.parametrize(("share", "entropy"), [(1.0, 0.0), (0.3, 0.01)])
def test_a_step_depends_on_numbers_alone_never_on_what_they_are(problem, recipe, share, entropy):
    """So that it can be recorded: tensors without values stand for those of a GPU, and asking for one fails."""
    sizes = tiny_model(PROBLEMS[problem]).config
    config = replace(RL, problem=problem, recipe=recipe, hardest=share, entropy=entropy, model=sizes)
    with FakeTensorMode(allow_non_fake_inputs=True):
        feed = Reinforce(config, PROBLEMS[problem], CPU, generator(0))
        feed.instances = feed.draw(0, config.batch).to(CPU).map(torch.empty_like)
        sums = feed.backward(LEHD(sizes))
    assert sums.shape == (3,)


def test_recordings_find_every_batch_in_the_same_place():
    """A recorded step reads what was there when it was recorded: other instances must come to the same place."""
    feed = Reinforce(RL, PROBLEMS["TSP"], CPU, generator(0))
    feed.load()
    place, first = feed.instances.coords.data_ptr(), feed.instances.coords.clone()
    feed.load()
    assert feed.instances.coords.data_ptr() == place
    assert torch.equal(feed.instances.coords, feed.draw(1, RL.batch).coords)
    assert not torch.equal(feed.instances.coords, first)


@pytest.mark.parametrize(("changes", "recorded"), [({}, True), ({"tokens": 400 // 4, "batch": 400}, False)])
def test_steps_of_too_many_parts_are_not_recorded(changes, recorded):
    feed = Reinforce(replace(RL, **changes), PROBLEMS["TSP"], CPU, generator(0))
    assert (feed.key is not None) is recorded


def test_equal_tours_cost_the_same_from_wherever_they_start():
    """The positions that training draws, one tour from each of its nodes: nothing to learn, as far as numbers go."""
    config = replace(RL, customers=20, model=tiny_model(PROBLEMS["TSP"]).config)
    instances = Reinforce(config, PROBLEMS["TSP"], CPU, generator(0)).draw(0, 30)
    starts = torch.arange(20).expand(30, -1)
    begin = starting_states(PROBLEMS["TSP"], instances, starts)
    onward = (begin.start[:, None] + torch.arange(1, 20)) % 20
    rollout = Rollout(onward, torch.zeros_like(onward, dtype=torch.bool), torch.zeros(600))
    cost = sampled_costs(PROBLEMS["TSP"], instances, begin, rollout)
    assert float(((cost - cost.mean(1, keepdim=True)).abs() / cost).max()) < 1e-9
