"""Two machines, played by two torchruns on this one: a process is killed, and the run ends as if it had not been."""

import os
import socket
import subprocess
import sys

from lehd.training.config import read_config
from tests.training.circles import write_circles
from tests.training.ranks import run_ranks
from tests.training.test_processes import assert_same, log, run

TOML = """
data = ["circle.npz"]
steps = 20
tokens = 600
warmup = 5
held_out = 4
checkpoint_every = 0.0
[model]
dim = 16
heads = 2
feed_forward = 32
decoder_layers = 1
"""

# What torchrun starts on the second machine: the training, which the first time is killed at a step.
SECOND = """
import os, pathlib, signal, sys
from lehd.training import loop
from lehd.training.trainer import Trainer

killed, train_step = pathlib.Path(sys.argv.pop()), Trainer.train_step

def step_or_die(trainer):
    if trainer.step == 12 and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    train_step(trainer)

Trainer.train_step = step_or_die
loop.main()
"""
PATIENCE = 300  # seconds, on a busy machine


def test_a_killed_process_brings_both_machines_back_to_the_checkpoint(tmp_path):
    write_circles(tmp_path)
    (tmp_path / "run.toml").write_text(TOML)
    (tmp_path / "second.py").write_text(SECOND)
    words = [tmp_path / "run.toml", "--data", tmp_path, "--device", "cpu", "--output"]
    port = free_port()
    machines = [
        start_machine(True, port, "-m", "lehd.training.loop", *words, tmp_path / "run"),
        start_machine(False, port, tmp_path / "second.py", *words, tmp_path / "nowhere", tmp_path / "killed"),
    ]
    try:
        output = [machine.communicate(timeout=PATIENCE)[0] for machine in machines]
    finally:
        for machine in machines:
            machine.kill()
    assert [machine.returncode for machine in machines] == [0, 0], output
    assert (tmp_path / "killed").exists()
    assert [line["step"] for line in log(tmp_path / "run")] == [20]
    run_ranks(run, [(read_config(tmp_path / "run.toml"), tmp_path / "whole", tmp_path)] * 2)
    assert_same(tmp_path / "whole", tmp_path / "run")


def start_machine(hosts, port, *words):
    """The torchrun of a machine with one process; one machine's is where both meet."""
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "test"]
    meeting += ["--rdzv-conf", f"is_host={int(hosts)}", "--local-addr", "127.0.0.1"]
    launch = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "2", *meeting]
    return subprocess.Popen(
        [sys.executable, *launch, *map(str, words)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
