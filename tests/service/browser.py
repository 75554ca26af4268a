"""Chromium for the tests of the page: Debian's package, driven by Playwright."""

from __future__ import annotations

import shutil
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def drop_file(page, name: str, content: str) -> None:
    """Let go of a file over the page."""
    page.evaluate(
        """([name, content]) => {
            const carried = new DataTransfer();
            carried.items.add(new File([content], name));
            document.dispatchEvent(new DragEvent("drop", { dataTransfer: carried, bubbles: true, cancelable: true }));
        }""",
        [name, content],
    )


def launch(playwright, folder: Path, **options):
    """A browser with a profile of its own."""
    return playwright.chromium.launch_persistent_context(
        str(folder), executable_path=chromium(), args=FLAGS, accept_downloads=True, **options
    )
