"""Layers on a CPU by the compiled kernel, beside their own code."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import lehd
from lehd.decoding.construct import construct
from lehd.model import compiler, native
from lehd.model import lehd as model_file
from lehd.model.attention import AttentionLayer
from lehd.model.checkpoint import load_model, shipped_weights
from lehd.model.native import pack, run_native, suits
from lehd.model.precision import in_half, inference
from lehd.problems import of
from tests.builders import cvrp, tsp

BOUNDS = Path(__file__).with_name("kernel_bounds.c")
CPU = torch.device("cpu")
there = compiler.find_compiler() is not None and os.environ.get("LEHD_NATIVE") != "0"
compiled = pytest.mark.skipif(not there, reason="no C compiler here")
halves = pytest.mark.skipif(not getattr(native.kernel(), "half", False), reason="no half precision on this processor")


def stack(dim=64, heads=4, hidden=128, norm="none", sharpen=0.0, depth=3):
    torch.manual_seed(0)
    return [AttentionLayer(dim, heads, hidden, norm, sharpen).eval() for _ in range(depth)]


def by_the_layers(layers, x):
    for layer in layers:
        x = layer(x)
    return x


def ask(code):
    """What Python says to it, in a process of its own."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def no_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiler.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(native, "_search", native._Search())
    return tmp_path / "lehd"


@compiled
def test_where_there_is_a_compiler_there_is_a_kernel():
    assert native.kernel() is not None


@compiled
@pytest.mark.parametrize(("rows", "length"), [(1, 1), (1, 2), (5, 17), (3, 16), (32, 40), (2, 300), (9, 102), (1, 777)])
@pytest.mark.parametrize("sizes", [(64, 4, 128), (128, 8, 512), (128, 4, 64)])
def test_it_is_the_same_function(rows, length, sizes):
    layers, x = stack(*sizes, sharpen=0.25), torch.randn(rows, length, sizes[0])
    before = x.clone()
    with inference(CPU):
        assert suits(layers, x)
        torch.testing.assert_close(run_native(layers, x), by_the_layers(layers, x), atol=2e-5, rtol=2e-5)
    assert torch.equal(x, before)


@halves
@pytest.mark.parametrize(("rows", "length"), [(1, 1), (5, 17), (32, 40), (2, 300)])
def test_in_half_precision_it_is_but_for_rounding(rows, length):
    layers, x = stack(), torch.randn(rows, length, 64)
    with torch.no_grad():
        wanted = by_the_layers(layers, x) - x
    with in_half(True), inference(CPU):
        assert suits(layers, x)
        found = run_native(layers, x) - x
    assert 0 < float((found - wanted).norm() / wanted.norm()) < 0.01


@compiled
@pytest.mark.parametrize("processor", ["native", "x86-64-v3", "x86-64"])
def test_it_stays_within_its_memory(processor, tmp_path):
    program, options = tmp_path / "bounds", ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command = [compiler.find_compiler(), *options, f"-march={processor}", "-I", native.SOURCE.parent, "-o", program]
    nothing = tmp_path / "nothing.c"
    nothing.write_text("int main(void) { return 0; }")
    if any(subprocess.run(each, capture_output=True).returncode for each in ([*command, nothing], [program])):
        pytest.skip(f"this compiler cannot watch memory, or not for {processor}")
    subprocess.run([*command, BOUNDS, "-lm"], check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    half = processor == "native" and native.kernel().half
    assert done.stdout == ("ok, half\n" if half else "ok\n")


@compiled
def test_large_and_equal_scores_are_no_trouble():
    layers = stack(depth=1)
    for x in (1e3 * torch.randn(2, 30, 64), torch.zeros(2, 30, 64), torch.full((1, 20, 64), 1e-30)):
        with inference(CPU):
            found, wanted = run_native(layers, x), by_the_layers(layers, x)
        assert found.isfinite().all()
        torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-4)


@compiled
def test_rows_do_not_depend_on_what_else_is_there():
    """Neither on other rows nor on how many threads share them: bit by bit."""
    layers, x = stack(), torch.randn(13, 70, 64)
    before = torch.get_num_threads()
    with inference(CPU):
        alone = torch.cat([run_native(layers, x[row : row + 1]) for row in range(13)])
        try:
            for threads in (1, 2, 5):
                torch.set_num_threads(threads)
                assert torch.equal(run_native(layers, x), alone)
        finally:
            torch.set_num_threads(before)


@compiled
def test_rows_that_are_strided_and_none_at_all():
    layers, x = stack(), torch.randn(6, 9, 128)
    with inference(CPU):
        torch.testing.assert_close(run_native(layers, x[::2, :, ::2]), by_the_layers(layers, x[::2, :, ::2]))
        for nothing in (torch.zeros(0, 9, 64), torch.zeros(3, 0, 64)):
            assert not suits(layers, nothing)
            assert model_file.run(layers, nothing).shape == nothing.shape
        assert model_file.run([], x) is x


@compiled
def test_it_is_used_where_it_can_be_and_nowhere_else(monkeypatch):
    layers, x = stack(), torch.randn(8, 12, 64)
    assert not suits(layers, x)  # gradients
    with torch.no_grad():
        assert not suits(layers, x)  # weights that may change
    with inference(CPU):
        assert suits(layers, x)
        assert not suits(layers, x, torch.tensor(5))
        assert not suits(layers, x.double())
        assert not suits(stack(norm="batch"), x)
        assert not suits(stack(hidden=96), x)
        assert not suits(stack(heads=8), x)  # heads of 8
        monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
        assert suits(layers, x)
        assert suits(layers, x[:1])
        assert suits(layers, torch.randn(2, 512, 64))
        assert not suits(layers, torch.randn(1, 512, 64))  # all threads on one long row: torch's business
    monkeypatch.setattr(native.kernel(), "half", False)
    with in_half(True), inference(CPU):
        assert not suits(layers, x)


@compiled
def test_weights_are_packed_once_and_forgotten_afterwards(monkeypatch):
    layers, x, packed = stack(), torch.randn(2, 12, 64), []
    monkeypatch.setattr(native, "pack", lambda *given: packed.append(given) or pack(*given))
    with in_half(False):
        for _ in range(3):
            with inference(CPU):
                first = run_native(layers, x)
    assert len(packed) == 1
    layers[0].qkv.weight.data.mul_(3)
    with inference(CPU):
        assert not torch.equal(run_native(layers, x), first)


@compiled
@pytest.mark.parametrize("make", [tsp, cvrp])
@pytest.mark.parametrize("nearest", [None, 20])
def test_whole_solutions_are_those_of_the_layers(make, nearest, monkeypatch):
    instances = make(6, 40, seed=3)
    problem = of(instances)
    model, state = load_model(shipped_weights(problem.name)), problem.initial_state(instances)
    used = []
    monkeypatch.setattr(model_file, "run_native", lambda layers, x: used.append(len(x)) or run_native(layers, x))
    found = construct(model, problem, instances, state, nearest=nearest)
    assert used
    monkeypatch.setattr(native, "kernel", lambda: None)
    wanted = construct(model, problem, instances, state, nearest=nearest)
    assert torch.equal(found.nodes, wanted.nodes)
    assert torch.equal(found.via_depot, wanted.via_depot)


@compiled
def test_threads_of_a_caller_may_use_it_at_once():
    layers, x = stack(), torch.randn(7, 50, 64)
    with inference(CPU):
        wanted, found = run_native(layers, x), {}

    def work(number):
        with inference(CPU):
            for _ in range(20):
                found[number] = run_native(layers, x)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(each, wanted) for each in found.values())


@compiled
def test_the_library_is_compiled_once_and_kept(no_cache, monkeypatch):
    assert native.kernel() is not None
    (library,) = no_cache.iterdir()
    monkeypatch.setattr(native, "_search", native._Search())
    monkeypatch.setattr(compiler, "_start", lambda command: pytest.fail("compiled again"))
    with native.hurried(True):  # what is there is used at once
        assert native.kernel() is not None
    assert list(no_cache.iterdir()) == [library]


@compiled
def test_another_compiler_compiles_anew(no_cache, tmp_path, monkeypatch):
    assert native.kernel() is not None
    wrapper = tmp_path / "cc"
    wrapper.write_text(f'#!/bin/sh\nexec {compiler.find_compiler()} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", str(wrapper))
    for version in (2, 3):
        os.utime(wrapper, (version, version))
        monkeypatch.setattr(native, "_search", native._Search())
        assert native.kernel() is not None
        assert len(list(no_cache.iterdir())) == version


@compiled
def test_loading_it_is_quick_and_imports_nothing(no_cache):
    """What is imported later is imported while a search measures how fast it is."""
    count = "before = set(sys.modules); native.kernel(); print(len(set(sys.modules) - before))"
    assert int(ask(f"import sys; import lehd.solver; from lehd.model import native; {count}")) < 5


@compiled
def test_a_library_that_is_broken_is_compiled_anew(no_cache):
    ask("from lehd.model import native; native.kernel()")
    (library,) = no_cache.iterdir()
    whole = library.stat().st_size
    library.write_bytes(b"no library")
    assert native.kernel() is not None
    assert [each.stat().st_size for each in no_cache.iterdir()] == [whole]


@compiled
def test_weights_of_models_that_are_gone_are_not_taken_for_others(monkeypatch):
    copies, x = {}, torch.randn(1, 3, 64)
    for seed in range(40):
        torch.manual_seed(seed)
        layers = [AttentionLayer(64, 4, 64)]
        with inference(CPU, copies):
            torch.testing.assert_close(run_native(layers, x), by_the_layers(layers, x), atol=2e-5, rtol=2e-5)


@compiled
def test_defaults_of_torch_do_not_matter(no_cache, monkeypatch):
    layers, x = stack(), torch.randn(2, 12, 64)
    with inference(CPU):
        wanted = run_native(layers, x)
    monkeypatch.setattr(native, "_search", native._Search())
    try:
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("meta"), inference(CPU):
            assert torch.equal(run_native(layers, x), wanted)
    finally:
        torch.set_default_dtype(torch.float32)


@compiled
def test_random_numbers_are_left_alone(no_cache, monkeypatch):
    monkeypatch.setattr(torch, "manual_seed", lambda seed: pytest.fail("seeded"))
    before = torch.get_rng_state()
    assert native.kernel() is not None
    assert torch.equal(torch.get_rng_state(), before)


SLOW = """#!/bin/sh
while [ ! -e {go} ]; do sleep 0.01; done
exec {compiler} "$@"
"""


@pytest.fixture
def slow(no_cache, tmp_path, monkeypatch):
    """A compiler that begins when a file is there."""
    script, go = tmp_path / "slow-cc", tmp_path / "go"
    script.write_text(SLOW.format(go=go, compiler=compiler.find_compiler()))
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    yield go
    go.touch()


def until(true):
    end = time.monotonic() + 60
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    assert true()


@compiled
def test_in_a_hurry_nobody_waits_for_the_compiler(slow, no_cache):
    layers, x = stack(), torch.randn(2, 12, 64)
    with inference(CPU), native.hurried(True):
        for _ in range(3):  # asks for it once
            assert not suits(layers, x)
            assert torch.equal(model_file.run(layers, x), by_the_layers(layers, x))
        slow.touch()
        until(lambda: suits(layers, x))
        with native.hurried(False):
            assert suits(layers, x)
    assert len(list(no_cache.iterdir())) == 1


@compiled
def test_who_is_not_in_a_hurry_waits(slow):
    layers, x = stack(), torch.randn(2, 12, 64)
    threading.Timer(0.2, slow.touch).start()
    with inference(CPU):
        assert suits(layers, x)


@compiled
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc here")
@pytest.mark.parametrize("hurried", [True, False])
def test_whoever_ends_before_the_compiler_finds_the_library_next_time(slow, no_cache, hurried):
    """An interrupt on a terminal reaches all that was started there."""
    # Where tests run in a shell's background interrupts are ignored, by what they start too.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += f"from lehd.model import native\nwith native.hurried({hurried}): native.kernel()\nprint('over')"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        if hurried:
            assert process.stdout.read() == b"over\n"
            assert process.wait() == 0
        else:
            until(lambda: len(children(process.pid)) == 1)
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait() == -signal.SIGINT
    slow.touch()
    until(lambda: [each.suffix for each in no_cache.iterdir()] == [".so"])
    with native.hurried(True):
        assert native.kernel() is not None


def children(process):
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


@compiled
def test_a_process_that_ends_at_once_ends_well(no_cache):
    assert native.kernel() is not None
    solve = "print(lehd.solve([[0, 0], [0, 1], [1, 1], [1, 0], [2, 2]] * 6, time_limit=0.05).cost > 0)"
    assert ask(f"import lehd; {solve}") == "True\n"


@compiled
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_process_that_was_forked_while_another_thread_looked_for_it(no_cache, monkeypatch):
    with native._search.lock:
        child = os.fork()
        if not child:
            signal.alarm(60)
            torch.set_num_threads(1)  # those that OpenMP had are gone
            os._exit(0 if native.kernel() is not None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@compiled
def test_a_time_limit_is_in_a_hurry_and_a_number_of_iterations_is_not(monkeypatch):
    seen = []
    monkeypatch.setattr(native, "kernel", lambda: seen.append(native._hurried.get()))
    for options, hurried in [({"time_limit": 0.3}, True), ({"rrc": 1}, False)]:
        lehd.solve(torch.rand(6, 2), device="cpu", **options)
        assert set(seen) == {hurried}
        seen.clear()


@compiled
def test_a_folder_that_others_can_write_to_is_not_trusted(no_cache):
    no_cache.mkdir(mode=0o700)
    no_cache.chmod(0o777)
    assert native.kernel() is not None
    assert not list(no_cache.iterdir())


@compiled
def test_a_user_without_a_home(tmp_path, monkeypatch):
    def fails(path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(compiler.Path, "expanduser", fails)
    monkeypatch.setattr(compiler.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(native, "_search", native._Search())
    assert native.kernel() is not None


@compiled
def test_many_numbers_of_rows_need_few_threads():
    layers, before = stack(), torch.get_num_threads()
    torch.set_num_threads(12)
    try:
        with inference(CPU):
            for rows in range(2, 13):
                run_native(layers, torch.zeros(rows, 300, 64))
    finally:
        torch.set_num_threads(before)
    assert sum(thread.name.startswith("layers") for thread in threading.enumerate()) <= os.cpu_count()


@compiled
def test_a_cache_that_cannot_be_written_is_no_hindrance(no_cache, monkeypatch):
    no_cache.write_text("a file, not a folder")
    assert native.kernel() is not None
    assert len(list(no_cache.with_name(f"lehd-{os.getuid()}").iterdir())) == 1  # kept, and nothing else


@compiled
def test_temporary_folders_of_others_are_not_trusted(no_cache):
    no_cache.write_text("a file, not a folder")
    folder = no_cache.with_name(f"lehd-{os.getuid()}")
    folder.mkdir()
    folder.chmod(0o777)
    assert native.kernel() is None
    assert not list(folder.iterdir())


@compiled
def test_where_nothing_can_be_written_the_layers_do_it(no_cache, monkeypatch):
    def nowhere(*_, **__):
        raise FileNotFoundError("no usable temporary directory")

    no_cache.write_text("not a folder")
    monkeypatch.setattr(compiler.tempfile, "gettempdir", nowhere)
    assert native.kernel() is None
    assert native.kernel() is None


def test_without_a_compiler_the_layers_do_it(no_cache, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert native.kernel() is None
    layers, x = stack(), torch.randn(2, 12, 64)
    with inference(CPU):
        assert not suits(layers, x)
        assert torch.equal(model_file.run(layers, x), by_the_layers(layers, x))


@pytest.mark.parametrize("script", ["exit 1", "sleep 60", "touch $(echo \"$@\" | sed 's/.*-o //; s/ .*//')"])
def test_compilers_that_fail_or_hang_or_make_nothing_are_as_none(no_cache, script, tmp_path, monkeypatch):
    fake = tmp_path / "fake-cc"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CC", str(fake))
    monkeypatch.setattr(compiler, "PATIENCE", 0.5)
    assert native.kernel() is None
    assert not no_cache.exists() or not [each for each in no_cache.iterdir() if each.stat().st_size]


@compiled
def test_a_library_that_computes_something_else_is_not_used(no_cache, tmp_path, monkeypatch):
    source = native.SOURCE.read_text()
    wrong = source.replace("2.40222421e-1f", "2.9e-1f")  # of the exponential
    assert wrong != source
    path = tmp_path / "cpu_kernel.c"
    path.write_text(wrong)
    monkeypatch.setattr(native, "SOURCE", path)
    assert native.kernel() is None


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("LEHD_NATIVE", "0")
    assert ask("from lehd.model import native; print(native.kernel())") == "None\n"
