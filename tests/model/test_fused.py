"""The GPU kernels beside the layers' own code: on a GPU where there is one, and in Triton's interpreter anywhere."""

from importlib.util import find_spec

import pytest
import torch

from lehd.model import fused
from lehd.model.attention import AttentionLayer
from lehd.model.fused import Matrices, _Stack, fusable, plain_layers, run_fused
from lehd.model.precision import arithmetic
from tests.interpreter import interpret

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
OTHER_MODELS = [(3, 30, 64, 4, 192), (3, 30, 128, 4, 512, 1), (1, 150, 128, 2, 512), (1, 150, 64, 1, 192)]
OTHER_MODELS += [(1, 70, 128, 2, 512), (1, 70, 64, 1, 192)]
SOME_SEEN = [(3, 20, 1), (3, 20, 19), (5, 32, 3), (5, 50, 50), (2, 128, 127), (40, 4, 2), (2, 150, 2), (2, 150, 64)]
SOME_SEEN += [(2, 90, 70), (1, 90, 2), (1, 90, 64), (1, 192, 65), (1, 192, 128), (1, 300, 299)]
SOME_SEEN += [(1, 300, 120)]  # rows, places, nodes that are there
SIZES = [(3, 20), (5, 50), (2, 100), (1, 128), (40, 2), (3, 33), (2, 65), (2, 96), (2, 98), (2, 150)]
SIZES += [(1, 300)]  # rows, nodes
MANY_ROWS = [(300, 100), (300, 50), (300, 70), (300, 90)]


def stack(device="cpu", dim=128, heads=8, hidden=512, count=2):
    torch.manual_seed(0)
    layers = [AttentionLayer(dim, heads, hidden, sharpen=0.5).to(device) for _ in range(count)]
    for layer in layers:
        for parameter in layer.parameters():
            if parameter.ndim == 1:
                parameter.data.normal_(0, 0.3)
    return layers


def plain(layers, x):
    for layer in layers:
        x = layer(x)
    return x


def apart(one, two):
    return float((one.detach().double() - two.detach().double()).norm() / two.detach().double().norm())


class Counted:
    """A kernel of attention, from now on counting its calls."""

    def __init__(self, name):
        from lehd.model import attention_kernels

        self.kernel, self.count = getattr(attention_kernels, name), 0
        setattr(attention_kernels, name, self)

    def __getitem__(self, grid):
        self.count += 1
        return self.kernel[grid]


def check_in_single_precision(rows, length, dim=128, heads=8, hidden=512, many=256, shift=0.0):
    """Outputs and all gradients, with matrices that keep single precision: for the interpreter.

    With a `shift` all scores of the first layer are lower by far, which softmax does not mind. With few blocks that
    count as `many`, tokens do not count as few either.
    """
    fused.MANY = many  # blocks of tokens from which on a program does all heads
    fused.FEW = 8 * many
    layers = stack(dim=dim, heads=heads, hidden=hidden)
    parameters = [p for layer in layers for p in layer.parameters()]
    matrices = [Matrices(*(p.detach() for p in layer.parameters() if p.ndim == 2)) for layer in layers]
    x = torch.randn(rows, length, dim)
    if shift:
        x[..., 0] = shift
        q, k, _ = layers[0].qkv.weight.data.view(3, dim, dim)
        q[:, 0], k[:, 0] = 1.0, -1.0
    x.requires_grad_()
    found, wanted = _Stack.apply(x, True, heads, 0.5, None, matrices, *parameters), plain(layers, x)
    with torch.no_grad():
        assert torch.equal(_Stack.apply(x, False, heads, 0.5, None, matrices, *parameters), found)
    bound = 1e-4 if shift else 1e-5  # large scores have few digits after the point
    assert apart(found, wanted) < bound
    weights = torch.randn_like(found)
    for one, two in zip(
        torch.autograd.grad(found, [x, *parameters], weights),
        torch.autograd.grad(wanted, [x, *parameters], weights),
        strict=True,
    ):
        assert apart(one, two) < bound


@torch.no_grad()
def check_where_nodes_are_missing(rows, length, seen, many=256):
    """The first `seen` nodes of every row get what they get alone, whatever stands behind them."""
    fused.MANY, fused.FEW = many, 8 * many
    layers = stack()
    parameters = [p for layer in layers for p in layer.parameters()]
    matrices = [Matrices(*(p for p in layer.parameters() if p.ndim == 2)) for layer in layers]
    x = torch.randn(rows, length, 128)
    x[:, seen:] *= 100
    wanted = plain(layers, x[:, :seen])
    found = _Stack.apply(x, False, 8, 0.5, torch.tensor(seen), matrices, *parameters)
    assert found.isfinite().all()
    assert apart(found[:, :seen], wanted) < 1e-5


@needs_triton
def test_kernels_compute_what_the_layers_do():
    script = "from tests.model import test_fused as t\n" + "".join(
        f"t.check_in_single_precision({rows}, {length})\n" for rows, length in SIZES
    )
    script += "".join(
        f"t.check_in_single_precision({rows}, {length}, many=1)\n"
        for rows, length in [(5, 20), (3, 50), (2, 100), (1, 128)]
    )
    script += "".join(f"t.check_in_single_precision{sizes}\n" for sizes in OTHER_MODELS)
    script += "calls = t.Counted('middle_attention')\n"
    script += "".join(
        f"t.check_in_single_precision({rows}, {length}, many=1)\n"
        for rows, length in [(2, 65), (1, 80), (2, 81), (1, 96)]
    )
    script += "assert calls.count == 4 * 2 * 2, calls.count\n"  # two layers, with gradient and without
    script += "t.check_in_single_precision(1, 70, 128, 2, 512, many=1)\n"
    script += "t.check_in_single_precision(1, 70, many=1, shift=5.0)\n"
    script += "t.check_in_single_precision(1, 130, shift=5.0)\nt.check_in_single_precision(1, 70, shift=5.0)\n"
    script += "".join(f"t.check_where_nodes_are_missing{sizes}\n" for sizes in SOME_SEEN)
    script += (
        "t.check_where_nodes_are_missing(5, 50, 33, many=1)\nt.check_where_nodes_are_missing(2, 128, 127, many=1)\n"
        "t.check_where_nodes_are_missing(2, 90, 3, many=1)\nt.check_where_nodes_are_missing(2, 80, 75, many=1)\n"
        "t.check_where_nodes_are_missing(1, 96, 64, many=1)\n"
    )
    interpret(script)


ALL_TYPES = {"f": "*fp32", "h": "*bf16", "b": "*i1", "n": "*i64", "i": "i32", "s": "fp32"}


def compiled(kernel, types, constants, warps, stages, capability):
    """For a GPU that need not be there; `types` has a letter for each argument that is no constant."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    names = kernel.arg_names
    given = dict(zip([name for name in names if name not in constants], types, strict=True))
    source = ASTSource(
        kernel,
        signature={name: "constexpr" if name in constants else ALL_TYPES[given[name]] for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={
            (place,): [["tt.divisibility", 16]] for place, name in enumerate(names) if given.get(name) in ("f", "h")
        },
    )
    return compile(source, GPUTarget("cuda", capability, 32), {"num_warps": warps, "num_stages": stages})


@needs_triton
@pytest.mark.parametrize(("capability", "room"), [(86, 101_376), (90, 232_448)])  # bytes that a program can have
def test_kernels_compile_for_gpus_that_are_not_here(capability, room):
    """The interpreter does not mind types that change on the way, nor how much a program holds on the chip."""
    from lehd.model import attention_kernels, kernels, step_kernels

    some = {"KEEP": False, "SOME": True}
    layer, whole = {"D": 128, "F": 512}, {"heads": 8, "D": 128, **some}
    middle = {"heads": 8, "D": 128, "BLOCK": 32, "FIRST": 64, "REST": 16}
    step = {"MASK": True, "SOME": True, "BLOCK": 1024, "KINDS": 2}
    for kernel, types, constants, warps, stages in [
        (attention_kernels.attention, "hhfniisss", {**whole, "BLOCK": 128, "GROUP": 8}, 8, 3),
        (attention_kernels.long_attention, "hhfniiss", {**whole, "BLOCK": 64, "STEP": 64}, 4, 3),
        (attention_kernels.middle_attention, "hhfniiss", {**whole, "BLOCK": 32, "FIRST": 64, "REST": 32}, 2, 2),
        (attention_kernels.middle_attention, "hhfniiss", {**middle, "KEEP": True, "SOME": False}, 2, 2),
        (kernels.after_attention, "fhhfhfhffhhi", {**layer, "STEP": 64, "BLOCK": 64, "KEEP": True}, 4, 2),
        (kernels.after_attention, "fhhfhfhffhhi", {**layer, "STEP": 128, "BLOCK": 16, "KEEP": False}, 4, 2),
        (kernels.after_attention_backward, "fhhhfhfhhhhhfi", {**layer, "STEP": 64, "BLOCK": 64}, 4, 2),
        (step_kernels.decide, "fbnnnfnbnbiii", step, 4, 3),
        (step_kernels.decoder_input, "fnnnnffffffiii", {"D": 128, "C": 1, "BLOCK": 32, "CHUNK": 32}, 4, 3),
    ]:
        assert compiled(kernel, types, constants, warps, stages, capability).metadata.shared <= room


def test_nothing_is_kept_where_no_gradient_is_asked_for(monkeypatch):
    kept = []
    monkeypatch.setattr(fused._Stack, "apply", lambda x, keep, *_: kept.append(keep) or x)
    layers, x = stack(), torch.randn(2, 5, 128)
    run_fused(layers, x)
    with torch.no_grad():
        run_fused(layers, x)
    assert kept == [True, False]


def test_layers_on_the_cpu_run_as_they_are_written():
    assert not fusable(stack(), torch.randn(2, 5, 128))


@pytest.mark.parametrize(("length", "seen"), [(5, 1), (20, 13), (20, 20), (150, 120)])
def test_layers_do_not_look_at_nodes_that_are_missing(length, seen):
    layers, x = stack(), torch.randn(3, length, 128)
    x[:, seen:] *= 100
    with torch.no_grad():
        found = x
        for layer in layers:
            found = layer(found, torch.tensor(seen))
        torch.testing.assert_close(found[:, :seen], plain(layers, x[:, :seen]), atol=1e-5, rtol=1e-5)


def test_a_norm_over_all_nodes_says_that_it_cannot_leave_some_out():
    layer, x = AttentionLayer(32, 4, 64, "instance").eval(), torch.randn(2, 5, 32)
    with pytest.raises(ValueError, match="not there"):
        layer(x, torch.tensor(4))


@needs_gpu
@needs_triton
@pytest.mark.parametrize(("rows", "length"), SIZES + MANY_ROWS)
def test_kernels_are_as_exact_as_half_precision_allows(rows, length):
    layers = stack("cuda", count=6)
    x = torch.randn(rows, length, 128, device="cuda", requires_grad=True)
    parameters = [p for layer in layers for p in layer.parameters()]
    with arithmetic(x.device):
        assert fusable(layers, x)
        with plain_layers():
            assert not fusable(layers, x)
        found, usual = run_fused(layers, x), plain(layers, x)
    wanted = plain(layers, x)
    assert apart(found, wanted) < 1.5 * apart(usual, wanted)
    weights = torch.randn_like(found)
    gradients = [torch.autograd.grad(y, [x, *parameters], weights) for y in (found, usual, wanted)]
    for one, two, exact in zip(*gradients, strict=True):
        assert apart(one, exact) < 1.5 * apart(two, exact) + 1e-3


@needs_gpu
@needs_triton
@pytest.mark.parametrize(("rows", "length", "seen"), [*SOME_SEEN, (300, 128, 100), (300, 90, 70), (300, 80, 3)])
def test_on_a_gpu_kernels_leave_out_nodes_that_are_missing(rows, length, seen):
    layers = stack("cuda", count=6)
    x = torch.randn(rows, length, 128, device="cuda")
    x[:, seen:] *= 100
    number = torch.tensor(seen, device="cuda")
    with torch.no_grad(), arithmetic(x.device):
        assert fusable(layers, x, number)
        found, usual = run_fused(layers, x, number)[:, :seen], plain(layers, x[:, :seen])
    with torch.enable_grad(), arithmetic(x.device):
        assert not fusable(layers, x, number)
    with torch.no_grad():
        wanted = plain(layers, x[:, :seen])
    assert apart(found, wanted) < 1.5 * apart(usual, wanted)
