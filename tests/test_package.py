"""The wheel, installed away from the source tree, has everything that solving needs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, env=os.environ | environment, text=True, capture_output=True, check=True
    )


def test_the_installed_wheel_solves_the_examples(tmp_path):
    run("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path), cwd=ROOT)
    (wheel,) = tmp_path.glob("lehd-*.whl")
    site = tmp_path / "site"
    run("-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel), cwd=tmp_path)
    for name in ("harbour.tsp", "bakery.vrp"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    home = run("-c", "import lehd; print(lehd.__file__)", cwd=tmp_path, PYTHONPATH=str(site))
    assert Path(home.stdout.strip()).is_relative_to(site)
    assert (site / "lehd" / "model" / "cpu_kernel.c").exists()  # without it all goes well, but slowly
    command = ["-m", "lehd.cli", "solve", "harbour.tsp", "bakery.vrp", "--rrc", "1", "--output", "out", "--plot", "out"]
    run(*command, cwd=tmp_path, PYTHONPATH=str(site))
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"harbour.tour", "harbour.png", "bakery.sol", "bakery.png", "lehd-run.jsonl"}
    for name, solution in (("harbour.tsp", "out/harbour.tour"), ("bakery.vrp", "out/bakery.sol")):
        run("-m", "lehd.cli", "check", name, solution, cwd=tmp_path, PYTHONPATH=str(site))
