from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from lehd.cli import bar
from lehd.cli.train import Bar, Labels, duration, state_words
from lehd.training import loop
from lehd.training.prepare import Made
from tests.cli.command import lehd_command
from tests.training.circles import write_circles

TOML = """
data = ["circle.npz"]
steps = 4
tokens = 600
held_out = 40
average = 0.9
[model]
dim = 16
heads = 2
feed_forward = 32
decoder_layers = 1
"""


@pytest.fixture
def place(tmp_path):
    write_circles(tmp_path)
    (tmp_path / "run.toml").write_text(TOML)
    return tmp_path


def run(place, *words):
    fixed = ["--data", place, "--output", place / "out", "--device", "cpu"]
    return lehd_command("train", place / "run.toml", *fixed, *words)


def test_a_run_leaves_log_weights_and_curves_and_can_go_on(place):
    done = run(place)
    assert done.exit_code == 0
    assert "greedy gap" in done.stderr
    assert "of the averaged weights" in done.stderr
    names = {path.name for path in (place / "out").iterdir()}
    assert names >= {"log.jsonl", "weights.safetensors", "average.safetensors", "curves.png", "checkpoint.json"}
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["step"] == 4
    assert last == json.loads((place / "out" / "log.jsonl").read_text().splitlines()[-1])
    assert last["average_validation_loss"] != last["validation_loss"]

    again = run(place)
    assert again.exit_code == 2
    assert "--resume" in again.stderr
    more = run(place, "--resume", "--set", "steps=6", "--set", "seed=3")
    assert more.exit_code == 0
    assert json.loads(more.stdout.splitlines()[-1])["step"] == 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "steps"], "NAME=VALUE"),
        (["--set", 'steps="many"'], "expected int"),
        (["--set", "model.depth=3"], "depth"),
        (["--set", 'data=["missing.npz"]'], "missing.npz"),
        (["--data", "missing.npz"], "missing.npz"),
        (["--init", "missing.safetensors"], "missing.safetensors"),
        (["--device", "abacus"], "abacus"),
        (["--set", "average=1.0"], "average"),
    ],
)
def test_mistakes_end_in_one_line(place, words, message):
    done = run(place, *words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_self_improvement_takes_one_folder(place, monkeypatch, capsys):
    (place / "si.toml").write_text("rounds = 1\n[label]\n[train]\nsteps = 1\n")
    words = [str(place / "si.toml"), "--output", str(place / "out")]
    for data in ([place, place], [place / "circle.npz"], [place / "nowhere"]):
        done = lehd_command("train", *words, *(word for path in data for word in ("--data", path)))
        assert done.exit_code == 2
        assert "give one --data, the folder" in done.stderr
        monkeypatch.setattr(sys, "argv", ["loop", *words, "--data", *map(str, data)])
        with pytest.raises(SystemExit, match="give one --data, the folder"):
            loop.main()


def test_a_run_does_not_fail_for_its_picture(place):
    (place / "out" / "curves.png").mkdir(parents=True)
    done = run(place)
    assert done.exit_code == 0
    assert "no picture: " in done.stderr
    assert "curves in" not in done.stderr
    assert (place / "out" / "weights.safetensors").exists()


def test_progress_in_words():
    line = {"loss": 0.12345, "accuracy": 0.9, "tokens_per_second": 6.3e6}
    trainer = SimpleNamespace(step=7, seconds=100.0, progress=0.25, glance=lambda: line)
    assert state_words(trainer) == "step 7, loss 0.1235, accuracy 90.0 %, 6.3 Mtok/s, 5:00 left"
    assert duration(3661) == "1:01:01"


def test_only_the_process_that_writes_looks():
    bar = Bar()
    bar.bars.disable = False  # as on a terminal
    looks = []
    trainer = SimpleNamespace(progress=0.5, processes=SimpleNamespace(writes=False), glance=lambda: looks.append(1))
    bar.stepped(trainer)
    assert not looks


BARE = """
import sys
for name in ("typer", "rich", "matplotlib"):
    sys.modules[name] = None
from lehd.training import loop
loop.main()
"""


def test_the_module_runs_without_the_command_lines_packages(place):
    words = [str(place / "run.toml"), "--output", str(place / "bare"), "--data", str(place), "--device", "cpu"]
    words += ["--set", "steps=2", 'data=["circle.npz"]']
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", BARE, *words], text=True, capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["step"] == 2
    assert not (place / "bare" / "curves.png").exists()


def test_a_terminal_shows_labels_as_they_are_read(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(bar, "Console", lambda stderr: Console(file=screen, force_terminal=True, width=100))
    with Labels() as labels:
        labels(Made(0, 2, "reading one.npz"))
        assert "0/2 reading one.npz" in screen.getvalue()
        labels(Made(2, 2, "all are read"))
        assert not labels.bars.live.is_started  # the line belongs to training
