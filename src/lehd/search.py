"""The search behind `solve`: construct, then reconstruct until the stop. Under a time limit there is a feasible
solution before a construction that takes long, and time decides how much of the instance the model looks at."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from lehd import symmetry
from lehd.decoding.compilation import Meanwhile, compiled_beside
from lehd.decoding.construct import best_rows, construct
from lehd.decoding.replay import Record, may_record
from lehd.decoding.rrc import constructor, random_reconstruct
from lehd.decoding.select import GREEDY, Beam, Sample, Select
from lehd.decoding.speed import WORTH_TRYING, Speed, faster_threads, gain_by_spreading, measure_speed
from lehd.decoding.spread import Spread
from lehd.decoding.stop import OutOfTime, Stop
from lehd.distance import strictly_shorter
from lehd.memory import Memory, give_back, out_of_memory
from lehd.model.lehd import LEHD
from lehd.plan import Options, affordable_views, plan_parts, view_of
from lehd.problems.base import Problem, in_unit_box
from lehd.recording import Recorder
from lehd.types import Incumbent, Instances, Result, Rollout, Solution, State
from lehd.words import count

CHEAP = "the search started from insertion, not from a solution of the model"
NOTICEABLE = 0.5  # seconds: while a first construction takes longer, there is a stopgap
WORTH_SPREADING = 1.15  # times as fast
MOMENT = 0.5  # seconds: what insertion may take once somebody has called the search off


@dataclass(frozen=True)
class Progress:
    """Where a search stands. Costs are means where a batch is solved."""

    phase: str  # "construct" or "reconstruct"
    done: int  # construction steps so far, or iterations so far
    total: int | None  # of them in all; None where a time limit decides
    cost: float | None  # of the incumbent
    gain: float | None  # how much shorter it is than the first solution, as a fraction
    seconds: float  # since the call
    solution: Solution | None  # the incumbent


class Search:
    """One search over instances that fit into memory together."""

    def __init__(
        self,
        problem: Problem,
        instances: Instances,
        model: LEHD,
        device: torch.device,
        stop: Stop,
        options: Options,
        rng: random.Random,
        begun: float,
        progress: Callable[[Progress], None] | None,
        memory: Memory | None = None,
    ):
        self.problem, self.given, self.model, self.stop, self.rng = problem, instances, model, stop, rng
        self.options, self.begun, self.report, self.memory = options, begun, progress, memory
        self.instances: Instances = in_unit_box(instances).to(device)
        self.construct_greedily = constructor(model, problem, device, memory)
        self.meanwhile: Meanwhile | None = None
        # A limit of memory is one for rows that are done together.
        spreads = device.type == "cpu" and stop.deadline is not None and (memory is None or memory.given is None)
        self.threads = torch.get_num_threads() if spreads else 1
        self.spread: Spread | None = None
        self.solution: Solution | None = None
        self.cost = torch.zeros(len(instances))
        self.history: list[list[Incumbent]] = [[] for _ in range(len(instances))]
        self.first_cost: float | None = None
        self.iteration = 0
        self.interrupted = False
        self.cheap = torch.zeros(len(instances), dtype=torch.bool)  # which searches did not start from the model
        self.stopgap = False  # the incumbent is but a curve through all nodes, until there is a first solution

    def run(self, start: Solution | None, interrupted: bool = False) -> None:
        """Search until the stop; if the user has interrupted already, only take the start or a cheap one."""
        self.interrupted = interrupted
        try:
            if start is not None:
                self._begin(start.to(self.instances.device))
            speed = None
            if self.stop.deadline is not None and not self.problem.trivial(self.instances):
                if self.instances.device.type == "cpu" and not interrupted:
                    torch.set_num_threads(faster_threads(self.model, self.problem, self.instances, self.stop))
                self._compile_beside()
                with self._layers():
                    speed = self._measure_speed()
                if self.threads > 1 and not interrupted:
                    speed = self._spread_rows(speed)
            if start is None:
                self._first_solution(speed)
            if self.problem.trivial(self.instances):
                self._keep(self.problem.settle(self.instances, self._incumbent))
            if self._kernels_have_come():
                speed = self._measure_speed()
            if not interrupted:
                self._tell("reconstruct", 0, self.stop.iterations)
            cheap = bool(self.cheap.all())
            plan = plan_parts(self.problem, self.instances, self.options, speed, self.stop.time_left(), cheap)
            random_reconstruct(
                self.model,
                self.problem,
                self.instances,
                self._incumbent,
                self.stop,
                self.rng,
                longest=plan.longest,
                coverage=plan.coverage,
                nearest=plan.nearest,
                on_iteration=self._on_iteration,
                construct_part=self.construct_greedily,
                turn=plan.turn,
                # On a GPU it is not clear that they gain anything; with a fleet limit lengths are not all that counts.
                detours=self.instances.device.type == "cpu" and self.instances.vehicles is None,
            )
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            if self.spread is not None:
                self.spread.close()
        self.interrupted |= self.stop.called_off()
        if self.solution is None:
            self._begin(self._cheap_start(), cheap=True)
        elif self.stopgap:
            with suppress(KeyboardInterrupt):  # whoever does not want to wait for insertion has the stopgap
                self._begin(self._cheap_start(), cheap=True)
            self.cheap = torch.ones_like(self.cheap)
        self.seconds = time.perf_counter() - self.begun

    def _compile_beside(self) -> None:
        """If a GPU's kernels have to be compiled first, do without them until they are."""
        if (compilation := compiled_beside(self.model, self.problem, self.instances)) is not None:
            make = partial(constructor, self.model, self.problem, self.instances.device, self.memory)
            self.meanwhile = Meanwhile(compilation, make)
            self.construct_greedily = self.meanwhile.construct

    def _kernels_have_come(self) -> bool:
        """Since the speed was measured, with time enough to measure it again: they are loaded first."""
        if self.meanwhile is None or self.stop.time_left() < WORTH_TRYING:
            return False
        return not self.meanwhile.still_waiting()

    def _layers(self) -> AbstractContextManager[None]:
        return nullcontext() if self.meanwhile is None else self.meanwhile.layers()

    def _spread_rows(self, speed: Speed) -> Speed:
        """Each thread constructs rows of its own from now on, if that is faster now."""
        self.spread = Spread(self.model, self.problem, self.threads)
        gain = gain_by_spreading(self.spread, self.instances, self.stop)
        if gain < WORTH_SPREADING:
            return speed
        self.construct_greedily = self.spread.construct
        return replace(speed, rows_at_once=gain)

    def _measure_speed(self) -> Speed:
        """That of recorded steps, if there is memory for a recording."""
        try:
            return measure_speed(self.model, self.problem, self.instances, self.stop, self._record())
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
        give_back()
        return measure_speed(self.model, self.problem, self.instances, self.stop)

    def _record(self) -> Record | None:
        """How steps are recorded, where all of them are: on a GPU, in greedy construction without a memory limit."""
        one_by_one = self.options.beam or self.options.sample or self.options.views == "average"
        device = self.instances.device
        if device.type != "cuda" or one_by_one or not may_record(self.model, self.memory):
            return None
        return Recorder(device).record

    def _select(self) -> Select:
        if self.options.sample is not None:
            generator = torch.Generator(self.instances.device).manual_seed(self.rng.getrandbits(63))
            return Sample(self.options.sample, generator)
        return GREEDY if self.options.beam is None else Beam(self.options.beam)

    def _first_solution(self, speed: Speed | None) -> None:
        """What the model constructs; the cheap start if there is no time for that."""
        select, nearest = self._select(), self.options.nearest
        steps = self.instances.num_nodes - self.problem.first_node
        if speed is not None:
            rows, left = len(self.instances) * self.options.width, self.stop.time_left()
            affordable = affordable_views(self.problem, speed, rows, steps, nearest, left)
            if not affordable:
                self._begin(self._cheap_start(), cheap=True)
                return
            nearest = affordable[0]
            if speed.seconds(rows, steps, nearest) > NOTICEABLE:
                self._keep(self.problem.cheap_start(self.instances, hurried=True))
                self.stopgap = True
        elif not self.stop.iterations:  # whoever counts iterations wants the paper's way
            nearest = nearest or view_of(self.problem, steps)
        draws = [self.rng.randrange(self.instances.num_nodes) for _ in range(len(self.instances))]
        state = self.problem.initial_state(self.instances, torch.tensor(draws, device=self.instances.device))
        try:
            constructed = self.problem.complete(state, self._construct(state, select, nearest))
        except OutOfTime:
            self._begin(self._cheap_start(), cheap=True)
            return
        self._begin(constructed)
        if self.instances.vehicles is not None or self.instances.matrix is not None:
            # The cheap start may keep a fleet limit, or know distances the model cannot see.
            self.cheap |= self._keep(self._cheap_start())

    def _begin(self, solution: Solution, cheap: bool = False) -> None:
        """Take over the first solution, from the model or not; a stopgap only stays where it is better."""
        taken = self._keep(solution)
        self.cheap = torch.full_like(self.cheap, True) if cheap else ~taken
        self.first_cost, self.stopgap = float(self.cost.double().mean()), False

    def _construct(self, state: State, select: Select, nearest: int | None) -> Rollout:
        """The best rollout of each row."""
        instances, rows, views = self.instances, state, 1
        if self.options.views == "average":
            views = symmetry.COUNT
        elif self.options.views == "best":
            instances, rows = symmetry.all_views(instances), symmetry.in_all_views(state)
        on_step = self._on_step(state.available.shape[1])
        if select is GREEDY and views == 1:
            rollout = self.construct_greedily(instances, rows, nearest=nearest, stop=self.stop, on_step=on_step)
        else:
            with self._layers():
                rollout = construct(
                    self.model, self.problem, instances, rows, select, nearest, self.stop, on_step, views, self.memory
                )
        width = len(rollout.nodes) // len(state.start)
        best = best_rows(self.problem, self.instances, state, rollout, width)
        return Rollout(rollout.nodes[best], rollout.via_depot[best], rollout.log_probability[best])

    def _cheap_start(self) -> Solution:
        """With insertion, if there is time for it. Who has called the search off waits for no more than a moment."""
        nodes = self.instances.num_nodes
        needed = 3e-4 * min(nodes, 1000) + 4e-8 * len(self.instances) * nodes * min(nodes, 1000)  # seconds, on a CPU
        left = 0.3 * self.stop.time_left()
        called_off = self.interrupted or self.stop.called_off()
        hurried = needed > (min(MOMENT, left) if called_off else left)
        return self.problem.cheap_start(self.instances, hurried)

    # ---- keeping the incumbent

    @property
    def _incumbent(self) -> Solution:
        assert self.solution is not None
        return self.solution

    def _keep(self, solution: Solution) -> Tensor:
        """Take over the first solution, and from then on what is strictly shorter than the incumbent; where (B,)."""
        cost = self.problem.cost(self.instances, solution).cpu()
        if self.solution is None:
            self.solution, self.cost, better = solution, cost, torch.ones_like(self.cheap)
        else:
            better = self._better(solution, cost)
            self.solution = solution.where(better.to(solution.nodes.device), self.solution)
            self.cost = torch.where(better, cost, self.cost)
        seconds = time.perf_counter() - self.begun
        for row in better.nonzero()[:, 0].tolist():
            self.history[row].append(Incumbent(seconds, self.iteration, self.cost[row].item()))
        return better

    def _better(self, solution: Solution, cost: Tensor) -> Tensor:
        old, new = (self.problem.routes_too_many(self.instances, each) for each in (self._incumbent, solution))
        shorter = strictly_shorter(cost, self.cost)
        if old is None or new is None:
            return shorter
        return (new < old).cpu() | ((new == old).cpu() & shorter)

    def _on_iteration(self, iteration: int, solution: Solution) -> None:
        self.iteration = iteration
        self._keep(solution)
        self._tell("reconstruct", iteration, self.stop.iterations)

    def _on_step(self, steps: int) -> Callable[[int], None] | None:
        return None if self.report is None else lambda step: self._tell("construct", step, steps)

    def _tell(self, phase: str, done: int, total: int | None) -> None:
        if self.report is None:
            return
        cost = None if self.solution is None else float(self.cost.double().mean())
        gain = None
        if cost is not None and self.first_cost is not None:
            gain = 1 - cost / self.first_cost if self.first_cost else 0.0
        self.report(Progress(phase, done, total, cost, gain, time.perf_counter() - self.begun, self.solution))

    def results(self, seed: int, model: str) -> list[Result]:
        """The incumbents, each checked against the instance as it was given."""
        solution = self._incumbent.to("cpu")
        self.problem.check(self.given, solution)
        costs = self.problem.cost(self.given, solution).tolist()
        too_many = self.problem.routes_too_many(self.given, solution)
        excess = [0] * len(costs) if too_many is None else too_many.tolist()
        notes: list[tuple[str, ...]] = [(CHEAP,) if cheap else () for cheap in self.cheap.tolist()]
        notes = [
            (*note, f"the fleet limit was not met: {count(extra, 'route')} too many") if extra else note
            for note, extra in zip(notes, excess, strict=True)
        ]
        return [
            Result(
                instance=self.given.rows(slice(row, row + 1)),
                solution=solution.rows(slice(row, row + 1)),
                cost=cost,
                history=tuple(self.history[row]),
                seconds=self.seconds,
                iterations=self.iteration,
                seed=seed,
                model=model,
                interrupted=self.interrupted,
                notes=notes[row],
            )
            for row, cost in enumerate(costs)
        ]
