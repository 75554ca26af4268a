"""What a bench tells while it runs."""

from __future__ import annotations

import json

from lehd.bench.store import Record
from lehd.bench.summary import Summary


class Watch:
    """Says nothing; others override what they want to hear."""

    def working(self, words: str) -> None:
        """Often, with what is being done."""

    def measured(self, records: list[Record]) -> None:
        """With new records."""

    def complete(self, summary: Summary) -> None:
        """When all instances of a set are done with one budget."""


class PrintLines(Watch):
    """Prints a JSON line for every summary."""

    def complete(self, summary: Summary) -> None:
        print(json.dumps(summary.line()), flush=True)
