"""Where to compute."""

from __future__ import annotations

import torch

from lehd.errors import LehdError

KINDS = ("cpu", "cuda")


def find_device(name: str | torch.device | None) -> torch.device:
    """The device of that name, or a GPU if there is one; LehdError if it cannot be used."""
    try:
        where = torch.device("cuda" if torch.cuda.is_available() else "cpu") if name is None else torch.device(name)
        if where.type not in KINDS:
            raise LehdError(f"device {name}: expected {' or '.join(KINDS)}")
        torch.empty(0, device=where)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise LehdError(f"device {name}: {str(error).splitlines()[0]}") from None
    return where
