"""The machine a bench runs on: its name, its memory and the arithmetic it can do."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

import torch

# bfloat16 matrix products: what large ones reach, not what the data sheet says. Measured where it is not known.
CEILINGS = {"NVIDIA H200": 790e12}


def device_words(device: torch.device) -> str:
    """What a record says about the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"cpu, {threads} {'thread' if threads == 1 else 'threads'}"


def cpu_time() -> float:
    """Seconds this process, and those it has waited for, have spent on CPU cores."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory(device: torch.device) -> float | None:
    """GiB at the most since `forget_peak`: of GPU memory, or of what the process holds, where the system says."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # elsewhere than on Linux
        return None
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    return int(found[1]) / 2**20 if found else None


def forget_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def matmul_ceiling(device: torch.device, seconds: float = 0.5) -> float:
    """FLOP/s of large matrix products: the arithmetic floor of everything the model does."""
    if device.type == "cuda" and device_words(device) in CEILINGS:
        return CEILINGS[device_words(device)]
    size, kind = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    matrix = torch.randn(size, size, device=device, dtype=kind)
    matrix @ matrix  # the first one pays for initialisation
    synchronize(device)
    done, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for _ in range(4):
            matrix @ matrix
        synchronize(device)
        done += 4
    return done * 2 * size**3 / (time.perf_counter() - begun)
