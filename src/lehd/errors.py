"""The errors a user can cause. Each message says what is wrong and what was expected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class LehdError(ValueError):
    """Bad input: the command line prints the message and exits with code 2."""


class InfeasibleError(LehdError):
    """A solution that misses or repeats a node, or overloads a vehicle."""


@contextmanager
def writing(path: Path, consolation: Callable[[], str] = str) -> Iterator[None]:
    """Says where nothing could be written, a full disk for example, and what there is to console the user."""
    try:
        yield
    except OSError as error:
        raise LehdError(f"{path}: cannot write ({error.strerror or error}){consolation()}") from error
