"""`lehd info`, `lehd check` and `lehd plot`: looking at instances and solutions without solving."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lehd.cli.common import Capacity, Optimum, Problem, SolutionFile, Vehicles, read_instance, reporting
from lehd.errors import InfeasibleError, LehdError
from lehd.words import brief, count, gap

if TYPE_CHECKING:
    from lehd.types import Instances, Result

INFEASIBLE = 1


def info(
    file: Problem,
    capacity: Capacity = None,
    vehicles: Vehicles = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as one JSON object.")] = False,
) -> None:
    """Show what a file holds: size, distance rule, extent, demands.

    [bold]Example[/bold]

      lehd info depot.vrp
    """
    with reporting():
        facts = describe(read_instance(file, capacity, vehicles))
        if as_json:
            typer.echo(json.dumps({"file": str(file), **facts}))
        else:
            for key, fact in facts.items():
                typer.echo(f"{key.replace('_', ' '):<16} {_words(fact)}")


def check(
    file: Problem, solution: SolutionFile, optimum: Optimum = None, capacity: Capacity = None, vehicles: Vehicles = None
) -> None:
    """Check a solution: feasible or not, its cost, and the gap to a known optimum.

    Exit code 0: feasible. 1: infeasible. 2: a file cannot be read.

    [bold]Example[/bold]

      lehd check city.tsp city.tour --optimum 2579
    """
    with reporting():
        _check_optimum(optimum)
        instance = read_instance(file, capacity, vehicles)
        try:
            result = read_result(solution, instance)
        except InfeasibleError as error:
            typer.echo(f"infeasible: {error}")
            raise typer.Exit(INFEASIBLE) from None
        words = [f"feasible: cost {brief(result.cost)}"]
        if instance.demands is not None:
            words.append(count(len(result.routes), "route"))
        if optimum is not None:
            words.append(gap(result.cost, optimum))
        typer.echo(", ".join(words))


def plot(
    file: Problem,
    solution: SolutionFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="PICTURE", help="A .png, .svg or .pdf file.")],
    optimum: Optimum = None,
    capacity: Capacity = None,
    vehicles: Vehicles = None,
) -> None:
    """Draw a solution.

    [bold]Example[/bold]

      lehd plot depot.vrp depot.sol -o depot.png
    """
    with reporting():
        from lehd.plot import plot_result

        _check_optimum(optimum)
        plot_result(read_result(solution, read_instance(file, capacity, vehicles)), output, optimum)


def read_result(path: Path, instance: Instances) -> Result:
    """A solution read from a file, as a result without a history."""
    from lehd import problems
    from lehd.io.solution import read_solution
    from lehd.types import Result

    solution = read_solution(path, instance)
    cost = problems.of(instance).cost(instance, solution)[0].item()
    result = Result(instance, solution, cost, history=(), seconds=0.0, iterations=0, seed=0, model="")
    if instance.vehicles is not None and len(result.routes) > instance.vehicles[0]:
        raise InfeasibleError(
            f"{path}: {count(len(result.routes), 'route')}, but at most {instance.vehicles[0]} allowed"
        )
    return result


def describe(instance: Instances) -> dict[str, Any]:
    """The facts `lehd info` shows."""
    import torch

    facts: dict[str, Any] = {
        "name": instance.names[0] if instance.names else "",
        "problem": "TSP" if instance.demands is None else "CVRP",
        "nodes": instance.num_nodes,
        "distances": instance.rule.name,
        "symmetric": instance.symmetric,
    }
    if instance.matrix is None:
        sites = (instance.coords if instance.sites is None else instance.sites)[0]
        facts["positions"] = "latitude, longitude" if instance.rule.geographic else "x, y"
        facts["box"] = [sites.amin(0).tolist(), sites.amax(0).tolist()]
        facts["duplicates"] = instance.num_nodes - len(torch.unique(sites, dim=0))
    if instance.demands is not None and instance.capacity is not None:
        demands, capacity = instance.demands[0, 1:].tolist(), instance.capacity[0].item()
        vehicles = None if instance.vehicles is None else int(instance.vehicles[0])
        fewest = math.ceil(round(sum(demands) / capacity, 6))
        facts |= {
            "customers": len(demands),
            "smallest_demand": min(demands, default=0),
            "largest_demand": max(demands, default=0),
            "total_demand": sum(demands),
            "capacity": capacity,
            "vehicles": vehicles,
            "fewest_routes": fewest,
            "tightness": round(sum(demands) / (capacity * max(1, vehicles or fewest)), 4),
        }
    return facts


def _words(fact: Any) -> str:
    match fact:
        case None:
            return "no limit"
        case bool():
            return "yes" if fact else "no"
        case int() | float():
            return brief(fact)
        case [low, high]:
            return " to ".join(", ".join(map(brief, corner)) for corner in (low, high))
        case _:
            return str(fact)


def _check_optimum(optimum: float | None) -> None:
    if optimum is not None and not 0 < optimum < math.inf:
        raise LehdError(f"--optimum {optimum}: expected a positive number")
