import copy

import pytest
import torch

from lehd.errors import LehdError
from lehd.problems import PROBLEMS
from lehd.training.config import TrainConfig
from lehd.training.optimizer import LIKE_ADAMW, Muon, make_optimizers, orthogonal_all
from tests.builders import tiny_model

CPU = torch.device("cpu")


def test_orthogonal_keeps_directions_and_evens_out_their_sizes():
    torch.manual_seed(0)
    stacks = [torch.randn(shape) for shape in [(3, 16, 16), (2, 16, 40), (1, 40, 16), (2, 16, 16)]]
    for matrices, found in zip(stacks, orthogonal_all(stacks), strict=True):
        assert found.shape == matrices.shape
        u, _, v = torch.linalg.svd(matrices, full_matrices=False)
        sizes = torch.linalg.svdvals(found)
        assert sizes.min() > 0.3  # the iteration is a rough one, and the smallest were a hundredth of the largest
        assert sizes.max() < 1.3
        assert torch.nn.functional.cosine_similarity(found.flatten(1), (u @ v).flatten(1)).min() > 0.95


def test_every_parameter_has_one_optimizer_and_matrices_of_layers_have_muon():
    model = tiny_model(PROBLEMS["TSP"])
    optimizers = make_optimizers(model, TrainConfig(steps=1, optimizer="muon", model=model.config), CPU)
    names = {id(p): name for name, p in model.named_parameters()}
    owned = [[names[id(p)] for group in each.param_groups for p in group["params"]] for each in optimizers]
    assert sorted(owned[0] + owned[1]) == sorted(names.values())
    assert all(name.startswith(("encoder.", "decoder.")) and name.endswith("weight") for name in owned[1])
    assert len(owned[1]) == 4 * (1 + model.config.decoder_layers)


def test_a_step_of_muon_is_as_large_as_one_of_adamw_and_q_k_v_are_apart():
    torch.manual_seed(0)
    matrix = torch.randn(24, 8, requires_grad=True)
    gradient = torch.randn(24, 8)
    gradient[:8] *= 1000  # of q: it must not drown those of k and v
    before = matrix.detach().clone()
    optimizer = Muon([], [matrix], torch.tensor(0.1), weight_decay=0.0)
    matrix.grad = gradient
    optimizer.step()
    change = (before - matrix.detach()) / 0.1
    for part in change.view(3, 8, 8):
        assert part.square().mean().sqrt() == pytest.approx(LIKE_ADAMW, rel=0.3)


def test_only_the_matrices_of_q_k_and_v_are_three_in_one():
    """Also where the hidden features are three times as many as the others."""
    model = tiny_model(PROBLEMS["TSP"], feed_forward=48)
    _, muon = make_optimizers(model, TrainConfig(steps=1, optimizer="muon", model=model.config), CPU)
    pieces = {id(p): group["pieces"] for group in muon.param_groups for p in group["params"]}
    assert model.encoder.ff_in.weight.shape == model.encoder.qkv.weight.shape
    assert pieces[id(model.encoder.qkv.weight)] == 3
    assert pieces[id(model.encoder.ff_in.weight)] == 1


def test_a_step_that_is_not_finite_changes_nothing():
    torch.manual_seed(0)
    matrix = torch.randn(8, 8, requires_grad=True)
    optimizer = Muon([matrix], [], torch.tensor(0.1), weight_decay=0.1)
    matrix.grad = torch.randn(8, 8)
    optimizer.step()
    before, kept = matrix.detach().clone(), copy.deepcopy(optimizer.state[matrix]["momentum"])
    matrix.grad = torch.full((8, 8), torch.nan)
    optimizer.found_inf = torch.tensor(1.0)
    optimizer.step()
    assert torch.equal(matrix, before)
    assert torch.equal(optimizer.state[matrix]["momentum"], kept)


def test_muon_finds_a_linear_map():
    torch.manual_seed(0)
    wanted, found = torch.randn(8, 8), torch.zeros(8, 8, requires_grad=True)
    optimizer = Muon([found], [], torch.tensor(0.0), weight_decay=0.0)
    for step in range(300):
        optimizer.param_groups[0]["lr"].fill_(0.2 * (1 - step / 300))
        found.grad = found.detach() - wanted
        optimizer.step()
    assert (found.detach() - wanted).norm() < 0.05 * wanted.norm()


def test_an_unknown_optimizer_is_refused_by_name():
    with pytest.raises(LehdError, match="sgd"):
        TrainConfig(steps=1, optimizer="sgd")
