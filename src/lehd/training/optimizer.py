"""What changes the weights: AdamW for all of them, or Muon for the layers' matrices and AdamW for the rest.

Muon is momentum whose matrices are made orthogonal, so that an update turns all directions by as much (Keller Jordan
and others, 2024). It is scaled as by Liu and others (2025), "Muon is scalable for LLM training": an entry changes by as
much as with AdamW, whose learning rates then fit.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from lehd.model.attention import AttentionLayer
from lehd.model.lehd import LEHD
from lehd.training.config import MUON, TrainConfig

MOMENTUM = 0.95
ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the odd polynomial that takes every singular value to about 1
LIKE_ADAMW = 0.2  # the root mean square of an AdamW update


def make_optimizers(model: LEHD, config: TrainConfig, device: torch.device) -> list[torch.optim.Optimizer]:
    """Those of a configuration; each parameter belongs to one. Learning rates are tensors, to be filled in."""
    matrices: list[Tensor] = []
    triples: list[Tensor] = []
    if config.optimizer == MUON:
        layers = [layer for layer in [model.encoder, *model.decoder] if isinstance(layer, AttentionLayer)]
        triples = [layer.qkv.weight for layer in layers]
        matrices = [p for layer in layers for p in layer.parameters() if p.ndim == 2 and p is not layer.qkv.weight]
    taken = {id(matrix) for matrix in [*matrices, *triples]}
    adamw = torch.optim.AdamW(
        [p for p in model.parameters() if id(p) not in taken],
        lr=torch.tensor(0.0, device=device),
        betas=config.betas,
        weight_decay=config.weight_decay,
        fused=True,
        capturable=device.type == "cuda",
    )
    if not matrices:
        return [adamw]
    return [adamw, Muon(matrices, triples, torch.tensor(0.0, device=device), config.weight_decay)]


class Muon(torch.optim.Optimizer):
    """For matrices only; `triples` are three of equal shape in one, such as those of q, k and v.

    `found_inf`, a tensor, may be set as for fused optimizers: where it is 1 nothing changes.
    """

    def __init__(self, matrices: list[Tensor], triples: list[Tensor], lr: Tensor, weight_decay: float):
        groups = [{"params": each, "pieces": pieces} for each, pieces in ((matrices, 1), (triples, 3)) if each]
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay})
        for group in self.param_groups:
            for matrix in group["params"]:
                self.state[matrix]["momentum"] = torch.zeros_like(matrix)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        skip = getattr(self, "found_inf", None)
        stacks: list[tuple[list[Tensor], dict[str, Any]]] = []  # matrices of equal shape, and their group
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for matrix in group["params"]:
                by_shape[matrix.shape].append(matrix)
            stacks += [(matrices, group) for matrices in by_shape.values()]
        updates = orthogonal_all([self._direction(matrices, group["pieces"], skip) for matrices, group in stacks])
        for (matrices, group), update in zip(stacks, updates, strict=True):
            _move(matrices, update, group["lr"], group["weight_decay"], skip)

    def _direction(self, matrices: list[Tensor], pieces: int, skip: Tensor | None) -> Tensor:
        """Where to move matrices of equal shape, the pieces of each apart (K, r, c); their momentum goes on."""
        kept = [self.state[matrix]["momentum"] for matrix in matrices]
        gradient = torch.stack([matrix.grad for matrix in matrices if matrix.grad is not None])
        before = torch.stack(kept)
        after = before.lerp(gradient, 1 - MOMENTUM)
        kept_on = after if skip is None else torch.where(skip > 0, before, after)
        torch._foreach_copy_(kept, list(kept_on.unbind()))
        rows, columns = gradient.shape[1:]
        direction = gradient.lerp(after, MOMENTUM)  # Nesterov's
        return direction.view(-1, rows // pieces, columns)


def _move(matrices: list[Tensor], update: Tensor, rate: Tensor, decay: float, skip: Tensor | None) -> None:
    old = torch.stack(matrices)
    far = rate * (LIKE_ADAMW * math.sqrt(max(update.shape[1:])))
    new = torch.addcmul(old * (1 - rate * decay), update.reshape(old.shape), -far)
    if skip is not None:
        new = torch.where(skip > 0, old, new)
    torch._foreach_copy_(matrices, list(new.unbind()))


def orthogonal_all(stacks: list[Tensor]) -> list[Tensor]:
    """`orthogonal` of each; those that have the same shape, lying or standing, are worked on together."""
    together: dict[tuple[int, ...], list[int]] = defaultdict(list)
    lying = [stack.mT if stack.shape[1] > stack.shape[2] else stack for stack in stacks]
    for number, stack in enumerate(lying):
        together[tuple(stack.shape[1:])].append(number)
    found = list(stacks)
    for numbers in together.values():
        done = orthogonal(torch.cat([lying[number] for number in numbers]))
        for number, part in zip(numbers, torch.split_with_sizes(done, [len(stacks[n]) for n in numbers]), strict=True):
            found[number] = part if lying[number] is stacks[number] else part.mT
    return found


def orthogonal(matrices: Tensor) -> Tensor:
    """The nearest matrices (K, r, c), r <= c, whose singular values are all 1, roughly, by Newton-Schulz iteration."""
    a, b, c = COEFFICIENTS
    x = matrices.bfloat16()
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.float()
