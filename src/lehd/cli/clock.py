"""When this process began: a time limit on the command line counts from there, the import of torch included."""

from __future__ import annotations

import os
import time

_IMPORTED = time.monotonic()
_PLAUSIBLE = 10.0  # seconds; a process that is older when it gets here was something else before (exec keeps the age)


def process_start() -> float:
    """The start on the clock of time.monotonic(); where the system does not tell, when this module was imported."""
    age = _age()
    earlier = time.monotonic() - age if age is not None else _IMPORTED
    return earlier if 0 <= _IMPORTED - earlier < _PLAUSIBLE else _IMPORTED


def _age() -> float | None:
    """Seconds since the process began, from Linux's /proc."""
    try:
        with open("/proc/self/stat", "rb") as file:
            after_name = file.read().rpartition(b")")[2].split()
        started = int(after_name[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of the line, counted from boot
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, IndexError, AttributeError):
        return None
