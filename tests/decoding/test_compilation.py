"""Kernels compiled beside a search: which, by whom, and what is done meanwhile."""

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from itertools import product

import pytest
import torch

import lehd
from lehd.decoding import compilation, view
from lehd.decoding.compilation import (
    SHAPES,
    Compilation,
    Meanwhile,
    compile_kernels,
    compiled_beside,
    wait_for_kernels,
)
from lehd.decoding.construct import construct
from lehd.decoding.speed import Speed
from lehd.model import fused
from lehd.plan import plan_parts
from lehd.problems import of
from tests.builders import cvrp, tiny_model, tsp

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")


class Launches:
    """In place of a kernel: which of its compilations would be needed."""

    def __init__(self, name, found):
        self.name, self.found = name, found

    def __getitem__(self, grid):
        return self

    def __call__(self, *given, **options):
        constants = tuple(value for value in given if type(value) in (int, bool))[-CONSTANTS[self.name] :]
        self.found.add((self.name, constants, tuple(sorted(options.items()))))


CONSTANTS = {"attention": 6, "middle_attention": 7, "long_attention": 6, "after_attention": 5}  # the last arguments


@pytest.fixture
def launches(monkeypatch):
    from lehd.model import attention_kernels, kernels

    found = set()
    for name in CONSTANTS:
        monkeypatch.setattr(kernels if name == "after_attention" else attention_kernels, name, Launches(name, found))
    return found


def launch(rows, length, dim=128, heads=8, hidden=512):
    """A layer of inference on nothing."""
    qkv = torch.empty(rows * length, 3 * dim, dtype=torch.bfloat16, device="meta")
    x, mixed = torch.empty(rows * length, dim, device="meta"), qkv[:, :dim]
    sizes = [(3 * dim, dim), (dim, dim), (hidden, dim), (dim, hidden)]
    matrices = fused.Matrices(*(torch.empty(size, device="meta") for size in sizes))
    for seen in (None, torch.tensor(length)):
        fused.attend(qkv, torch.Size((rows, length, dim)), heads, 0.25, False, seen)
    fused.after_attention(x, x, mixed, matrices, fused.Biases(x, x, x), False)


@needs_triton
def test_with_whatever_size_layers_go_by_kernels_that_were_compiled(launches):
    for rows, length in SHAPES:
        launch(rows, length)
    compiled = set(launches)
    assert len(compiled) == 2 * len(SHAPES) + 2  # none of the shapes could be left out
    for rows, length in product([1, 2, 7, 63, 64, 127, 128, 255, 256, 257, 511, 512, 1023, 1024, 5000], range(2, 260)):
        launch(rows, length)
        assert launches == compiled, (rows, length)


class Soon:
    """A compilation that is over when somebody has asked so often."""

    def __init__(self, asked):
        self.left = asked

    def over(self):
        self.left -= 1
        return self.left < 0


def test_the_layers_own_code_does_the_work_until_kernels_are_there():
    done, made = [], []

    def make():
        made.append(len(done))
        return lambda what, much: done.append((what, much, len(made), fused._allowed.get()))

    meanwhile = Meanwhile(Soon(2), make)
    for number in range(4):
        meanwhile.construct(number, much=1)
        assert fused._allowed.get()
    assert done == [(0, 1, 1, False), (1, 1, 1, False), (2, 1, 2, True), (3, 1, 2, True)]
    assert made == [0, 2]  # recordings of the one are not those of the other


def test_a_search_that_found_the_kernels_plans_with_their_speed(monkeypatch):
    """They came during the first construction."""
    monkeypatch.setattr("lehd.search.compiled_beside", lambda *what: Soon(2))
    measured, planned = [], []

    def measure(*what):
        measured.append(Speed(1e-4, 1e-7 / (1 + len(measured))))
        return measured[-1]

    def plan(problem, instances, options, speed, left, cheap):
        planned.append(speed)
        return plan_parts(problem, instances, options, speed, left, cheap)

    monkeypatch.setattr("lehd.search.measure_speed", measure)
    monkeypatch.setattr("lehd.search.plan_parts", plan)
    instances = tsp(1, 30)
    lehd.solve(instances, model=tiny_model(of(instances)), time_limit=60, rrc=1, device="cpu")
    assert len(measured) == 2
    assert planned == measured[1:]


def test_a_search_without_time_for_it_does_not_measure_again(monkeypatch):
    """It would go beyond its limit."""
    monkeypatch.setattr("lehd.search.compiled_beside", lambda *what: Soon(2))
    measured = []
    monkeypatch.setattr("lehd.search.measure_speed", lambda *what: measured.append(1) or Speed(1e-4, 1e-7))
    instances = tsp(1, 30)
    lehd.solve(instances, model=tiny_model(of(instances)), time_limit=1.5, rrc=1, device="cpu")
    assert measured == [1]


def test_a_search_goes_on_with_kernels_where_it_was_without(monkeypatch):
    soon, allowed = Soon(4), []
    monkeypatch.setattr("lehd.search.compiled_beside", lambda *what: soon)
    instances = tsp(1, 40)
    model = tiny_model(of(instances))
    score = model.score
    model.score = lambda *what: (allowed.append(fused._allowed.get()), score(*what))[1]
    monkeypatch.setattr("lehd.solver.deepcopy", lambda model: model)
    result = lehd.solve(instances, model=model, time_limit=60, rrc=20, device="cpu")
    assert result.iterations == 20
    assert allowed[0] is False
    assert allowed[-1] is True
    assert allowed == sorted(allowed)


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_every_kind_of_step_is_compiled(make, monkeypatch):
    """With all and with the nearest in view, recorded or not: what is to be constructed always begins a tensor."""
    instances, kinds = make(1, 30), set()
    problem = of(instances)
    see = view.see

    def noted(model, problem, instances, embeddings, state, nearest, views=1):
        kinds.add((state.left is not None, embeddings is None, state.available.storage_offset()))
        return see(model, problem, instances, embeddings, state, nearest, views)

    for module in ("replay", "construct"):
        monkeypatch.setattr(f"lehd.decoding.{module}.see", noted)
    some = instances.take(torch.arange(12)[None])
    compile_kernels(tiny_model(problem), problem, some)
    wanted = {(left, nearest, 0) for left in (False, True) for nearest in (False, True)}
    assert kinds == wanted
    part = problem.cut(instances, problem.cheap_start(instances), 9)
    for nearest in (None, 5):
        construct(tiny_model(problem), problem, part.instances, part.state(), nearest=nearest)
    assert kinds == wanted


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(compilation, "_begun", {})
    return tmp_path / "cache"


@needs_triton
@pytest.mark.parametrize("make", [tsp, cvrp])
def test_a_process_of_its_own_compiles_once_for_all(make, cache):
    instances = make(2, 5)  # fewer nodes than it takes
    problem = of(instances)
    model = tiny_model(problem)
    one, other = (Compilation(model, problem, instances) for _ in range(2))
    assert not one.over()
    one.begin()
    assert one.process.wait() == 0
    assert one.over()
    assert other.over()  # who comes later finds it done
    assert [path.name for path in cache.iterdir() if path.suffix != ".lock"] == [one.marker.name]
    larger = Compilation(tiny_model(problem, dim=48), problem, instances)
    assert not larger.over()


@needs_triton
def test_what_cannot_be_compiled_is_not_waited_for(cache):
    instances = tsp(1, 20)
    problem = of(instances)
    broken = Compilation(tiny_model(problem), problem, instances)
    broken.config = replace(broken.config, num_features=5)  # not a TSP's
    broken.begin()
    assert broken.process.wait() != 0
    assert broken.over()
    assert not broken.marker.exists()


@needs_triton
def test_one_process_for_all_searches_of_a_kind(cache, monkeypatch):
    monkeypatch.setattr(fused, "kernels_run", lambda x: True)
    instances = tsp(1, 20)
    problem = of(instances)
    model, begun = tiny_model(problem), []

    def begin(self):
        begun.append(self)
        self.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    monkeypatch.setattr(Compilation, "begin", begin)
    first, second = (compiled_beside(model, problem, instances) for _ in range(2))
    assert first is second is begun[0]
    assert len(begun) == 1
    with suppress(BrokenPipeError):
        first.process.communicate(b"\n")
    assert compiled_beside(model, problem, instances) is None


@needs_triton
def test_whoever_measures_waits_for_the_kernels(cache, monkeypatch):
    instances = tsp(1, 20)
    problem = of(instances)
    wait_for_kernels(tiny_model(problem), problem, instances)  # on a CPU there is nothing to wait for
    monkeypatch.setattr(fused, "kernels_run", lambda x: True)
    done = Compilation(tiny_model(problem), problem, instances)
    monkeypatch.setattr(Compilation, "begin", lambda self: setattr(self, "process", finished(done.marker)))
    wait_for_kernels(tiny_model(problem), problem, instances)
    assert done.marker.exists()


def finished(marker):
    script = "import sys, time, pathlib as p; time.sleep(0.5); a = p.Path(sys.argv[1]); a.parent.mkdir(); a.touch()"
    return subprocess.Popen([sys.executable, "-c", script, str(marker)])


@needs_triton
def test_a_cache_that_cannot_be_written_is_nobodys_trouble(cache, monkeypatch):
    monkeypatch.setattr(fused, "kernels_run", lambda x: True)
    cache.parent.joinpath("cache").write_text("not a folder")
    instances = tsp(1, 20)
    assert compiled_beside(tiny_model(of(instances)), of(instances), instances) is None


def test_nothing_is_compiled_for_a_cpu(cache):
    instances = tsp(1, 20)
    assert compiled_beside(tiny_model(of(instances)), of(instances), instances) is None
    assert not os.path.exists(cache)
