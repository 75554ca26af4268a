"""Looking at the processes of a service, through /proc."""

from __future__ import annotations

from pathlib import Path


def workers(service_pid: int) -> list[int]:
    """The worker processes of a service."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            command = (entry / "cmdline").read_bytes()
        except (OSError, IndexError):
            continue
        if parent == service_pid and b"spawn_main" in command:
            found.append(int(entry.name))
    return sorted(found)


def alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def memory_mb(pid: int) -> float:
    """Resident memory."""
    for line in (Path("/proc") / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0
