"""What a client wants solved: a problem, how its nodes are called, and how to search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from lehd.errors import LehdError
from lehd.io import read_text
from lehd.io.arrays import Numbers
from lehd.io.solution import node_ids
from lehd.io.write import degrees
from lehd.types import Instances
from lehd.words import brief, count

MOST_ITERATIONS = 100_000
DEFAULT_NAME = "upload"
Name = Annotated[str, Field(max_length=120, pattern=r"^[^\x00-\x1f\x7f]*$")]


class Options(BaseModel):
    """How to search. Query parameters of the same names go before what the body says."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    time_limit: float | None = Field(
        default=None, gt=0, description="Seconds of search; waiting in the queue does not count"
    )
    iterations: int | None = Field(
        default=None, ge=0, le=MOST_ITERATIONS, description="Stop after so many, if that is sooner"
    )
    seed: int | None = Field(
        default=None, ge=0, lt=2**53, description="Same seed and iterations, same result; 0 by default"
    )
    name: Name | None = Field(
        default=None, description="What to call the problem; the ending, such as .csv, tells its format"
    )
    capacity: float | None = Field(default=None, gt=0, le=1e15, description="Replaces the capacity of a file")
    vehicles: int | None = Field(default=None, ge=1, le=1_000_000, description="Replaces the fleet limit of a file")

    def over(self, other: Options) -> Options:
        """These, and the other's where these say nothing."""
        return Options(**{**other.model_dump(exclude_none=True), **self.model_dump(exclude_none=True)})


@dataclass(frozen=True)
class Labels:
    """How an answer calls what the problem numbers 0, 1, 2 …"""

    ids: list[int | None]  # one for each node; None for a depot, which is no job
    descriptions: list[str]
    vehicles: list[tuple[int, str]] = field(default_factory=list)  # id and description; none: numbered 1, 2, 3 …
    service: list[float] | None = None
    locations: list[list[float] | None] = field(default_factory=list)
    geographic: bool = False  # locations are [longitude, latitude]
    durations: Numbers | None = None
    distances: Numbers | None = None


@dataclass(frozen=True)
class Problem:
    instances: Instances  # one of them
    labels: Labels

    @property
    def kind(self) -> str:
        return "TSP" if self.instances.demands is None else "CVRP"

    @property
    def name(self) -> str:
        return self.instances.names[0]

    @property
    def weight(self) -> int:
        """Bytes of its matrices, which is what may be large."""
        given = (self.labels.durations, self.labels.distances)
        matrix = self.instances.matrix
        return (0 if matrix is None else matrix.nbytes) + sum(each.nbytes for each in given if each is not None)

    def picture(self) -> dict[str, Any]:
        """What a page needs to draw it."""
        instances, labels = self.instances, self.labels
        places = labels.locations
        drawn = places if all(place is not None for place in places) else instances.coords[0].tolist()
        facts: dict[str, Any] = {
            "name": self.name,
            "problem": self.kind,
            "nodes": instances.num_nodes,
            "distances": instances.rule.name,
            "geographic": labels.geographic,
            "positions": drawn,
            "placed": drawn is places,  # False: positions were computed from a matrix
            "names": [
                words or (str(number) if number is not None else "depot")
                for words, number in zip(labels.descriptions, labels.ids, strict=True)
            ],
        }
        if instances.demands is not None and instances.capacity is not None:
            fleet = None if instances.vehicles is None else int(instances.vehicles[0])
            facts |= {"demands": instances.demands[0].tolist(), "capacity": instances.capacity[0].item()}
            facts["vehicles"] = fleet
        return facts


def parse_text(text: str, name: str, most_nodes: int, options: Options) -> Problem:
    """The problem in a TSPLIB or CVRPLIB text or in a table."""
    if text.count("\n") > 20 * most_nodes + 1000 or text.count("\r") > 20 * most_nodes + 1000:
        raise LehdError(f"{name}: too many lines for a problem of at most {most_nodes} nodes")
    capacity = options.capacity
    whole = capacity is not None and capacity.is_integer()  # keep whole quantities exact
    instances = read_text(text, name, int(capacity) if whole and capacity else capacity, options.vehicles)
    if instances.num_nodes > most_nodes:
        raise LehdError(f"{name}: {instances.num_nodes} nodes; expected at most {most_nodes}")
    check_fleet(instances, name)
    named = bool(instances.node_names) and not all(each.isdigit() for each in instances.node_names)
    ids: list[int | None] = list(node_ids(instances))
    if instances.demands is not None:
        ids[0] = None
    geographic = instances.rule.geographic
    places: list[list[float] | None] = [None] * instances.num_nodes
    if instances.matrix is None:
        places = list(degrees(instances) if geographic else instances.coords[0].tolist())
    labels = Labels(
        ids=ids,
        descriptions=list(instances.node_names) if named else [""] * instances.num_nodes,
        locations=places,
        geographic=geographic,
    )
    return Problem(instances, labels)


def check_fleet(instances: Instances, name: str) -> None:
    """Refuse at once what no plan can keep."""
    if instances.vehicles is None or instances.demands is None or instances.capacity is None:
        return
    total, fleet, capacity = instances.demands.sum().item(), int(instances.vehicles[0]), instances.capacity[0].item()
    if total > fleet * capacity * (1 + 1e-6):
        raise LehdError(
            f"{name}: the demands add up to {brief(total)}, but {count(fleet, 'vehicle')} of capacity "
            f"{brief(capacity)} can carry {brief(fleet * capacity)}"
        )
