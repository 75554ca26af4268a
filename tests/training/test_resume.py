"""A run that is killed goes on as if nothing had happened."""

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

import lehd.training.checkpoint
from lehd.errors import LehdError
from lehd.model.checkpoint import load_model, save_model
from lehd.model.lehd import LEHD
from lehd.training.checkpoint import has_checkpoint, load_checkpoint
from lehd.training.loop import Trainer, train
from tests.training.circles import CONFIG, SMALL, write_circles

TOML = """
data = ["circle.npz"]
steps = 60
tokens = 600
warmup = 5
held_out = 40
log_every = 0.0
checkpoint_every = 0.0
average = 0.9
[model]
dim = 16
heads = 2
feed_forward = 32
decoder_layers = 1
"""


class StopError(Exception):
    pass


class StopAt:
    """Ends a run between two steps, as a kill would."""

    def __init__(self, step):
        self.step = step

    def stepped(self, trainer):
        if trainer.step == self.step:
            raise StopError

    def logged(self, record):
        pass


def weights(folder, name="weights"):
    return load_model(folder / f"{name}.safetensors").state_dict()


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


@pytest.mark.parametrize("change", [{}, {"average": 0.9}, {"states": "steps", "batch": 32, "epoch_decay": 0.9}])
def test_a_resumed_run_ends_with_the_same_weights(tmp_path, change):
    write_circles(tmp_path)
    config = replace(CONFIG, steps=40, tokens=600, checkpoint_every=0.0, **change)
    train(config, tmp_path / "whole", tmp_path, device="cpu", watch=StopAt(-1))
    for step in (9, 22):
        with pytest.raises(StopError):
            train(config, tmp_path / "parts", tmp_path, device="cpu", resume=True, watch=StopAt(step))
        facts = load_checkpoint(tmp_path / "parts").facts
        assert step - 7 < facts["step"] < step  # at most a batch of partial solutions of 8 nodes is lost
    train(config, tmp_path / "parts", tmp_path, device="cpu", resume=True, watch=StopAt(-1))
    for name in ("weights", "average") if config.average else ("weights",):
        assert_same(weights(tmp_path / "whole", name), weights(tmp_path / "parts", name))
    lines = [json.loads(line) for line in (tmp_path / "parts" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == sorted({line["step"] for line in lines})
    assert lines[-1]["step"] == 40


def command(folder, data, *words):
    options = ["--output", str(folder), "--data", str(data), "--device", "cpu", *words]
    return [sys.executable, "-m", "lehd.training.loop", str(data / "run.toml"), *options]


def test_kill_at_any_moment(tmp_path):
    write_circles(tmp_path)
    (tmp_path / "run.toml").write_text(TOML)
    quiet = {"stdout": subprocess.DEVNULL, "env": os.environ | {"OMP_NUM_THREADS": "1"}}
    subprocess.run(command(tmp_path / "whole", tmp_path), check=True, **quiet)
    draw, folder, kills = random.Random(1), tmp_path / "killed", 0
    while kills < 3:
        before = load_checkpoint(folder).facts["step"] if has_checkpoint(folder) else -1
        process = subprocess.Popen(command(folder, tmp_path, "--resume"), **quiet)
        while process.poll() is None:  # wait for it to get under way, then strike anywhere
            if has_checkpoint(folder) and step_on_disk(folder) > before:
                time.sleep(draw.uniform(0, 0.15))
                break
            time.sleep(0.01)
        kills += process.poll() is None
        process.kill()
        process.wait()
        now = load_checkpoint(folder).facts["step"]  # always readable
        assert now >= before
        if now == 60:
            break
    assert kills >= 1
    subprocess.run(command(folder, tmp_path, "--resume"), check=True, **quiet)
    assert_same(weights(tmp_path / "whole"), weights(folder))
    assert_same(weights(tmp_path / "whole", "average"), weights(folder, "average"))
    left = {path.name for path in (folder / "checkpoint").iterdir()}
    assert left == {f"{kind}-60.safetensors" for kind in ("weights", "average", "optimizer")}


def step_on_disk(folder):
    """The step on disk now; the files may be replaced while they are read, the manifest never is half there."""
    return json.loads((folder / "checkpoint.json").read_text())["step"]


FULL_DISK = """
import resource, sys
from lehd.training import loop
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))  # the log fits, weights do not
sys.argv[0] = "loop"
loop.main()
"""


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path):
    write_circles(tmp_path)
    (tmp_path / "run.toml").write_text(TOML.replace("steps = 60", "steps = 5"))
    subprocess.run(command(tmp_path / "run", tmp_path), check=True, capture_output=True)
    files = {path: path.read_bytes() for path in (tmp_path / "run" / "checkpoint").iterdir()}
    (tmp_path / "run.toml").write_text(TOML)
    words = command(tmp_path / "run", tmp_path, "--resume")
    ended = subprocess.run([words[0], "-c", FULL_DISK, *words[3:]], capture_output=True, text=True)
    assert ended.returncode != 0
    assert "cannot write (File too large)" in ended.stderr
    assert "last checkpoint is intact" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert load_checkpoint(tmp_path / "run").facts["step"] == 5
    assert {path: path.read_bytes() for path in (tmp_path / "run" / "checkpoint").iterdir()} == files


def test_unreadable_labels_stop_with_a_message(tmp_path):
    write_circles(tmp_path)
    whole = (tmp_path / "circle.npz").read_bytes()
    (tmp_path / "run.toml").write_text(TOML)
    for damaged in (whole[: len(whole) // 2], whole[:400] + b"x" * 200 + whole[600:], b""):
        (tmp_path / "circle.npz").write_bytes(damaged)
        ended = subprocess.run(command(tmp_path / "run", tmp_path), capture_output=True, text=True)
        assert ended.returncode != 0
        assert "circle.npz" in ended.stderr
        assert "Traceback" not in ended.stderr


def test_time_goes_on_from_the_seconds_already_spent(tmp_path):
    write_circles(tmp_path)
    config = replace(CONFIG, steps=None, seconds=1000.0, checkpoint_every=0.0)
    with pytest.raises(StopError):
        train(config, tmp_path / "run", tmp_path, device="cpu", watch=StopAt(3))
    manifest = tmp_path / "run" / "checkpoint.json"
    facts = json.loads(manifest.read_text())
    assert 0 < facts["seconds"] < 900
    manifest.write_text(json.dumps(facts | {"seconds": 900.0}))
    rates = []

    class Look(StopAt):
        def stepped(self, trainer):
            rates.append((trainer.progress, trainer.learning_rate()))
            super().stepped(trainer)

    with pytest.raises(StopError):
        train(config, tmp_path / "run", tmp_path, device="cpu", resume=True, watch=Look(4))
    assert 0.9 < rates[0][0] < 0.95
    assert rates[0][1] == pytest.approx(config.learning_rate * (1 - rates[0][0]) / 0.7)


def test_a_folder_with_a_checkpoint_is_not_overwritten(tmp_path):
    write_circles(tmp_path)
    config = replace(CONFIG, steps=2)
    train(config, tmp_path / "run", tmp_path, device="cpu")
    with pytest.raises(LehdError, match="--resume"):
        train(config, tmp_path / "run", tmp_path, device="cpu")
    other = replace(config, model=replace(SMALL, dim=8))
    with pytest.raises(LehdError, match="other sizes"):
        train(other, tmp_path / "run", tmp_path, device="cpu", resume=True)


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        ({"method": "reinforce", "customers": 6, "batch": 4, "data": ()}, {"batch": 8}, "batch = 4"),
        ({"method": "reinforce", "customers": 6, "batch": 4, "data": ()}, {"instances": 5}, "instances = 100000"),
        ({"states": "steps", "batch": 20}, {"batch": 10}, "batch = 20"),
        ({"states": "steps", "batch": 20}, {"states": "random"}, "states = 'steps'"),
        ({}, {"method": "reinforce", "customers": 6}, "method = 'supervised'"),
    ],
)
def test_what_passes_are_counted_by_cannot_change_within_a_run(tmp_path, config, change, message):
    write_circles(tmp_path)
    config = replace(CONFIG, model=SMALL, steps=2, **config)
    train(config, tmp_path / "run", tmp_path, device="cpu", watch=StopAt(-1))
    with pytest.raises(LehdError, match=message):
        train(replace(config, steps=4, **change), tmp_path / "run", tmp_path, device="cpu", resume=True)


def test_a_batch_size_that_does_not_count_may_change(tmp_path):
    write_circles(tmp_path)
    config = replace(CONFIG, model=SMALL, steps=2)
    train(config, tmp_path / "run", tmp_path, device="cpu", watch=StopAt(-1))
    train(replace(config, steps=3, batch=7), tmp_path / "run", tmp_path, device="cpu", resume=True, watch=StopAt(-1))


def test_a_finished_run_can_be_made_longer(tmp_path):
    write_circles(tmp_path)
    train(replace(CONFIG, steps=3), tmp_path / "run", tmp_path, device="cpu")
    for _ in range(2):  # the second time there is nothing left to do
        train(replace(CONFIG, steps=5), tmp_path / "run", tmp_path, device="cpu", resume=True)
        assert load_checkpoint(tmp_path / "run").facts["step"] == 5
        lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines if "validation_loss" in line] == [3, 5]


def test_a_run_that_is_killed_in_its_last_validation_makes_up_for_it(tmp_path, monkeypatch):
    write_circles(tmp_path)
    config = replace(CONFIG, steps=3, checkpoint_every=0.0, log_every=1000.0)

    def killed(trainer):
        raise StopError

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "validate", killed)
        with pytest.raises(StopError):
            train(config, tmp_path / "run", tmp_path, device="cpu")
    train(config, tmp_path / "run", tmp_path, device="cpu", resume=True)
    (line,) = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert json.loads(line)["step"] == 3
    assert "validation_loss" in line
    assert (tmp_path / "run" / "curves.png").exists()
    assert weights(tmp_path / "run")


def test_a_finished_run_does_not_fail_for_want_of_its_log(tmp_path):
    write_circles(tmp_path)
    train(replace(CONFIG, steps=2), tmp_path / "run", tmp_path, device="cpu")
    (tmp_path / "run" / "log.jsonl").unlink()
    train(replace(CONFIG, steps=2), tmp_path / "run", tmp_path, device="cpu", resume=True)


def test_weights_to_start_from_bring_their_own_sizes(tmp_path):
    write_circles(tmp_path)
    other = replace(SMALL, dim=8)
    save_model(LEHD(other), tmp_path / "init.safetensors")
    config = replace(CONFIG, checkpoint_every=0.0)
    for step in (2, 4):
        with pytest.raises(StopError):
            train(config, tmp_path / "run", tmp_path, tmp_path / "init.safetensors", "cpu", True, StopAt(step))
    assert load_checkpoint(tmp_path / "run").weights.config == other
    save_model(LEHD(replace(SMALL, actions_per_node=2)), tmp_path / "init.safetensors")
    with pytest.raises(LehdError, match="another problem"):
        train(config, tmp_path / "second", tmp_path, tmp_path / "init.safetensors", "cpu")


@pytest.mark.parametrize("lost", ["random", "batches", "config", "seconds"])
def test_checkpoints_that_are_not_whole_are_refused(tmp_path, lost):
    write_circles(tmp_path)
    train(replace(CONFIG, steps=1), tmp_path / "run", tmp_path, device="cpu", watch=StopAt(-1))
    manifest = tmp_path / "run" / "checkpoint.json"
    facts = json.loads(manifest.read_text())
    del facts[lost]
    manifest.write_text(json.dumps(facts))
    with pytest.raises(LehdError, match=rf"checkpoint\.json: not a whole checkpoint, it lacks {lost}"):
        train(replace(CONFIG, steps=2), tmp_path / "run", tmp_path, device="cpu", resume=True)


@pytest.mark.parametrize("damage", ["{", "[]", '{"version": 99}', '{"version": 1}'])
def test_damaged_checkpoints_are_refused(tmp_path, damage):
    (tmp_path / lehd.training.checkpoint.MANIFEST).write_text(damage)
    with pytest.raises(LehdError, match=r"checkpoint\.json"):
        load_checkpoint(tmp_path)
