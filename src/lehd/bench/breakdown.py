"""Where the time of some work goes: torch's profiler, its many kernels put into a few groups."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.profiler import ProfilerActivity, profile

from lehd.bench.machine import synchronize

# The first group whose pattern is found in the name of a kernel, or of an operation on a CPU.
GROUPS = {
    "optimizer": r"adam|multi_tensor|foreach|lerp|clip_grad|total_norm",
    "attention": r"fmha|flash|(?<!after_)attention|scaled_dot",
    "matmul": r"gemm|gemv|nvjet|cutlass|xmma|cublas|wgmma|splitk|triton_tem|after_attention|projection|\b(add|b)?mm\b",
    "moving data": r"memcpy|memset|copy|index|gather|scatter|sort|\bcat|random|distribution|arange|fill|unfold|flip"
    r"|decoder_input",
}
OTHER, HOST = "elementwise", "host gaps"
ANNOTATION = re.compile(r"ProfilerStep|Optimizer\.|## Call|Torch-Compiled|CompiledFunction")


@dataclass(frozen=True)
class Breakdown:
    """Seconds of each group, and the names behind the largest parts."""

    seconds: float  # of the work without a profiler looking on
    groups: dict[str, float] = field(default_factory=dict)
    largest: tuple[tuple[str, str, float], ...] = ()  # group, name, seconds

    def shares(self) -> dict[str, float]:
        return {name: seconds / self.seconds for name, seconds in self.groups.items()}


def group_of(name: str) -> str:
    return next((group for group, pattern in GROUPS.items() if re.search(pattern, name, re.IGNORECASE)), OTHER)


def break_down(work: Callable[[], None], seconds: float, device: torch.device, most: int = 12) -> Breakdown:
    """Profile `work`, which takes so many seconds when nobody looks."""
    cuda = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities) as watching:
        work()
        synchronize(device)
    wanted = "CUDA" if cuda else "CPU"
    times: dict[str, float] = {}
    for row in watching.key_averages():
        annotation = getattr(row, "is_user_annotation", False) or ANNOTATION.search(row.key)
        if row.device_type.name == wanted and not annotation:
            micro = row.self_device_time_total if cuda else row.self_cpu_time_total
            times[row.key] = times.get(row.key, 0.0) + micro / 1e6
    return put_together(times, seconds, most)


def put_together(times: dict[str, float], seconds: float, most: int) -> Breakdown:
    """Seconds by name in groups; what is left of the time is the host's."""
    groups = dict.fromkeys([*GROUPS, OTHER], 0.0)
    for name, spent in times.items():
        groups[group_of(name)] += spent
    seconds = max(seconds, sum(groups.values()))  # a profiler slows down what it looks at
    groups[HOST] = seconds - sum(groups.values())
    largest = sorted(times.items(), key=lambda item: -item[1])[:most]
    return Breakdown(seconds, groups, tuple((group_of(name), name, spent) for name, spent in largest))
