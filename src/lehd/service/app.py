"""The routes of the service. Each is a few lines: the desk knows about jobs, `bodies` about requests."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import anyio
from fastapi import FastAPI, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from lehd import __version__
from lehd.errors import LehdError
from lehd.io.text import decode
from lehd.service import schemas
from lehd.service.bodies import Bodies, Order
from lehd.service.config import Config
from lehd.service.desk import ConflictError, Desk
from lehd.service.events import stream, until_ended
from lehd.service.guard import Guard, Rate
from lehd.service.jobs import FAILED, PAUSED, STOPPED, Job, TooManyError
from lehd.service.metrics import metrics_text
from lehd.service.mistakes import answer_mistakes
from lehd.service.openapi import BODY, FILE, SOLUTION_BODY, STREAM, describe, errors
from lehd.service.solutions import checked, rendered
from lehd.service.store import Record, Store
from lehd.service.task import Options, Problem
from lehd.service.workers import Workers

PARSING = 2  # bodies read at once, each in a thread
ENDING = 12.0  # seconds to wait for a search that was told to end

Id = Annotated[str, PathParameter(pattern=r"^[A-Za-z0-9_-]{20}$", description="A job's id, as POST /jobs gave it")]
Query_ = Annotated[Options, Query()]
Format = Literal["sol", "tour", "json", "geojson"]


def static_folder() -> Path:
    return Path(str(resources.files("lehd.service") / "static"))


def create_app(config: Config) -> Guard:
    """The service as an ASGI application. Workers start with it and end with it."""
    store = Store(config.database, config.limits.kept)
    desk = Desk(store, config.limits)
    workers = Workers(desk, config)
    desk.workers = len(workers.all)
    begun = time.monotonic()
    submissions = Rate(config.limits.jobs_per_minute / 60, config.limits.jobs_per_minute)
    parsing = anyio.CapacityLimiter(PARSING)
    bodies = Bodies(config.limits)
    streams: Counter[str] = Counter()  # by client

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        workers.start()
        yield
        await anyio.to_thread.run_sync(desk.close)
        await anyio.to_thread.run_sync(workers.close)
        store.close()

    app = FastAPI(
        title="lehd",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
    )
    describe(app)
    guard = Guard(app, config)

    async def in_thread(function: Any, *arguments: Any) -> Any:
        """Out of the way of other requests."""
        return await anyio.to_thread.run_sync(function, *arguments, limiter=parsing)

    def check_streams(request: Request) -> None:
        mine, limits = streams[request.scope["lehd.client"]], config.limits
        if mine >= limits.streams_per_client or streams.total() >= limits.streams:
            raise TooManyError("too many clients are waiting for events or answers; try again later", 5)

    @contextmanager
    def one_of_the_streams(request: Request) -> Iterator[None]:
        client = request.scope["lehd.client"]
        streams[client] += 1
        try:
            yield
        finally:
            streams[client] -= 1
            if not streams[client]:
                del streams[client]

    def order_of(body: bytes, request: Request, options: Options) -> Order:
        return Order.of(body, request.headers.get("content-type", ""), options)

    async def submit(request: Request, options: Options) -> Job:
        client = request.scope["lehd.client"]
        wait = submissions.wait(client)
        if wait:
            raise TooManyError(f"more than {config.limits.jobs_per_minute} jobs a minute; slow down", wait)
        async with bodies.read(request) as body:
            order = order_of(body, request, options)
            job: Job = await in_thread(order.job, client, config)
            await anyio.to_thread.run_sync(desk.submit, job, order.pack())
        return job

    async def found(identity: str) -> Record:
        record: Record | None = await anyio.to_thread.run_sync(desk.find, identity)
        if record is None:
            raise HTTPException(404, "there is no such job")
        return record

    async def problem_of(identity: str) -> Problem:
        job = desk.active.get(identity)
        if job is not None:
            return job.problem
        packed = await anyio.to_thread.run_sync(store.request, identity)
        if packed is None:
            raise HTTPException(404, "there is no such job")
        problem: Problem = (await in_thread(Order.unpack(packed).problem, config.limits))[0]
        return problem

    # ---- solving

    @app.post("/solve", openapi_extra=BODY, responses=errors(schemas.Answer, 400, 408, 413, 415, 422, 429))
    async def solve(request: Request, options: Query_) -> Response:
        """Solve and answer when done. Whoever hangs up stops the search."""
        check_streams(request)
        with one_of_the_streams(request):
            job = await submit(request, options)
            while not await until_ended(job, 1.0):
                if await request.is_disconnected():
                    await anyio.to_thread.run_sync(desk.end, job.id, STOPPED)
                    await until_ended(job, ENDING)
        if job.error and job.state in (FAILED, STOPPED):
            raise LehdError(job.error)
        if job.answer is None:
            return JSONResponse({"code": 1, "error": job.error or f"the job is {job.state}", "id": job.id}, 503)
        return JSONResponse(job.answer, headers={"x-job-id": job.id})

    @app.post(
        "/jobs",
        status_code=201,
        openapi_extra=BODY,
        responses=errors(schemas.JobRecord, 400, 408, 413, 415, 422, 429, ok=201),
    )
    async def create(request: Request, options: Query_) -> Response:
        """Put a problem into the queue and answer at once."""
        job = await submit(request, options)
        headers = {"location": f"/jobs/{job.id}"}
        return JSONResponse(desk.find(job.id) or job.record(), 201, headers=headers)

    @app.post("/inspect", openapi_extra=BODY, responses=errors(schemas.Picture, 400, 408, 413, 415, 422, 429))
    async def inspect(request: Request, options: Query_) -> Response:
        """What a problem looks like, without solving it."""
        async with bodies.read(request) as body:
            problem, _ = await in_thread(order_of(body, request, options).problem, config.limits)
        return JSONResponse(problem.picture())

    # ---- jobs

    @app.get("/jobs/{id}", responses=errors(schemas.JobRecord, 404, 422))
    async def look(id: Id) -> Response:
        """State and incumbent and, at the end, the answer."""
        return JSONResponse(await found(id))

    @app.get("/jobs/{id}/events", response_class=Response, responses={**errors(None, 404, 422, 429), 200: STREAM})
    async def events(request: Request, id: Id) -> Response:
        """Server-sent events: every improvement, then `end` with the whole record."""
        record = await found(id)
        check_streams(request)

        async def body() -> AsyncIterator[str]:  # may never begin, if the client is gone by then
            with one_of_the_streams(request):
                async for message in stream(desk, id, record):
                    yield message

        return StreamingResponse(body(), media_type="text/event-stream", headers={"cache-control": "no-store"})

    async def end(identity: str, state: str) -> Response:
        job = await anyio.to_thread.run_sync(desk.end, identity, state)
        if job is not None:
            await until_ended(job, ENDING)
        return JSONResponse(await found(identity))

    @app.delete("/jobs/{id}", responses=errors(schemas.JobRecord, 404, 422))
    async def stop(id: Id) -> Response:
        """Stop a job and keep its best so far. A job that has ended stays as it is."""
        record = await found(id)
        if record["state"] == PAUSED:
            await anyio.to_thread.run_sync(store.save, record | {"state": STOPPED, "finished": round(time.time(), 3)})
        return await end(id, STOPPED)

    @app.post("/jobs/{id}/pause", responses=errors(schemas.JobRecord, 404, 409, 422))
    async def pause(id: Id) -> Response:
        """Stop searching for now; the worker is free for others."""
        record = await found(id)
        if record["state"] not in ("queued", "running", PAUSED):
            raise ConflictError(f"the job is {record['state']}; only waiting and running jobs can be paused")
        return await end(id, PAUSED)

    @app.post("/jobs/{id}/resume", responses=errors(schemas.JobRecord, 404, 409, 422, 429))
    async def resume(request: Request, id: Id) -> Response:
        """Go on with a paused job, or one that a restart interrupted, from its best so far; it queues again."""
        record = await found(id)
        packed = await anyio.to_thread.run_sync(store.request, id)
        if packed is None:
            raise HTTPException(404, "there is no such job")
        job = await in_thread(Order.unpack(packed).job, request.scope["lehd.client"], config)
        await anyio.to_thread.run_sync(desk.resume, record, job)
        return JSONResponse(await found(id))

    @app.get("/jobs/{id}/problem", responses=errors(schemas.Picture, 404, 422))
    async def problem(id: Id) -> Response:
        """What the job is about, ready to be drawn."""
        return JSONResponse((await problem_of(id)).picture())

    @app.get("/jobs/{id}/request", response_class=Response, responses={**errors(None, 404, 422), 200: FILE})
    async def again(id: Id) -> Response:
        """The body that the job was made from, and as `x-parameters` its query, to be sent again."""
        packed = await anyio.to_thread.run_sync(store.request, id)
        if packed is None:
            raise HTTPException(404, "there is no such job")
        order = Order.unpack(packed)
        kept = order.options.model_dump(include={"name", "capacity", "vehicles"}, exclude_none=True)
        kind = "application/json" if order.is_json else "text/plain"
        return Response(order.body, media_type=kind, headers={"x-parameters": urlencode(kept)})

    @app.get("/jobs/{id}/solution", response_class=Response, responses={**errors(None, 404, 409, 422), 200: FILE})
    async def solution(id: Id, format: Annotated[Format, Query()] = "json") -> Response:
        """The best solution so far as a file: CVRPLIB .sol, TSPLIB .tour, JSON or GeoJSON."""
        record, instance = await found(id), await problem_of(id)
        if record["incumbent"] is None:
            raise ConflictError("there is no solution yet")
        text = await in_thread(rendered, instance, record, format)
        headers = {"content-disposition": f'attachment; filename="solution.{format}"'}
        kind = "application/json" if "json" in format else "text/plain"
        return Response(text, media_type=kind, headers=headers)

    @app.post(
        "/jobs/{id}/check",
        openapi_extra=SOLUTION_BODY,
        responses=errors(schemas.Checked, 400, 404, 408, 413, 415, 422, 429),
    )
    async def check(request: Request, id: Id, format: Annotated[Literal["sol", "tour", "json"], Query()]) -> Response:
        """Measure a solution of your own against the job's problem."""
        async with bodies.read(request) as body:
            return JSONResponse(await in_thread(checked, await problem_of(id), decode(body), format))

    # ---- about the service

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether workers are up."""
        ready = workers.ready()
        state = "ok" if ready else "starting"
        return {"status": state, "version": __version__, "workers": ready, "waiting": len(desk.queue)}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counters for Prometheus."""
        text = metrics_text(desk, workers, guard, streams.total(), begun)
        return Response(text, media_type="text/plain; version=0.0.4")

    @app.get("/config")
    async def settings() -> dict[str, Any]:
        """What the page needs to know."""
        limits = config.limits
        return {
            "version": __version__,
            "nodes": limits.nodes,
            "seconds": limits.seconds,
            "default_seconds": min(config.default_seconds, limits.seconds),
            "body_mb": limits.body_mb,
            "key_needed": bool(config.keys),
            "tiles": config.tiles,
            "tiles_credit": config.tiles_credit,
        }

    # ---- the page

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(static_folder() / "index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return FileResponse(static_folder() / "docs.html")

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return FileResponse(static_folder() / "icon.svg", media_type="image/svg+xml")

    app.mount("/static", StaticFiles(directory=static_folder(), follow_symlink=True), name="static")

    answer_mistakes(app)
    return guard
