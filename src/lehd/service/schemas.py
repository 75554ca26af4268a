"""The shapes of answers, for the API's documentation."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class Error(BaseModel):
    code: int = Field(description="2, as VROOM says for bad input")
    error: str = Field(description="What is wrong, and where")


class Point(BaseModel):
    """One improvement."""

    seconds: float
    iteration: int
    cost: float


class Incumbent(Point):
    """The best solution so far: the nodes of a tour from 0, or the customers 1..n of each route."""

    tour: list[int] | None = None
    routes: list[list[int]] | None = None


class Step(BaseModel):
    type: Literal["start", "job", "end"]
    node: int = Field(description="lehd's number of the place: 0 is the depot or the first node")
    id: int | None = None
    job: int | None = None
    location: list[float] | None = None
    description: str | None = None
    load: list[float] | None = None
    service: float = 0
    arrival: float | None = Field(default=None, description="Where durations are known")
    duration: float | None = Field(default=None, description="So far, where durations are known")
    distance: float | None = Field(default=None, description="So far, where distances are known")


class Route(BaseModel):
    vehicle: int
    cost: float
    service: float = 0
    delivery: list[float] | None = None
    duration: float | None = None
    distance: float | None = None
    description: str | None = None
    steps: list[Step]


class Answer(BaseModel):
    """VROOM's answer; `lehd` is what `lehd solve --json` prints, with the history."""

    code: int
    summary: dict[str, Any]
    unassigned: list[Any]
    routes: list[Route]
    lehd: dict[str, Any]


class JobRecord(BaseModel):
    id: str
    state: Literal["queued", "running", "paused", "done", "stopped", "failed", "interrupted"]
    position: int | None = Field(default=None, description="Jobs before this one, while it is queued")
    name: str
    problem: Literal["TSP", "CVRP"]
    nodes: int
    time_limit: float
    max_iterations: int | None
    seed: int
    created: float = Field(description="Seconds since 1970, as are started and finished")
    started: float | None
    finished: float | None
    seconds: float = Field(description="Of search so far")
    iterations: int
    incumbent: Incumbent | None
    history: list[Point]
    progress: dict[str, Any] | None = Field(default=None, description="Of the first construction: phase, done, total")
    error: str | None
    answer: Answer | None = Field(
        description="Once the job has ended, or is paused; none if its plan needs more routes than there are vehicles"
    )


class Picture(BaseModel):
    """A problem, ready to be drawn."""

    name: str
    problem: Literal["TSP", "CVRP"]
    nodes: int
    distances: str
    geographic: bool = Field(description="Positions are [longitude, latitude]")
    placed: bool = Field(description="False: positions only stand for a distance matrix")
    positions: list[list[float]]
    names: list[str]
    demands: list[float] | None = None
    capacity: float | None = None
    vehicles: int | None = None


class Checked(BaseModel):
    """A solution measured against a job's problem."""

    cost: float
    tour: list[int] | None = None
    routes: list[list[int]] | None = None
    loads: list[float] | None = None
