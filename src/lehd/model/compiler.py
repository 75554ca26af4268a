"""A C file compiled for the processor it will run on, once on every machine: the user's cache keeps the library."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

COMPILERS = ("cc", "gcc", "clang")  # besides what CC names
OPTIONS = ("-O3", "-shared", "-fPIC")
X86 = ("x86_64", "amd64", "i386", "i686")
PATIENCE = 60.0  # seconds; it takes one or two, on a busy machine more
# What it makes has a name of its own at first, so that processes that do the same at the same time do not disturb each
# other, and is put in place whole, even if whoever asked for it is gone by then.
SCRIPT = 'final=$1 own=$1.$$; shift; if "$@" -o "$own"; then mv -f "$own" "$final"; else rm -f "$own"; fi'


class Library:
    """A C file's library, which need not be there yet."""

    def __init__(self, source: Path, compiler: str):
        target = "-march=native" if platform.machine().lower() in X86 else "-mcpu=native"
        command = [compiler, *OPTIONS, target, str(source)]
        self.path = _place(f"{source.stem}-{_fingerprint(source, command)}.so")
        self.command = ["sh", "-c", SCRIPT, "compile", str(self.path), *command]

    def load(self) -> ctypes.CDLL | None:
        """The library, if it is there."""
        with suppress(OSError):  # something else is
            return ctypes.CDLL(str(self.path)) if self.path.exists() else None
        return None

    def begin(self) -> None:
        """Have it compiled while others work."""
        _start(["sh", "-c", '"$@" &', "begin", *self.command]).wait()

    def compile(self) -> ctypes.CDLL | None:
        """Compile it now. Whoever is interrupted leaves the compiler to its work."""
        process = _start(self.command)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self.path.with_name(f"{self.path.name}.{process.pid}").unlink(missing_ok=True)
        return self.load()


def library(source: Path) -> Library | None:
    """The library of a C file; None where there is no compiler."""
    found = find_compiler()
    return None if found is None else Library(source, found)


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


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    """In a session of its own, which an interrupt on a terminal does not reach."""
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)


def _place(name: str) -> Path:
    """Where a library is kept: in the user's cache or, where that cannot be, among the temporary files."""
    for find in (cache_folder, _temporary_folder):
        with suppress(OSError, RuntimeError):  # a user without a home, a folder that nothing can be written to
            folder = find()
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if _private(folder) and (os.access(folder, os.W_OK) or (folder / name).exists()):
                return folder / name
    raise OSError("there is no folder for a library")


def _temporary_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"lehd-{os.getuid()}"


def _private(folder: Path) -> bool:
    """Whether nobody else can put a library there."""
    facts = folder.stat()
    return facts.st_uid == os.getuid() and not facts.st_mode & 0o022


def _fingerprint(source: Path, command: list[str]) -> str:
    """Of all that the library depends on: homes are shared by machines with other processors."""
    made = os.stat(command[0])
    facts = (source.read_bytes(), command[:-1], made.st_size, made.st_mtime_ns, platform.system(), _processor())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _processor() -> str:
    """What tells processors apart for a compiler."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        keys = ("model name", "cpu family", "model", "flags", "Features")
        return repr(sorted({line for line in lines if line.partition(":")[0].strip() in keys}))
    return f"{platform.machine()} {platform.processor()}"
