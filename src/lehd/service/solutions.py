"""Solutions of jobs as files, and files as solutions of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lehd.errors import InfeasibleError
from lehd.io.solution import PARSERS
from lehd.io.write import FORMATS, check_format
from lehd.service.answer import result_of
from lehd.service.jobs import DONE
from lehd.service.store import Record
from lehd.service.task import Problem
from lehd.types import Incumbent, Result


def rendered(problem: Problem, record: Record, format: str) -> bytes:
    """A job's best solution as a file's content."""
    check_format(Path(f"solution.{format}"), problem.instances)
    found = record["incumbent"]
    result = _result(problem, found.get("tour") or found["routes"], record)
    return FORMATS[f".{format}"](result).encode("utf-8", "replace")


def _result(problem: Problem, visits: list[Any], record: Record) -> Result:
    ended = (record["answer"] or {}).get("lehd", {})
    return result_of(
        problem,
        visits,
        history=tuple(Incumbent(**point) for point in record["history"]),
        seconds=record["seconds"],
        iterations=record["iterations"],
        seed=record["seed"],
        model=ended.get("model", ""),
        notes=tuple(ended.get("notes", ())),
        interrupted=record["state"] != DONE,
    )


def checked(problem: Problem, text: str, format: str) -> dict[str, Any]:
    """The cost and the visits of a solution in a text."""
    visits = PARSERS[f".{format}"](text, problem.instances, "solution")
    result = result_of(problem, visits)
    fleet = problem.instances.vehicles
    if fleet is not None and len(result.routes) > int(fleet[0]):
        raise InfeasibleError(f"solution: {len(result.routes)} routes, but at most {int(fleet[0])} allowed")
    if problem.kind == "TSP":
        return {"cost": result.cost, "tour": result.tour}
    return {"cost": result.cost, "routes": result.routes, "loads": result.loads}
