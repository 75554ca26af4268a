"""A C file compiled for the processor it will run on, once on every machine: the user's cache keeps the library."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

COMPILERS = ("cc", "gcc", "clang")  # besides what CC names
OPTIONS = ("-O3", "-shared", "-fPIC")
# Ways to say "for this processor", the first that a compiler understands.
TARGETS = (("-march=native",), ("-mcpu=native",))
PATIENCE = 20.0  # seconds; it takes one or two


def load(source: Path) -> ctypes.CDLL | None:
    """The library of a C file; None where there is no compiler, or none that can compile it."""
    compiler = find_compiler()
    if compiler is None:
        return None
    name = f"{source.stem}-{_fingerprint(source, compiler)}.so"
    with suppress(OSError, RuntimeError):  # a user without a home, a folder that nothing can be written to
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if _private(folder):
            with suppress(OSError):  # not there yet, or not a library
                return ctypes.CDLL(str(folder / name))
            return _compile(source, compiler, folder / name)
    with suppress(OSError), tempfile.TemporaryDirectory() as elsewhere:  # in every process anew
        return _compile(source, compiler, Path(elsewhere) / name)
    return None


def find_compiler() -> str | None:
    if os.name == "nt":  # compilers there need not keep vectors where the processor wants them
        return None
    if sys.platform == "darwin" and subprocess.run(["xcode-select", "-p"], capture_output=True, check=False).returncode:
        return None  # to call the compiler would ask the user to install one
    names = [name for name in (os.environ.get("CC"), *COMPILERS) if name]
    return next((found for name in names if (found := shutil.which(name))), None)


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "lehd"


def _private(folder: Path) -> bool:
    """Whether nobody else can put a library there."""
    facts = folder.stat()
    return facts.st_uid == os.getuid() and not facts.st_mode & 0o022


def _compile(source: Path, compiler: str, path: Path) -> ctypes.CDLL | None:
    """Other processes may do the same at the same time: each writes a file of its own and puts it in place whole."""
    descriptor, name = tempfile.mkstemp(suffix=".so", dir=path.parent)
    os.close(descriptor)
    try:
        for target in TARGETS:
            command = [compiler, *OPTIONS, *target, "-o", name, str(source)]
            try:
                done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
            except (OSError, subprocess.TimeoutExpired):
                return None
            if done.returncode == 0:
                os.replace(name, path)
                return ctypes.CDLL(str(path))
        return None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def _fingerprint(source: Path, compiler: str) -> str:
    """Of all that the library depends on: homes are shared by machines with other processors."""
    facts = (source.read_text(encoding="utf-8"), compiler, OPTIONS, TARGETS, platform.system(), _processor())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _processor() -> str:
    """What tells processors apart for a compiler."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        keys = ("model name", "cpu family", "model", "flags", "Features")
        return repr(sorted({line for line in lines if line.partition(":")[0].strip() in keys}))
    return f"{platform.machine()} {platform.processor()}"
