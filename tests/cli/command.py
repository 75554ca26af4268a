"""Running the command line inside the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from lehd.cli import app

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
HARBOUR, BAKERY = EXAMPLES / "harbour.tsp", EXAMPLES / "bakery.vrp"
ALONE = ("--processes", "1", "--device", "cpu")  # many files one after the other, in this process


def lehd_command(*words: object, **options: Any) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False, **options)
