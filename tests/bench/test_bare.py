"""On a bare machine there is torch, numpy and safetensors, and nothing that draws, colours or makes labels."""

import subprocess
import sys

import pytest

ABSENT = ("typer", "rich", "matplotlib", "pandas", "ortools", "fast_tsp", "hygese", "pyvrp", "vroom")


@pytest.mark.parametrize(
    "module", ["uniform", "library", "peers", "speed", "train", "report", "make", "work", "pieces", "unseen"]
)
def test_the_module_starts(module):
    script = f"""
import sys
sys.modules.update(dict.fromkeys({ABSENT!r}))
sys.argv = ["bench", "--help"]
import runpy
runpy.run_module("lehd.bench.{module}", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout
