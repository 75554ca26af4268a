"""A limit of memory, and running out of it."""

import json
import subprocess
import sys

import pytest
import torch

import lehd
from lehd import memory
from lehd.decoding.construct import construct
from lehd.decoding.select import GREEDY, Beam
from lehd.errors import LehdError
from lehd.memory import GIB, Memory, in_turns
from lehd.problems import of
from tests.builders import cvrp, tiny_model, tsp

MAKES = [tsp, cvrp]


class Worker:
    """Work that runs out of memory if more than `fits` things are given at once."""

    def __init__(self, fits, error):
        self.fits, self.error, self.done, self.told = fits, error, [], []

    def __call__(self, part):
        if part.stop - part.start > self.fits:
            raise self.error
        self.done.append((part.start, part.stop))


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory"),
    MemoryError(),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
    RuntimeError(
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call"
    ),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_out_of_memory_halves_what_is_done_at_once(error):
    worker = Worker(2, error)
    in_turns(7, 6, worker, worker.told.append)
    assert worker.told == [3, 2]
    assert worker.done == [(0, 2), (2, 4), (4, 6), (6, 7)]


def test_one_that_does_not_fit_and_other_errors_are_told():
    with pytest.raises(LehdError, match="does not hold a single instance"):
        in_turns(3, 2, Worker(0, ERRORS[0]), lambda size: None)
    with pytest.raises(RuntimeError, match="something else"):
        in_turns(3, 2, Worker(0, RuntimeError("something else")), lambda size: None)


def test_what_was_learnt_refuses_nothing_but_a_limit_does():
    """Out of memory with short rows: longer ones are tried one by one. Whoever gave a limit is told."""
    learnt, worker = Memory(), Worker(1, ERRORS[0])
    learnt.in_turns(2, 100.0, worker)
    learnt.in_turns(2, 500.0, worker)
    assert worker.done == [(0, 1), (1, 2)] * 2
    with pytest.raises(LehdError, match="does not hold one instance"):
        Memory(200.0).in_turns(2, 500.0, worker)


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize(("select", "nearest", "views"), [(GREEDY, None, 1), (Beam(3), None, 1), (GREEDY, 5, 8)])
def test_rows_done_in_turn_give_the_same(make, select, nearest, views):
    instances = make(7, 12)
    problem = of(instances)
    model, state = tiny_model(problem), problem.initial_state(instances)
    together = construct(model, problem, instances, state, select, nearest, views=views)
    steps = state.available.shape[1]
    row = memory.row_bytes(model.config, min(nearest or steps, steps), steps, select.width * views)
    in_turn = construct(model, problem, instances, state, select, nearest, views=views, memory=Memory(2.5 * row))
    assert torch.equal(together.nodes, in_turn.nodes)
    assert torch.equal(together.via_depot, in_turn.via_depot)


def test_what_was_learnt_when_the_memory_ran_out_is_kept(monkeypatch):
    sizes = []

    def work(model, problem, instances, state, *rest):
        if len(state.start) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        sizes.append(len(state.start))
        return construct_before(model, problem, instances, state, *rest)

    from lehd.decoding import construct as file

    construct_before = file._construct
    monkeypatch.setattr(file, "_construct", work)
    instances, room = tsp(5, 6), Memory()
    problem = of(instances)
    for _ in range(2):
        construct(tiny_model(problem), problem, instances, problem.initial_state(instances), memory=room)
    assert sizes == [2, 2, 1] * 2  # after 5 and 3, which did not fit
    assert room.limit is not None


PEAK = """
import json, sys
import torch, lehd
from lehd.memory import GIB, in_use
torch.set_num_threads(1)
coords = torch.rand(1, 200, 2, generator=torch.Generator().manual_seed(0)).double()
lehd.solve(coords[:, :20], rrc=1, sample=2, nearest=5)  # whatever is loaded only once
before = in_use(torch.device("cpu"))
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak is now
extra = float(sys.argv[1])
asked = iter(range(3))  # a few steps are enough
lehd.solve(
    coords,
    sample=600,
    rrc=0,
    nearest=60,
    half=sys.argv[2] == "half",
    stop=lambda: next(asked, None) is None,
    memory=before / GIB + extra if extra else None,
)
with open("/proc/self/status") as file:
    peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
print(json.dumps((peak - before) / GIB))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak as Linux counts it")
def test_the_peak_stays_below_the_limit():
    """The first steps of a construction of 600 rows, in a process of its own: with a limit and without."""

    def more(limit, precision):
        words = [sys.executable, "-c", PEAK, str(limit), precision]
        return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)

    assert more(0.06, "single") < 0.06 < more(0, "single")
    assert more(0.15, "half") < 0.15


def test_a_limit_below_what_is_held_is_refused():
    with pytest.raises(LehdError, match=r"memory = 0.01 GiB: expected more than the [\d.]+ GiB that it takes to begin"):
        lehd.solve(tsp(1, 5), memory=0.01)
    with pytest.raises(LehdError, match="memory = 0: expected a positive number of GiB"):
        lehd.solve(tsp(1, 5), memory=0)


def test_one_instance_too_large_for_the_limit_is_told(monkeypatch):
    monkeypatch.setattr(memory, "in_use", lambda device: 1 * GIB)
    with pytest.raises(LehdError, match="does not hold one instance: it takes about"):
        lehd.solve(tsp(1, 200), memory=1.0001, rrc=0)


def test_an_ample_limit_changes_nothing():
    plain, bounded = (lehd.solve(cvrp(3, 12), rrc=4, memory=limit) for limit in (None, 100))
    assert [result.tour for result in plain] == [result.tour for result in bounded]
