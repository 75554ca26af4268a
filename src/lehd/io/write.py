"""Results as files: TSPLIB .tour, CVRPLIB .sol, .json and .geojson.

Every format is a function from a result to text; `write_result` picks one by the ending. Files appear whole or not at
all: the text goes to a temporary neighbour that then takes the file's place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lehd import __version__, distance
from lehd.errors import LehdError
from lehd.io.solution import node_ids
from lehd.types import Instances, Result


def result_record(result: Result) -> dict[str, Any]:
    """Everything there is to say about a result, ready for JSON. Tours count from 0, routes list customers 1..n."""
    solution: dict[str, Any] = (
        {"tour": result.tour} if result.problem == "TSP" else {"routes": result.routes, "loads": result.loads}
    )
    if result.instance.node_names:
        solution["node_names"] = list(result.instance.node_names)
    return {
        "name": result.name,
        "problem": result.problem,
        "cost": result.cost,
        **solution,
        "history": [
            {"seconds": round(point.seconds, 3), "iteration": point.iteration, "cost": point.cost}
            for point in result.history
        ],
        "seconds": round(result.seconds, 3),
        "iterations": result.iterations,
        "seed": result.seed,
        "model": result.model,
        "notes": list(result.notes),
        "interrupted": result.interrupted,
        "version": __version__,
    }


def json_text(result: Result) -> str:
    return json.dumps(result_record(result), allow_nan=False) + "\n"


def tour_text(result: Result) -> str:
    ids = node_ids(result.instance)
    name = " ".join(result.name.split())
    lines = [
        f"NAME : {name}.tour",
        f"COMMENT : length {result.cost}, found by lehd {__version__}",
        "TYPE : TOUR",
        f"DIMENSION : {len(result.tour)}",
        "TOUR_SECTION",
        *(str(ids[node]) for node in result.tour),
        "-1",
        "EOF",
    ]
    return "\n".join(lines) + "\n"


def sol_text(result: Result) -> str:
    lines = [f"Route #{number}: {' '.join(map(str, route))}" for number, route in enumerate(result.routes, 1)]
    return "\n".join([*lines, f"Cost {result.cost}"]) + "\n"


def geojson_text(result: Result) -> str:
    """One line for every route (or the tour), then one point for every node; positions are (longitude, latitude)."""
    instance = result.instance
    positions = degrees(instance)
    names = instance.node_names or tuple(map(str, node_ids(instance)))
    vehicle_routes = result.problem == "CVRP"
    routes, loads = result.routes, result.loads
    route_of = {node: number for number, route in enumerate(routes, 1) for node in route}

    def feature(kind: str, coordinates: Any, properties: dict[str, Any]) -> dict[str, Any]:
        geometry = {"type": kind, "coordinates": coordinates}
        return {"type": "Feature", "geometry": geometry, "properties": properties}

    features = []
    for number, route in enumerate(routes, 1):
        closed = [0, *route, 0] if vehicle_routes else [*route, route[0]]
        properties: dict[str, Any] = {"name": result.name, "stops": len(route)}
        if vehicle_routes:
            properties |= {"route": number, "load": loads[number - 1]}
        else:
            properties |= {"cost": result.cost}
        features.append(feature("LineString", [positions[node] for node in closed], properties))

    for node, position in enumerate(positions):
        properties = {"node": node, "name": names[node]}
        if instance.demands is not None:
            properties |= {"depot": True} if node == 0 else {"demand": instance.demands[0, node].item()}
        if vehicle_routes and node in route_of:
            properties["route"] = route_of[node]
        features.append(feature("Point", position, properties))

    collection = {"type": "FeatureCollection", "features": features}
    return json.dumps(collection, allow_nan=False) + "\n"


FORMATS: dict[str, Callable[[Result], str]] = {
    ".tour": tour_text,
    ".sol": sol_text,
    ".json": json_text,
    ".geojson": geojson_text,
}


def check_format(path: Path, instance: Instances) -> None:
    """Refuse an ending we do not know, or one that cannot hold a solution of this instance."""
    ending = path.suffix.lower()
    check_ending(path, FORMATS)
    if ending == ".sol" and instance.demands is None:
        raise LehdError(f"{path}: a .sol file holds vehicle routes; write a TSP's tour to .tour or .json")
    if ending == ".tour" and instance.demands is not None:
        raise LehdError(f"{path}: a .tour file holds one tour; write a CVRP's routes to .sol or .json")
    if ending == ".geojson" and not instance.rule.geographic:
        raise LehdError(
            f"{path}: GeoJSON needs latitudes and longitudes, but these distances are {instance.rule.name} "
            "in the plane; write to .tour, .sol or .json"
        )


def write_result(result: Result, path: str | Path) -> None:
    """Write the solution; the ending decides the format: .tour, .sol, .json or .geojson."""
    path = Path(path)
    check_format(path, result.instance)
    text = FORMATS[path.suffix.lower()](result)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="surrogateescape")  # names may come from file names


def check_ending(path: Path, known: Iterable[str]) -> None:
    endings = tuple(known)
    if path.suffix.lower() not in endings:
        found = f"unknown ending {path.suffix!r}" if path.suffix else "no ending"
        raise LehdError(f"{path}: {found}; expected one of {', '.join(endings)}")


def check_writable(path: Path) -> None:
    """Make the folder of a file to be written later, and try that a file can be put there."""
    with _naming(path):
        temporary = _neighbour(path)
        temporary.touch()
        temporary.unlink()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file to write to, which takes the place of `path` once the block has gone well."""
    with _naming(path):
        temporary = _neighbour(path)
        try:
            yield temporary
            os.replace(temporary, os.path.realpath(path))  # through a link, so that it stays one
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """What the system refuses becomes an error that names the file."""
    try:
        yield
    except OSError as error:
        raise LehdError(f"{path}: cannot write: {error.strerror or error}") from error


def _neighbour(path: Path) -> Path:
    """A free name in the file's folder, which is made where it is missing."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise LehdError(f"{path}: cannot write: it is a folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.with_name(f".{target.name}.{os.getpid()}.tmp")


def degrees(instance: Instances) -> list[list[float]]:
    """Positions [longitude, latitude] in decimal degrees."""
    sites = (instance.coords if instance.sites is None else instance.sites)[0]
    if instance.rule.name == distance.GEO.name:  # DDD.MM: the fraction holds minutes
        whole = sites.trunc()
        sites = whole + (sites - whole) * 5.0 / 3.0
    return [[round(longitude, 7), round(latitude, 7)] for latitude, longitude in sites.tolist()]
