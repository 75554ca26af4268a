"""What a bench tells while it runs."""

from __future__ import annotations

import json
import sys

from lehd.bench.store import Record
from lehd.bench.summary import Summary


class Watch:
    """Says nothing; others override what they want to hear."""

    def working(self, words: str) -> None:
        """Often, with what is being done."""

    def measured(self, records: list[Record]) -> None:
        """With new records."""

    def failed(self, what: str, reason: str) -> None:
        """With work that was set aside after several attempts, and may be tried again by another run."""

    def complete(self, summary: Summary) -> None:
        """When all instances of a set are done with one budget."""


class PrintLines(Watch):
    """Prints a JSON line for every summary."""

    def failed(self, what: str, reason: str) -> None:
        print(f"set aside: {what}: {reason}", file=sys.stderr, flush=True)

    def complete(self, summary: Summary) -> None:
        print(json.dumps(summary.line()), flush=True)
