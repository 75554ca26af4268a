"""`lehd bench uniform`, `tsplib`, `cvrplib` and `peers`: how good, and in what time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lehd.cli.bench_options import (
    Budgets,
    DataFolder,
    Device,
    MostNodes,
    Names,
    OnlyPaper,
    Output,
    Pictures,
    Seed,
    StopAfter,
    TimeLimit,
    Weights,
    folder_of,
    numbers,
    stop_after,
    whole,
    words,
)
from lehd.cli.common import reporting
from lehd.cli.work_options import Cluster, Gpus, Processes
from lehd.errors import LehdError
from lehd.work.engines import LOCAL, find_crew, refuse_crowding

if TYPE_CHECKING:
    from lehd.bench.sets import Options
    from lehd.work.units import Engine, Needs


def uniform(
    data: DataFolder,
    sets: Annotated[str, typer.Option(metavar="A,B…", show_default="all", help="Names of test sets.")] = "",
    rrc: Budgets = "50,100,300,500,1000",
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only the first so many of a set.")] = None,
    batch: Annotated[
        int | None, typer.Option(metavar="N", min=1, show_default="what fits", help="Instances at once.")
    ] = None,
    time_limit: Annotated[
        str, typer.Option(metavar="S,S…", help="Search a set so long, all instances at once, in place of --rrc.")
    ] = "",
    start: Annotated[
        float, typer.Option(metavar="S", min=0, help="Go on where the search of so many seconds in --output ended.")
    ] = 0.0,
    turn: Annotated[bool, typer.Option("--turn", help="RRC shows the model each part turned at random.")] = False,
    nearest: Annotated[
        int | None, typer.Option(metavar="K", show_default="all", help="Show the model only K near nodes.")
    ] = None,
    weights: Weights = None,
    seed: Seed = 0,
    device: Device = None,
    output: Output = None,
    stop: StopAfter = None,
    processes: Processes = None,
    cluster: Cluster = LOCAL,
    gpus: Gpus = 0.0,
) -> None:
    """Uniform test sets (the paper's Table 1): greedy and RRC, every budget a point of one run.

    Out of memory, it goes on with half as many instances at once. With a time limit a set is solved as lehd solve does
    it; of several limits the longest counts, the others are points of its run. A search that has ended can go on later;
    limits then count the seconds it has had.

    [bold]Examples[/bold]

      lehd bench uniform --data data --output runs/uniform.jsonl

      lehd bench uniform --data data --sets tsp1000_fu --time-limit 60,300 --output runs/search.jsonl

      lehd bench uniform --data data --sets tsp1000_fu --time-limit 900 --start 300 --output runs/search.jsonl

      lehd bench uniform --data data --sets tsp100_s2023,cvrp200 --rrc 50,100 --limit 16

      lehd bench uniform --data data --sets tsp1000_fu --rrc 0 --nearest 100
    """
    with reporting():
        from lehd.bench.elsewhere import Elsewhere
        from lehd.bench.published import paper_tables
        from lehd.bench.report import uniform_table
        from lehd.bench.sets import Options
        from lehd.bench.store import Store
        from lehd.bench.summary import summarise
        from lehd.bench.uniform import find_sets, run_uniform
        from lehd.cli.live import LiveTable

        budgets, limits = tuple(whole(rrc, "--rrc")), numbers(time_limit, "--time-limit")
        options = Options(budgets, weights, limit, device, seed, batch, turn, nearest, stop=stop_after(stop))
        paths = find_sets(folder_of(data, "uniform"), words(sets) or None)
        store, (engine, needs) = Store(output), find_crew(cluster, processes, gpus)
        with LiveTable("gap, %", lambda record: record.set, lambda record: record.budget) as live:
            if engine is None:
                records = run_uniform(paths, options, store, live, limits, start)
            else:
                _refuse(**{"device": device, "time-limit": time_limit or None, "start": start or None})
                records = Elsewhere(options, store, live, engine, needs).uniform(paths)
        problems = {record.problem for record in records}
        for problem in ("TSP", "CVRP"):
            if problem in problems:
                typer.echo(uniform_table(paper_tables()[f"uniform_{problem.lower()}"], summarise(records)) + "\n")


def tsplib(
    data: DataFolder,
    rrc: Budgets = "",
    time_limit: TimeLimit = None,
    most_nodes: MostNodes = None,
    paper: OnlyPaper = False,
    names: Names = "",
    weights: Weights = None,
    seed: Seed = 0,
    device: Device = None,
    output: Output = None,
    pictures: Pictures = None,
    stop: StopAfter = None,
    processes: Processes = None,
    cluster: Cluster = LOCAL,
    gpus: Gpus = 0.0,
) -> None:
    """TSPLIB (Table 2): every file and size bin, by the files' own rule and as in the paper.

    [bold]Examples[/bold]

      lehd bench tsplib --data data --paper --rrc 50,100,1000 --output runs/tsplib.jsonl

      lehd bench tsplib --data data --names pr2392 --rrc 100 --pictures runs/pictures
    """
    with reporting():
        options = _library_options(rrc, weights, seed, device, pictures, stop)
        crew = _crew(cluster, processes, gpus, time_limit)
        _library("tsplib", data, options, time_limit, most_nodes, paper, names, output, pictures, *crew)


def cvrplib(
    data: DataFolder,
    rrc: Budgets = "",
    time_limit: TimeLimit = None,
    most_nodes: MostNodes = None,
    paper: OnlyPaper = False,
    names: Names = "",
    weights: Weights = None,
    seed: Seed = 0,
    device: Device = None,
    output: Output = None,
    pictures: Pictures = None,
    stop: StopAfter = None,
    processes: Processes = None,
    cluster: Cluster = LOCAL,
    gpus: Gpus = 0.0,
) -> None:
    """CVRPLIB (Table 2): every file and set, against the best known and against the paper's references.

    [bold]Examples[/bold]

      lehd bench cvrplib --data data --paper --rrc 50,100,1000 --output runs/cvrplib.jsonl

      lehd bench cvrplib --data data --most-nodes 200 --time-limit 10
    """
    with reporting():
        options = _library_options(rrc, weights, seed, device, pictures, stop)
        crew = _crew(cluster, processes, gpus, time_limit)
        _library("cvrplib", data, options, time_limit, most_nodes, paper, names, output, pictures, *crew)


def _library_options(
    rrc: str, weights: Path | None, seed: int, device: str | None, pictures: Path | None, stop: float | None
) -> Options:
    from lehd.bench.library import SHOWN
    from lehd.bench.sets import Options

    kept = None if pictures is None else pictures / "solutions"
    budgets = tuple(whole(rrc, "--rrc"))
    return Options(budgets, weights, device=device, seed=seed, solutions=kept, show=SHOWN, stop=stop_after(stop))


def _crew(cluster: str, processes: int | None, gpus: float, time_limit: float | None) -> tuple[Engine | None, Needs]:
    if time_limit is not None:
        refuse_crowding(processes)
    return find_crew(cluster, processes, gpus)


def _library(
    library: str,
    data: Path,
    options: Options,
    time_limit: float | None,
    most_nodes: int | None,
    paper: bool,
    names: str,
    output: Path | None,
    pictures: Path | None,
    engine: Engine | None,
    needs: Needs,
) -> None:
    from lehd.bench.elsewhere import Elsewhere
    from lehd.bench.library import find_cases, run_library, summary
    from lehd.bench.report import files_table
    from lehd.bench.store import Store
    from lehd.cli.live import LiveTable

    cases = find_cases(library, folder_of(data, library), most_nodes, paper, words(names) or None)
    store = Store(output)
    if engine is not None:
        _refuse(device=options.device, pictures=pictures)
    with LiveTable("gap, %", lambda record: record.set, lambda record: record.budget) as live:
        if engine is None:
            records = run_library(cases, options, store, live, time_limit)
        else:
            records = Elsewhere(options, store, live, engine, needs).library(cases, time_limit)
    typer.echo(f"{files_table(records)}\n\n{summary(library, records)}")
    if pictures is not None:
        from lehd.bench.pictures import draw_all

        for path in draw_all(records, pictures, data, options.solutions):
            typer.echo(str(path), err=True)


def _refuse(**options: object) -> None:
    """What only one process can do."""
    for name, value in options.items():
        if value is not None:
            raise LehdError(f"--{name} does not go with --processes and --cluster")


def peers(
    data: DataFolder,
    sets: Annotated[str, typer.Option(metavar="A,B…", help="Names of uniform test sets.")] = "",
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Only the first so many of a set.")] = 10,
    files: Annotated[str, typer.Option(metavar="A,B…", help="Names of benchmark files.")] = "",
    seconds: Annotated[str, typer.Option(metavar="S,S…", help="For each instance.")] = "1,10,60",
    solvers: Annotated[str, typer.Option(metavar="A,B…", show_default="all", help="Which ones.")] = "",
    throughput: Annotated[bool, typer.Option("--throughput", help="Solve the instances of a set together.")] = False,
    cores: Annotated[
        int, typer.Option(metavar="N", min=1, help="With --throughput: instances of others at a time, threads of ours.")
    ] = 1,
    lkh: Annotated[Path | None, typer.Option(metavar="FILE", help="Your LKH program.")] = None,
    concorde: Annotated[Path | None, typer.Option(metavar="FILE", help="Your Concorde program.")] = None,
    tsp_weights: Weights = None,
    cvrp_weights: Weights = None,
    seed: Seed = 0,
    device: Device = None,
    output: Output = None,
    processes: Processes = None,
    cluster: Cluster = LOCAL,
) -> None:
    """Other solvers on the same instances, machine and wall-clock time: fast-tsp, HGS, PyVRP, OR-Tools, VROOM …

    Install them with: pip install lehd\\[peers]. What is missing is named in the table.

    [bold]Examples[/bold]

      lehd bench peers --data data --sets tsp100_s2023,cvrp100_mvmoe1k --limit 10 --output runs/peers.jsonl

      lehd bench peers --data data --sets cvrp100_mvmoe1k --limit 256 --seconds 1 --throughput --cores 2
    """
    with reporting():
        from lehd.bench.items import find_items
        from lehd.bench.peers import Options as PeerOptions
        from lehd.bench.peers import Race
        from lehd.bench.peers_table import peers_table
        from lehd.bench.rivals import RIVALS
        from lehd.bench.store import LEHD, Store
        from lehd.cli.live import LiveTable
        from lehd.labels.solvers import find_program

        given = {"LKH": lkh, "Concorde": concorde}
        trained = {"TSP": tsp_weights, "CVRP": cvrp_weights}
        options = PeerOptions(
            seconds=tuple(numbers(seconds, "--seconds")),
            solvers=tuple(words(solvers)) or (LEHD, *RIVALS),
            binaries={
                name: find_program(name, path, f"--{name.lower()} FILE")
                for name, path in given.items()
                if path is not None
            },
            weights={problem: path for problem, path in trained.items() if path is not None},
            device=device,
            seed=seed,
            cores=cores,
            throughput=throughput,
        )
        refuse_crowding(processes)
        engine, _ = find_crew(cluster, processes)
        items = find_items(data, words(sets), limit, words(files))
        with LiveTable("gap, %", lambda record: f"{record.method} {record.budget}", lambda record: record.set) as live:
            race = Race(items, options, Store(output), live, engine)
            records = race.run()
        typer.echo(peers_table(records, race.missing))
