import torch

from lehd.model.ends import look_up, with_ends


def usual(embeddings, places, first, second):
    seen = embeddings[places]
    start, destination = seen[:, 0] @ first, seen[:, 1] @ second
    return torch.cat([start[:, None], destination[:, None], seen[:, 2:]], 1)


def quick(embeddings, places, first, second):
    ends, seen = look_up(embeddings, places)
    return with_ends(seen, ends[:, 0] @ first, ends[:, 1] @ second)


def test_values_and_gradients_are_those_of_slices_put_together():
    torch.manual_seed(0)
    inputs = [torch.randn(12, 4, dtype=torch.double), *torch.randn(2, 4, 4, dtype=torch.double)]
    inputs = [each.requires_grad_() for each in inputs]
    places = torch.tensor([[3, 3, 0, 1], [5, 6, 7, 4], [9, 8, 10, 9]])  # a depot may come twice; not every node is seen
    embeddings, first, second = inputs
    found, wanted = (work(embeddings, places, first, second) for work in (quick, usual))
    assert torch.equal(found, wanted)
    weights = torch.randn_like(wanted)
    for one, two in zip(
        torch.autograd.grad((found * found * weights).sum(), inputs),
        torch.autograd.grad((wanted * wanted * weights).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(one, two)


def test_embeddings_are_not_written_to():
    embeddings = torch.randn(6, 4)
    before = embeddings.clone()
    quick(embeddings, torch.tensor([[0, 1, 2], [3, 4, 5]]), torch.zeros(4, 4), torch.zeros(4, 4))
    assert torch.equal(embeddings, before)
