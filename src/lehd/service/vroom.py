"""VROOM's JSON request, as far as it describes one depot and equal vehicles. Everything else is refused by name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lehd.distance import EUCLIDEAN, HAVERSINE
from lehd.errors import LehdError
from lehd.io.arrays import Numbers, build
from lehd.io.plane import project
from lehd.io.text import LARGEST
from lehd.service.task import Labels, Options, Problem
from lehd.words import count

# What VROOM knows and lehd does not solve, in words. An empty list or null asks for nothing and is let pass.
NOT_SOLVED = {
    "shipments": "pickups with deliveries",
    "pickup": "pickups",
    "skills": "skills",
    "time_windows": "time windows",
    "time_window": "time windows",
    "breaks": "breaks",
    "setup": "setup times",
    "costs": "costs of vehicles",
    "speed_factor": "vehicles of different speed",
    "max_tasks": "limits on the number of tasks",
    "max_travel_time": "limits on travel time",
    "max_distance": "limits on distance",
    "steps": "routes given in advance",
    "amount": "the old name of delivery",
}
MOST = 100_000  # jobs and vehicles, whatever the limits
MOST_SHOWN = 5  # complaints in one message

Id = Annotated[int, Field(ge=0, le=2**53)]
Quantity = Annotated[int, Field(ge=0, le=int(LARGEST))]
Coordinate = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Location = Annotated[list[Coordinate], Field(min_length=2, max_length=2, description="[longitude, latitude] or [x, y]")]
Index = Annotated[int, Field(ge=0, lt=MOST)]
Amount = Annotated[list[Quantity], Field(min_length=1, max_length=1)]
Words = Annotated[str, Field(max_length=200)]
# The first mistake in a list is enough: a body of a million of them must not become a million messages.
Row = Annotated[
    list[Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]], Field(max_length=20_000, fail_fast=True)
]
Matrix = Annotated[list[Row], Field(max_length=20_000, fail_fast=True)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_what_asks_for_nothing(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if not (key in NOT_SOLVED and value in (None, []))}


class VroomJob(Strict):
    """A customer, or a stop of a tour."""

    id: Id
    description: Words = ""
    location: Location | None = None
    location_index: Index | None = None
    delivery: Amount | None = Field(
        default=None, description="What the vehicle brings; one number. Without any: a single tour"
    )
    service: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0
    priority: Annotated[int, Field(ge=0, le=100)] = Field(default=0, description="Without effect: every job is served")


class VroomVehicle(Strict):
    """All vehicles start and end at one depot and are alike but for their id and description."""

    id: Id
    description: Words = ""
    profile: Words = "car"
    start: Location | None = None
    start_index: Index | None = None
    end: Location | None = None
    end_index: Index | None = None
    capacity: Amount | None = None


class VroomMatrices(Strict):
    """Square matrices, from row to column. `costs` is minimised where given, else `durations`, else `distances`."""

    costs: Matrix | None = None
    durations: Matrix | None = None
    distances: Matrix | None = None


class VroomRequest(Strict):
    """The routing problem in VROOM's words, for one depot and equal vehicles."""

    vehicles: list[VroomVehicle] = Field(min_length=1, max_length=MOST, fail_fast=True)
    jobs: list[VroomJob] = Field(min_length=1, max_length=MOST, fail_fast=True)
    matrices: dict[Words, VroomMatrices] | None = None
    coordinates: Literal["lonlat", "plane"] = Field(
        default="lonlat", description="Not VROOM's: whether locations are [longitude, latitude], or [x, y] in the plane"
    )
    lehd: Options | None = Field(default=None, description="Not VROOM's: how to search")


def parse_vroom(body: bytes, name: str, most_nodes: int) -> tuple[Problem, Options]:
    """The problem in a request body, and the options it brings along."""
    try:
        request = VroomRequest.model_validate_json(body)
    except ValidationError as error:
        raise LehdError(complaint(error)) from None
    if len(request.jobs) >= most_nodes:
        raise LehdError(f"jobs: {len(request.jobs)} of them; expected at most {most_nodes - 1}")
    _check_vehicles(request)
    _check_ids(request)
    return _problem(request, (request.lehd and request.lehd.name) or name), request.lehd or Options()


def complaint(error: ValidationError) -> str:
    """Where a request is wrong and why, in one line."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    words = [in_words(each["loc"], each["type"], each["msg"]) for each in found[:MOST_SHOWN]]
    return "; ".join(words) + (f"; and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else "")


def in_words(place: tuple[int | str, ...], kind: str, message: str) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part[:60]}" for part in place).lstrip(".")
    if kind == "extra_forbidden" and place[-1] in NOT_SOLVED:
        return f"{where}: not solved here ({NOT_SOLVED[str(place[-1])]}); expected a problem without it"
    if kind == "extra_forbidden":
        return f"{where}: unknown field"
    message = message[:1].lower() + message[1:200]
    return f"{where}: {message}" if where else message


def _check_vehicles(request: VroomRequest) -> None:
    """One depot, equal vehicles."""
    first = request.vehicles[0]
    by_index = request.matrices is not None
    for number, vehicle in enumerate(request.vehicles):
        for key in ("start", "end"):
            index, place = f"{key}_index", f"vehicles[{number}].{key}"
            if by_index and getattr(vehicle, index) is None:
                raise LehdError(f"{place}_index: missing; expected the depot's place in the matrix")
            if not by_index and getattr(vehicle, key) is None:
                raise LehdError(f"{place}: missing; expected the depot, where every vehicle starts and ends")
            for field in (key, index):
                if getattr(vehicle, field) != getattr(first, field.replace("end", "start")):
                    raise LehdError(
                        f"vehicles[{number}].{field}: another place than the first vehicle's start; several depots "
                        "are not solved here"
                    )
        for field in ("capacity", "profile"):
            if getattr(vehicle, field) != getattr(first, field):
                raise LehdError(
                    f"vehicles[{number}].{field}: not the first vehicle's; different vehicles are not solved here"
                )


def _check_ids(request: VroomRequest) -> None:
    for key, ids in (("jobs", [job.id for job in request.jobs]), ("vehicles", [each.id for each in request.vehicles])):
        seen: set[int] = set()
        for number, identity in enumerate(ids):
            if identity in seen:
                raise LehdError(f"{key}[{number}].id: {identity} is there twice")
            seen.add(identity)


def _problem(request: VroomRequest, name: str) -> Problem:
    depot, jobs = request.vehicles[0], request.jobs
    places = [depot.start, *(job.location for job in jobs)]
    matrices = {} if request.matrices is None else _matrices(request)
    costs = next((matrices[kind] for kind in ("costs", "durations", "distances") if kind in matrices), None)
    if costs is None:
        for number, job in enumerate(jobs):
            if job.location is None:
                raise LehdError(f"jobs[{number}].location: missing; expected it, or a matrix and a location_index")
    located = all(place is not None for place in places)
    positions = np.array(places, dtype=np.float64) if located else None
    geographic = request.coordinates == "lonlat"

    def where(what: str, instance: int, *index: int) -> str:
        if not index:
            return f"vehicles[0].{what}" if what in ("capacity", "vehicles") else name
        field = {"coordinate": "location", "demand": "delivery", "distance": "location_index"}[what]
        start = {"location": "start", "location_index": "start_index"}.get(field, field)
        return f"jobs[{index[0] - 1}].{field}" if index[0] else f"vehicles[0].{start}"

    sites = positions[:, ::-1].copy() if positions is not None and geographic else None
    if sites is not None and costs is not None:
        build(project(sites)[None], name, rule=HAVERSINE, sites=sites[None], where=where)  # to check them
    instances = build(
        None if positions is None else (positions if sites is None else project(sites))[None],
        name,
        rule=EUCLIDEAN if sites is None else HAVERSINE,
        sites=None if sites is None or costs is not None else sites[None],
        matrix=None if costs is None else costs[None],
        where=where,
        **_loads(request),
    )
    labels = Labels(
        ids=[None, *(job.id for job in jobs)],
        descriptions=[depot.description, *(job.description for job in jobs)],
        vehicles=[(vehicle.id, vehicle.description) for vehicle in request.vehicles],
        service=[0.0, *(job.service for job in jobs)],
        locations=places,
        geographic=geographic and located,
        durations=matrices.get("durations"),
        distances=matrices.get("distances"),
    )
    return Problem(instances, labels)


def _loads(request: VroomRequest) -> dict[str, Any]:
    """Demands, capacity and fleet limit; nothing where no job has a demand, which is a single tour."""
    capacity, jobs = request.vehicles[0].capacity, request.jobs
    demands = [0, *(job.delivery[0] if job.delivery else 0 for job in jobs)]
    if capacity is None:
        for number, job in enumerate(jobs):
            if job.delivery is not None:
                raise LehdError(f"jobs[{number}].delivery: given, but the vehicles have no capacity")
    if capacity is None or not any(demands):
        return {}
    fleet = len(request.vehicles)
    if sum(demands) > fleet * capacity[0]:
        raise LehdError(
            f"vehicles: the deliveries add up to {sum(demands)}, but {count(fleet, 'vehicle')} of capacity "
            f"{capacity[0]} can carry {fleet * capacity[0]}"
        )
    limit = {"vehicles": fleet} if fleet < len(jobs) else {}
    return {"demands": demands, "capacity": capacity[0], **limit}


def _matrices(request: VroomRequest) -> dict[str, Numbers]:
    """The profile's matrices between the depot and the jobs, in our order."""
    assert request.matrices is not None
    profile = request.vehicles[0].profile
    if profile not in request.matrices:
        raise LehdError(f"matrices: nothing for the vehicles' profile {profile[:60]!r}")
    given = request.matrices[profile]
    indices = [request.vehicles[0].start_index, *(job.location_index for job in request.jobs)]
    matrices = {}
    for kind in ("costs", "durations", "distances"):
        rows = getattr(given, kind)
        if rows is None:
            continue
        place, size = f"matrices.{profile[:60]}.{kind}", len(rows)
        for number, row in enumerate(rows):
            if len(row) != size:
                raise LehdError(f"{place}[{number}]: {count(len(row), 'number')}; expected {size}, as there are rows")
        for number, index in enumerate(indices):
            field = f"jobs[{number - 1}].location_index" if number else "vehicles[0].start_index"
            if index is None:
                raise LehdError(f"{field}: missing; expected a row of the matrix")
            if index >= size:
                raise LehdError(f"{field}: {index}; {place} has the rows 0 to {size - 1}")
        matrices[kind] = np.array(rows, dtype=np.float64)[np.ix_(indices, indices)]  # type: ignore[arg-type]
    if not matrices:
        raise LehdError(f"matrices.{profile[:60]}: expected costs, durations or distances")
    return matrices
