"""What the README shows runs as written."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
WRITTEN = "http://127.0.0.1:8000"


def section() -> str:
    text = (ROOT / "README.md").read_text()
    return re.search(r"\n## In the browser.*?(?=\n## )", text, re.S)[0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", section(), re.S)


def test_there_is_something_to_run():
    assert len(blocks("sh")) >= 1
    assert len(blocks("python")) == 1
    client = blocks("python")[0].strip().splitlines()
    assert len([line for line in client if line.strip()]) <= 12


@pytest.mark.parametrize("command", [line for block in blocks("sh") for line in re.split(r"\n(?=curl)", block.strip())])
def test_curl(service, command, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    found = subprocess.run(
        ["bash", "-c", command.replace(WRITTEN, service.url).replace("curl ", "curl -sS --fail-with-body ", 1)],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert json.loads(found.stdout)


def test_the_client(service, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NO_PROXY", "*")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(blocks("python")[0].replace(WRITTEN, service.url), {})
    lines = said.getvalue().splitlines()
    assert len(lines) >= 2
    assert "cost" in lines[-1]


def test_pictures_are_there():
    for document in (ROOT / "README.md", ROOT / "docs" / "service.md"):
        for picture in re.findall(r"(?:!\[[^\]]*\]\(|<img src=\")([^)\"]+)", document.read_text()):
            assert (document.parent / picture).is_file(), picture
