"""The service as clients see it, with real workers."""

import json
import time

import pytest

from lehd.io import read_text
from lehd.io.solution import PARSERS
from lehd.problems import of
from tests.cli.command import BAKERY, HARBOUR
from tests.service.requests import SQUARE, demand_table, table, vroom


def events(service, identity):
    """The server-sent events of a job, until its end."""
    with service.client.stream("GET", f"/jobs/{identity}/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        kind = ""
        for line in response.iter_lines():
            if line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: "):
                yield kind, json.loads(line[6:])


def submit(service, body, **options):
    response = service.client.post("/jobs", content=body, params=options)
    assert response.status_code == 201, response.text
    return response.json()["id"]


@pytest.mark.parametrize("path", [HARBOUR, BAKERY])
def test_solve_answers_when_done(service, path):
    text = path.read_text()
    began = time.monotonic()
    response = service.client.post("/solve", content=text, params={"time_limit": 1.5})
    assert response.status_code == 200
    assert time.monotonic() - began > 0.5
    answer = response.json()
    instance = read_text(text, path.name)
    visits = answer["lehd"].get("tour") or answer["lehd"]["routes"]
    solution = of(instance).solution(instance, visits)  # checks it
    cost = of(instance).cost(instance, solution)[0].item()
    assert answer["summary"]["cost"] == answer["lehd"]["cost"] == cost
    assert sum(route["cost"] for route in answer["routes"]) == cost
    assert answer["lehd"]["history"][-1]["cost"] == cost
    assert answer["summary"]["routes"] == len(answer["routes"])


def test_vroom_in_vroom_out(service):
    request = vroom(jobs=12, vehicles=6, capacity=9) | {"lehd": {"iterations": 3, "name": "shops"}}
    answer = service.client.post("/solve", json=request).json()
    demand = {job["id"]: job["delivery"][0] for job in request["jobs"]}
    served = [step["id"] for route in answer["routes"] for step in route["steps"] if step["type"] == "job"]
    assert sorted(served) == sorted(demand)
    for route in answer["routes"]:
        carried = sum(demand[step["id"]] for step in route["steps"] if step["type"] == "job")
        assert route["delivery"] == [carried]
        assert carried <= 9
        assert route["steps"][0]["load"] == [carried]
        assert route["steps"][-1]["load"] == [0]
    vehicles = [route["vehicle"] for route in answer["routes"]]
    assert len(set(vehicles)) == len(vehicles)
    assert set(vehicles) <= {vehicle["id"] for vehicle in request["vehicles"]}
    assert answer["lehd"]["name"] == "shops"
    assert answer["lehd"]["iterations"] == 3


def test_same_seed_and_iterations_same_result(service):
    answers = [
        service.client.post("/solve", content=table(30), params={"iterations": 5, "seed": 3}).json() for _ in range(2)
    ]
    assert answers[0]["lehd"]["tour"] == answers[1]["lehd"]["tour"]
    assert answers[0]["lehd"]["seed"] == 3


def test_incumbents_arrive_while_it_searches(service):
    identity = submit(service, BAKERY.read_text(), time_limit=100)
    seen, costs = [], []
    for kind, data in events(service, identity):
        seen.append((kind, data))
        if kind == "incumbent":
            costs.append(data["cost"])
            assert sorted(node for route in data["routes"] for node in route) == list(range(1, 81))
            if len(costs) == 3:
                service.client.delete(f"/jobs/{identity}")
    assert len(costs) >= 3
    assert costs == sorted(set(costs), reverse=True)
    kind, end = seen[-1]
    assert kind == "end"
    assert end["state"] == "stopped"
    live = [point for kind, data in seen if kind == "incumbent" for point in data["history"]]
    assert [(point["iteration"], point["cost"]) for point in live] == [
        (point["iteration"], point["cost"]) for point in end["history"]
    ]
    assert end["answer"]["summary"]["cost"] == costs[-1]
    again = list(events(service, identity))  # after the end: the last incumbent, and the end
    assert [kind for kind, _ in again] == ["state", "incumbent", "end"]
    assert again[-1][1] == end


def test_stop_keeps_the_best_so_far(service):
    identity = submit(service, BAKERY.read_text(), time_limit=60)
    for kind, _ in events(service, identity):
        if kind == "incumbent":
            break
    record = service.client.delete(f"/jobs/{identity}").json()
    assert record["state"] == "stopped"
    assert record["answer"]["summary"]["cost"] == record["incumbent"]["cost"]
    assert service.client.delete(f"/jobs/{identity}").json() == record
    assert service.client.post(f"/jobs/{identity}/resume").status_code == 409
    assert service.client.post(f"/jobs/{identity}/pause").status_code == 409


def test_pause_and_resume(service):
    identity = submit(service, HARBOUR.read_text(), time_limit=6)
    for kind, _ in events(service, identity):
        if kind == "incumbent":
            break
    paused = service.client.post(f"/jobs/{identity}/pause").json()
    assert paused["state"] == "paused"
    assert 0 < paused["seconds"] < 6
    assert service.client.get(f"/jobs/{identity}").json() == paused
    resumed = service.client.post(f"/jobs/{identity}/resume").json()
    assert resumed["state"] in ("queued", "running")
    done = service.wait_for(identity, "done")
    assert done["incumbent"]["cost"] <= paused["incumbent"]["cost"]
    assert done["history"][: len(paused["history"])] == paused["history"]
    assert done["seconds"] == pytest.approx(6, abs=2)
    costs = [point["cost"] for point in done["history"]]
    assert costs == sorted(costs, reverse=True)


def test_a_plan_that_needs_too_many_vehicles(service):
    # Three jobs of 6 fit two vehicles of 9 by weight (18), but no two of them fit one.
    request = vroom(jobs=3, vehicles=2, capacity=9)
    for job in request["jobs"]:
        job["delivery"] = [6]
    response = service.client.post("/solve", json=request, params={"iterations": 2})
    assert response.status_code == 422
    assert "needs 3 routes, but there are only 2 vehicles" in response.json()["error"]
    identity = submit(service, json.dumps(request), iterations=2)
    record = service.wait_for(identity, "failed")
    assert "3 routes" in record["error"]
    assert len(record["incumbent"]["routes"]) == 3
    assert record["answer"] is None  # no vehicles are made up
    request["vehicles"] = request["vehicles"][:1]
    response = service.client.post("/jobs", json=request)
    assert response.status_code == 422  # known at once
    assert "add up to 18" in response.json()["error"]


@pytest.mark.parametrize(("path", "form"), [(HARBOUR, "tour"), (BAKERY, "sol"), (BAKERY, "json")])
def test_solutions_as_files(service, path, form):
    identity = submit(service, path.read_text(), iterations=1)
    record = service.wait_for(identity, "done")
    response = service.client.get(f"/jobs/{identity}/solution", params={"format": form})
    assert response.headers["content-disposition"] == f'attachment; filename="solution.{form}"'
    instance = read_text(path.read_text(), path.name)
    visits = PARSERS[f".{form}"](response.text, instance, "solution")
    assert visits == (record["incumbent"].get("tour") or record["incumbent"]["routes"])
    checked = service.client.post(f"/jobs/{identity}/check", content=response.text, params={"format": form}).json()
    assert checked["cost"] == record["incumbent"]["cost"]
    wrong = service.client.post(f"/jobs/{identity}/check", content="1 2 3", params={"format": form})
    assert wrong.status_code == 422


def test_formats_that_do_not_fit(service):
    identity = submit(service, SQUARE, iterations=0)
    service.wait_for(identity, "done")
    for form, message in (
        ("sol", "holds vehicle routes"),
        ("geojson", "needs latitudes and longitudes"),
        ("exe", "format"),
    ):
        response = service.client.get(f"/jobs/{identity}/solution", params={"format": form})
        assert response.status_code == 422
        assert message in response.json()["error"]


def test_a_geojson_of_places(service):
    identity = submit(service, "name,lat,lon\n<b>A</b>,1,2\nB,3,4\nC,5,6\n", iterations=0)
    service.wait_for(identity, "done")
    found = service.client.get(f"/jobs/{identity}/solution", params={"format": "geojson"}).json()
    assert found["features"][1]["geometry"]["coordinates"] == [2, 1]
    assert found["features"][1]["properties"]["name"] == "<b>A</b>"
    picture = service.client.get(f"/jobs/{identity}/problem").json()
    assert picture["positions"][0] == [2, 1]
    assert picture["geographic"]
    assert picture["names"] == ["<b>A</b>", "B", "C"]


def test_inspect_shows_a_problem(service):
    picture = service.client.post("/inspect", content=BAKERY.read_text()).json()
    assert picture["problem"] == "CVRP"
    assert picture["nodes"] == 81
    assert picture["capacity"] == 100
    assert len(picture["positions"]) == len(picture["demands"]) == 81
    table_with = service.client.post(
        "/inspect", content=demand_table(5), params={"capacity": 30}, headers={"content-type": "text/csv"}
    ).json()
    assert table_with["capacity"] == 30
    bad = service.client.post("/inspect", content="x,y\n1,zwei\n", params={"name": "my.csv"})
    assert bad.status_code == 422
    assert bad.json()["error"] == "my.csv, line 2: y is 'zwei'; expected a number (at most 1e+15 in size)"


def test_about_the_service(service):
    health = service.client.get("/health").json()
    assert health["status"] == "ok"
    assert health["workers"] == 2
    text = service.client.get("/metrics").text
    assert "lehd_workers_ready 2" in text
    assert 'lehd_http_requests_total{method="GET",route="/health",status="200"}' in text
    for line in text.splitlines():
        assert line.startswith("#") or float(line.rsplit(" ", 1)[1]) >= 0
    paths = service.client.get("/openapi.json").json()["paths"]
    assert {"/solve", "/jobs", "/jobs/{id}", "/jobs/{id}/events", "/health", "/metrics"} <= set(paths)
    assert service.client.get("/config").json()["nodes"] == 10_000
