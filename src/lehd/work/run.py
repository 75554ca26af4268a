"""The one loop around every engine: give units, take results, try again what crashed."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable
from typing import Any

from lehd.errors import LehdError
from lehd.work.ledger import Ledger
from lehd.work.units import ONE_CORE, Engine, Failure, Job, Needs, Unit

ATTEMPTS = 3


def run_units(
    units: Iterable[Unit],
    job: Job,
    engine: Engine,
    *,
    needs: Needs = ONE_CORE,
    ledger: Ledger | None = None,
    attempts: int = ATTEMPTS,
    patience: float = float("inf"),
    split: Callable[[Unit], list[Unit]] = lambda unit: [],
    between: Callable[[], None] = lambda: None,
) -> Generator[tuple[Unit, Any], None, None]:
    """Every unit that the ledger does not have, once, with its result, in the order in which they are done.

    Results are in the ledger when they are yielded. A unit that raised or lost its worker is tried again; what failed
    so many times is set aside: it is yielded with a Failure and not in the ledger, so that a later run tries it again.
    What would fail with every unit, such as a package that is not installed, ends the run.

    `split` may give smaller units in place of one that failed, so that what is wrong is found among them and the rest
    not lost. `units` is read no faster than they are worked on. `between` is called whenever workers have been looked
    at, about once a second where they are other processes.
    """
    todo = iter(unit for unit in units if ledger is None or unit.id not in ledger)
    again: deque[Unit] = deque()
    if (first := next(todo, None)) is None:
        return  # without starting anything
    again.append(first)
    failed: Counter[str] = Counter()
    given = 0
    with engine.start(job, needs, patience) as crew:
        while True:
            while crew.room() and (unit := again.popleft() if again else next(todo, None)) is not None:
                crew.give(unit)
                given += 1
            if not given:
                return
            done = crew.take()
            between()
            for unit, result in done:
                given -= 1
                if isinstance(result, Failure):
                    if result.fatal:
                        raise LehdError(result.reason)
                    failures = failed.pop(unit.id, 0) + 1
                    retried = split(unit) or ([unit] if failures < attempts else [])
                    if retried:
                        failed.update({each.id: failures for each in retried})
                        again.extend(retried)
                        continue
                elif ledger is not None:
                    ledger.add(unit.id, result)
                failed.pop(unit.id, None)
                yield unit, result
