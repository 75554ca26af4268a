"""Distance rules: how long an edge is.

A rule measures two tensors of positions (..., 2) elementwise, in float64. Rules that round give whole numbers
(int64), so that sums are exact and "strictly shorter" means what it says. TSPLIB's rules follow the TSPLIB95 text,
its own value of pi included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

EARTH_RADIUS_METRES = 6_371_008.8  # mean radius (IUGG)
TSPLIB_EARTH_RADIUS_KM = 6378.388
TSPLIB_PI = 3.141592
NOISE = 1e-12  # relative: the same edges added up in another order differ by as much


def euclidean(a: Tensor, b: Tensor) -> Tensor:
    return torch.hypot(a[..., 0] - b[..., 0], a[..., 1] - b[..., 1])


def euclidean_nearest(a: Tensor, b: Tensor) -> Tensor:
    return torch.floor(euclidean(a, b) + 0.5).long()


def euclidean_up(a: Tensor, b: Tensor) -> Tensor:
    return torch.ceil(euclidean(a, b)).long()


def pseudo_euclidean(a: Tensor, b: Tensor) -> Tensor:
    """ATT: a tenth of the squared length under the root, rounded up."""
    return torch.ceil(((a - b).square().sum(-1) / 10).sqrt()).long()


def geographical(a: Tensor, b: Tensor) -> Tensor:
    """GEO: whole kilometres between DDD.MM positions (latitude, longitude)."""

    def radians(position: Tensor) -> Tensor:
        degrees = position.trunc()
        return TSPLIB_PI * (degrees + 5.0 * (position - degrees) / 3.0) / 180.0

    a, b = radians(a), radians(b)
    along = torch.cos(a[..., 1] - b[..., 1])
    minus, plus = torch.cos(a[..., 0] - b[..., 0]), torch.cos(a[..., 0] + b[..., 0])
    cosine = (0.5 * ((1 + along) * minus - (1 - along) * plus)).clamp(-1, 1)
    return (TSPLIB_EARTH_RADIUS_KM * torch.acos(cosine) + 1.0).floor().long()


def haversine(a: Tensor, b: Tensor) -> Tensor:
    """Metres on the sphere between (latitude, longitude) in degrees."""
    a, b = torch.deg2rad(a), torch.deg2rad(b)
    half = ((b - a) / 2).sin().square()
    chord = half[..., 0] + a[..., 0].cos() * b[..., 0].cos() * half[..., 1]
    return 2 * EARTH_RADIUS_METRES * torch.asin(chord.clamp(0, 1).sqrt())


@dataclass(frozen=True)
class Rule:
    """A named distance rule. `measure` is None where an explicit matrix gives the distances."""

    name: str
    measure: Callable[[Tensor, Tensor], Tensor] | None
    geographic: bool = False  # positions are (latitude, longitude)


EUCLIDEAN = Rule("euclidean", euclidean)
EUC_2D = Rule("EUC_2D", euclidean_nearest)
CEIL_2D = Rule("CEIL_2D", euclidean_up)
ATT = Rule("ATT", pseudo_euclidean)
GEO = Rule("GEO", geographical, geographic=True)
HAVERSINE = Rule("haversine", haversine, geographic=True)
EXPLICIT = Rule("EXPLICIT", None)

RULES = {rule.name: rule for rule in (EUCLIDEAN, EUC_2D, CEIL_2D, ATT, GEO, HAVERSINE, EXPLICIT)}


def strictly_shorter(new: Tensor, old: Tensor) -> Tensor:
    """Where a cost is less than another by more than rounding; whole numbers are compared exactly."""
    return new < old - NOISE * old.abs() if old.is_floating_point() else new < old
