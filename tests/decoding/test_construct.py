import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lehd.decoding.construct import AHEAD, best_rows, construct, pace_of
from lehd.decoding.replay import Replays
from lehd.decoding.select import GREEDY, Beam, Sample
from lehd.decoding.stop import OutOfTime, Stop, max_iterations
from lehd.problems import of
from lehd.types import Rollout
from tests.builders import cvrp, generator, tiny_model, tsp


def solutions(instances, select, seed=0):
    problem = of(instances)
    state = problem.initial_state(instances)
    rollout = construct(tiny_model(problem, seed), problem, instances, state, select)
    return problem, state, rollout


@given(
    st.sampled_from([tsp, cvrp]),
    st.integers(1, 15),
    st.integers(0, 1000),
    st.sampled_from(["greedy", "sample", "beam"]),
)
@settings(max_examples=40)
def test_every_finished_row_is_feasible(make, size, seed, kind):
    instances = make(2, size, seed)
    select = {"greedy": GREEDY, "sample": Sample(3, generator(seed)), "beam": Beam(3)}[kind]
    problem, state, rollout = solutions(instances, select, seed)
    alive = rollout.log_probability > -torch.inf
    complete = problem.complete(state.repeat(select.width), rollout)
    rows = torch.arange(2).repeat_interleave(select.width)
    for row in range(len(rows)):
        if alive[row]:
            one = instances.rows(slice(int(rows[row]), int(rows[row]) + 1))
            problem.check(one, complete.rows(slice(row, row + 1)))
    assert alive.view(2, -1).any(1).all()


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_a_beam_of_one_is_greedy(make):
    instances = make(4, 12)
    _, _, greedy = solutions(instances, GREEDY)
    _, _, beam = solutions(instances, Beam(1))
    assert torch.equal(greedy.nodes, beam.nodes)
    assert torch.equal(greedy.via_depot, beam.via_depot)
    torch.testing.assert_close(greedy.log_probability, beam.log_probability)


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_a_beam_that_holds_everything_finds_the_likeliest(make):
    """With four nodes all sequences fit into the beam: its best is at least as likely as greedy's or any sample's."""
    instances = make(3, 4, seed=2)
    _, _, greedy = solutions(instances, GREEDY)
    _, _, sample = solutions(instances, Sample(200, generator(0)))
    _, _, beam = solutions(instances, Beam(400))
    best = beam.log_probability.view(3, -1).amax(1)
    assert (best >= greedy.log_probability - 1e-5).all()
    assert (best >= sample.log_probability.view(3, -1).amax(1) - 1e-5).all()
    # All sequences together have probability one.
    torch.testing.assert_close(beam.log_probability.view(3, -1).exp().sum(1), torch.ones(3), atol=1e-4, rtol=1e-4)


def test_log_probabilities_are_those_of_the_choices():
    instances = cvrp(3, 10)
    problem, state, rollout = solutions(instances, Sample(2, generator(3)))
    model = tiny_model(problem)
    embeddings = model.encode(problem.features(instances, box=True))
    total, state = torch.zeros(6), state.repeat(2)
    for step in range(10):
        logits = model.score(embeddings, state, problem.context(instances, state))
        logits = logits.masked_fill(~problem.feasible(instances, state), -torch.inf).flatten(1).log_softmax(1)
        slot = (state.available == rollout.nodes[:, step : step + 1]).long().argmax(1)
        flag = rollout.via_depot[:, step]
        total = total + logits.gather(1, (2 * slot + flag)[:, None])[:, 0]
        state = problem.advance(instances, state, slot, flag)
    torch.testing.assert_close(total, rollout.log_probability, atol=1e-4, rtol=1e-4)


def test_sampling_follows_the_models_distribution():
    instances = tsp(1, 4)
    _, _, sample = solutions(instances, Sample(20_000, generator(1)))
    first = torch.bincount(sample.nodes[:, 0], minlength=4) / 20_000
    problem = of(instances)
    model, state = tiny_model(problem), problem.initial_state(instances)
    logits = model.score(model.encode(problem.features(instances, True)), state, state.resources)
    torch.testing.assert_close(first[1:], logits.flatten().softmax(0), atol=0.02, rtol=0)


def test_best_rows_ignores_rows_that_do_not_count():
    instances = tsp(1, 5)
    problem = of(instances)
    state = problem.initial_state(instances)
    nodes = torch.tensor([[1, 2, 3, 4], [2, 1, 4, 3], [4, 2, 1, 3]])
    costs = problem.path_cost(
        instances, torch.zeros(1, 3).long(), nodes[None], torch.zeros(1, 3, 4).bool(), torch.zeros(1, 3).long()
    )[0]
    order = costs.argsort()
    alive = torch.zeros(3)
    via = torch.zeros(3, 4, dtype=torch.bool)
    assert best_rows(problem, instances, state, Rollout(nodes, via, alive), 3).tolist() == [int(order[0])]
    alive[order[0]] = -torch.inf
    assert best_rows(problem, instances, state, Rollout(nodes, via, alive), 3).tolist() == [int(order[1])]


def test_construction_stops_when_the_time_is_up(monkeypatch):
    """Before everything is embedded, which may take long."""
    monkeypatch.setattr("lehd.decoding.construct.embed", lambda *_: pytest.fail("there is no time for it"))
    instances = tsp(1, 10)
    problem = of(instances)
    state, stop = problem.initial_state(instances), Stop(deadline=0.0)
    with pytest.raises(OutOfTime):
        construct(tiny_model(problem), problem, instances, state, stop=stop)
    with pytest.raises(OutOfTime):
        Replays(tiny_model(problem), problem, record=lambda work: None).construct(instances, state, stop=stop)


def test_on_a_gpu_no_step_is_launched_long_before_the_stop_is_asked(monkeypatch):
    cuda, stop = torch.device("cuda"), max_iterations(3)
    assert pace_of(stop, cuda, 7).ahead == 7
    assert pace_of(None, cuda, 7) is None
    assert pace_of(stop, torch.device("cpu"), 7) is None

    class Counted:
        steps = 0

        def step(self):
            self.steps += 1

    pace, asked = Counted(), []
    monkeypatch.setattr("lehd.decoding.construct.pace_of", lambda *given: asked.append(given) or pace)
    instances = tsp(2, 10)
    problem = of(instances)
    construct(tiny_model(problem), problem, instances, problem.initial_state(instances), stop=stop)
    assert asked == [(stop, torch.device("cpu"), AHEAD)]
    assert pace.steps == 9
