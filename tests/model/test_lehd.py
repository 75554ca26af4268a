import math

import pytest
import torch

from lehd.errors import LehdError
from lehd.model.attention import attend
from lehd.model.lehd import LEHD, ModelConfig
from lehd.problems import of
from lehd.types import State
from tests.builders import cvrp, generator, random_solution, tiny_model, tsp


@pytest.mark.parametrize("norm", ["none", "batch", "instance"])
@pytest.mark.parametrize("make", [tsp, cvrp])
def test_scores_do_not_depend_on_the_order_of_nodes(make, norm):
    """Teacher forcing puts the right answer in slot 0: safe only if the model cannot tell."""
    instances = make(3, 14)
    problem = of(instances)
    model = tiny_model(problem, norm=norm)
    partial = problem.cut(instances, random_solution(instances), 9)
    state, part = partial.state(2), partial.instances
    embeddings = model.encode(problem.features(part, box=True))
    scores = model.score(embeddings, state, problem.context(part, state))

    shuffle = torch.rand(state.available.shape, generator=generator(1)).argsort(1)
    shuffled = State(
        state.instance, state.start, state.destination, state.available.gather(1, shuffle), state.resources
    )
    again = model.score(embeddings, shuffled, problem.context(part, state))
    torch.testing.assert_close(again, scores.gather(1, shuffle[..., None].expand_as(scores)), atol=1e-5, rtol=1e-4)

    renumbered = torch.rand(3, part.num_nodes, generator=generator(2)).argsort(1)  # new place -> old node
    place = renumbered.argsort(1)
    moved = State(
        state.instance,
        place.gather(1, state.start[:, None])[:, 0],
        place.gather(1, state.destination[:, None])[:, 0],
        place.gather(1, state.available),
        state.resources,
    )
    features = problem.features(part, box=True).gather(1, renumbered[..., None].expand(-1, -1, problem.num_features))
    again = model.score(model.encode(features), moved, problem.context(part, state))
    torch.testing.assert_close(again, scores, atol=1e-5, rtol=1e-4)


def test_nodes_that_are_done_do_not_reach_the_decoder():
    instances = tsp(1, 10)
    problem = of(instances)
    model = tiny_model(problem)
    embeddings = model.encode(problem.features(instances, box=True))
    state = State(torch.tensor([0]), torch.tensor([0]), torch.tensor([1]), torch.tensor([[2, 3, 4]]), torch.zeros(1, 0))
    before = model.score(embeddings, state, state.resources)
    changed = embeddings.clone()
    changed[0, 5:] += 7
    assert torch.equal(model.score(changed, state, state.resources), before)
    changed[0, 1] += 7
    assert not torch.equal(model.score(changed, state, state.resources), before)


def test_rows_of_one_instance_are_scored_independently():
    instances = cvrp(2, 8)
    problem = of(instances)
    model = tiny_model(problem)
    embeddings = model.encode(problem.features(instances, box=True))
    state = problem.initial_state(instances).repeat(3)
    context = torch.rand(6, 1, generator=generator(0))
    together = model.score(embeddings, state, context)
    for row in range(6):
        alone = model.score(embeddings, state.rows(torch.tensor([row])), context[row : row + 1])
        torch.testing.assert_close(alone[0], together[row], atol=1e-6, rtol=1e-5)


def test_the_remaining_capacity_matters():
    instances = cvrp(1, 8)
    problem = of(instances)
    model = tiny_model(problem)
    embeddings = model.encode(problem.features(instances, box=True))
    state = problem.initial_state(instances)
    scores = [model.score(embeddings, state, torch.tensor([[left]])) for left in (0.2, 0.9)]
    assert scores[0].shape == (1, 8, 2)
    assert not torch.allclose(*scores)


def test_the_papers_size():
    """1.42 million parameters: embedding, one encoder and six decoder layers, two projections, one head."""
    layer = 3 * 128 * 128 + (128 * 128 + 128) + (128 * 512 + 512) + (512 * 128 + 128)
    expected = (2 * 128 + 128) + 7 * layer + 2 * (128 * 128 + 128) + (128 + 1)
    assert sum(parameter.numel() for parameter in LEHD(ModelConfig()).parameters()) == expected == 1_415_169


@pytest.mark.parametrize("wrong", [{"norm": "layer"}, {"dim": 10}, {"decoder_layers": 0}, {"num_resources": -1}])
def test_impossible_sizes_are_refused(wrong):
    with pytest.raises(LehdError):
        ModelConfig(**wrong)


def test_half_precision_of_the_layers_leaves_positions_and_scores_exact():
    """A CPU's half precision stands in for a GPU's. In it, positions near 1 are 0.004 apart."""
    model = LEHD(ModelConfig(dim=32, heads=4, feed_forward=64, decoder_layers=2))
    instances = tsp(2, 12)
    near = torch.full((1, 12, 2), 0.9)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        moved = model.encode(near + 1e-4) - model.encode(near)
        problem = of(instances)
        state = problem.initial_state(instances)
        embeddings = model.encode(problem.features(instances, True))
        logits = model.score(embeddings, state, problem.context(instances, state))
    assert moved.abs().amin(1).max() > 1e-6
    assert embeddings.dtype == logits.dtype == torch.float32
    assert (logits != logits.bfloat16().float()).any()


@pytest.mark.parametrize(
    ("length", "factor"), [(50, 1.0), (102, 1.0), (204, 1 + 0.25 * math.log(2)), (1020, 1 + 0.25 * math.log(10))]
)
def test_attention_among_many_nodes_is_sharpened(length, factor):
    """Scores are multiplied by the factor: the same as with queries that much longer."""
    torch.manual_seed(0)
    qkv = torch.randn(2, length, 3 * 32)
    longer = torch.cat([factor * qkv[..., :32], qkv[..., 32:]], 2)
    assert torch.allclose(attend(qkv, 4, sharpen=0.25), attend(longer, 4), atol=1e-6)


def test_a_model_sharpens_all_its_layers_where_its_configuration_says_so():
    sizes = {"dim": 32, "heads": 4, "feed_forward": 64, "decoder_layers": 2}
    plain, sharp = LEHD(ModelConfig(**sizes)), LEHD(ModelConfig(**sizes, sharpen=0.5))
    sharp.load_state_dict(plain.state_dict())
    assert all(layer.sharpen == 0.5 for layer in [sharp.encoder, *sharp.decoder])
    few, many = torch.rand(1, 102, 2), torch.rand(1, 400, 2)
    assert torch.equal(plain.encode(few), sharp.encode(few))
    assert not torch.allclose(plain.encode(many), sharp.encode(many))
