"""Several processes train like one."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from lehd.model.checkpoint import load_model
from lehd.problems import of
from lehd.training.partial import decisions
from lehd.training.processes import Processes
from tests.builders import generator, random_solution, tsp
from tests.training.circles import star_labels, write_circles

TOML = """
problem = "{problem}"
data = ["{file}"]
steps = 3
held_out = 10
learning_rate = 0.1
warmup = 0
clip = inf
{more}
[model]
dim = 16
heads = 2
feed_forward = 32
decoder_layers = 1
"""

# Plain gradient descent: the weights then are a sum of gradients, which Adam's division would blow out of proportion.
WORKER = """
import sys, torch
from lehd.training import loop, optimizer

def descent(parameters, lr, betas, weight_decay, fused, capturable):
    return torch.optim.SGD(parameters, lr=lr, fused=fused)

optimizer.torch.optim.AdamW = descent
loop.main()
"""


def test_shares_are_disjoint_and_complete():
    instances = tsp(11, 9)
    batch = decisions(of(instances), instances, random_solution(instances), 7, 4, generator(0))
    parts = [Processes(rank, 3).share(batch) for rank in range(3)]
    assert sum(len(part.action) for part in parts) == 11
    rows = {tuple(each.flatten().tolist()) for part in parts for each in part.instances.coords}
    assert rows == {tuple(each.flatten().tolist()) for each in batch.instances.coords}
    assert len(rows) == 11
    assert Processes().share(batch) is batch


@pytest.mark.parametrize(
    ("problem", "more"),
    [("TSP", "tokens = 801"), ("CVRP", 'states = "steps"\nbatch = 17')],
)
def test_gradients_are_those_of_one_process(tmp_path, problem, more):
    write_circles(tmp_path, count=60)
    np.savez(tmp_path / "star.npz", **star_labels(60))
    file = "circle.npz" if problem == "TSP" else "star.npz"
    (tmp_path / "run.toml").write_text(TOML.format(problem=problem, file=file, more=more))
    (tmp_path / "worker.py").write_text(WORKER)
    words = [str(tmp_path / "worker.py"), str(tmp_path / "run.toml"), "--data", str(tmp_path), "--device", "cpu"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = {"check": True, "capture_output": True, "text": True, "env": environment, "timeout": 300}
    subprocess.run([sys.executable, *words, "--output", str(tmp_path / "one")], **run)
    several = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *words]
    subprocess.run([*several, "--output", str(tmp_path / "two")], **run)

    one, two = (load_model(tmp_path / name / "weights.safetensors").state_dict() for name in ("one", "two"))
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=1e-5, rtol=1e-5)
    first, second = (
        [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    )
    assert len(first) == len(second) == 1  # one writer
    for key in ("loss", "accuracy", "validation_loss"):
        assert first[0][key] == pytest.approx(second[0][key], abs=1e-5)
    assert first[0]["decisions"] == second[0]["decisions"]
