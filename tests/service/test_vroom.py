"""VROOM's JSON: what is understood, what is refused and by which name, and the answer's arithmetic."""

import copy
import json

import pytest

from lehd.distance import EARTH_RADIUS_METRES
from lehd.errors import LehdError
from lehd.service.answer import answer, result_of
from lehd.service.vroom import parse_vroom
from tests.service.requests import vroom


def parse(request):
    return parse_vroom(json.dumps(request).encode(), "test", 1000)[0]


def changed(path, value):
    """The small request with one thing different."""
    request = vroom()
    target = request
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return request


def test_a_cvrp_on_the_globe():
    problem = parse(vroom(jobs=4, vehicles=3, capacity=7))
    instances = problem.instances
    assert problem.kind == "CVRP"
    assert instances.rule.name == "haversine"
    assert instances.num_nodes == 5
    assert int(instances.vehicles[0]) == 3
    assert instances.capacity[0] == 7
    assert instances.sites[0, 0].tolist() == [48.85, 2.35]  # latitude first
    assert problem.labels.ids == [None, 100, 101, 102, 103]


def test_as_many_vehicles_as_jobs_are_no_limit():
    assert parse(vroom(jobs=4, vehicles=4)).instances.vehicles is None


def test_without_deliveries_it_is_one_tour():
    request = vroom(vehicles=1)
    for job in request["jobs"]:
        del job["delivery"]
    assert parse(request).kind == "TSP"


def test_plane_coordinates_may_be_anywhere():
    request = vroom() | {"coordinates": "plane"}
    request["jobs"][0]["location"] = [1000.0, -5000]
    assert parse(request).instances.rule.name == "euclidean"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["jobs", 1, "time_windows"], [[0, 10]], r"jobs\[1\]\.time_windows: not solved here \(time windows\)"),
        (["jobs", 0, "skills"], [1], r"jobs\[0\]\.skills: not solved"),
        (["jobs", 0, "pickup"], [1], r"jobs\[0\]\.pickup: not solved"),
        (["shipments"], [{}], "shipments: not solved"),
        (["vehicles", 1, "time_window"], [0, 1], r"vehicles\[1\]\.time_window: not solved"),
        (["vehicles", 1, "breaks"], [{}], r"vehicles\[1\]\.breaks"),
        (["vehicles", 1, "max_tasks"], 3, r"vehicles\[1\]\.max_tasks"),
        (["vehicles", 1, "start"], [2.0, 48.0], r"vehicles\[1\]\.start: another place .* several depots"),
        (["vehicles", 0, "end"], [2.0, 48.0], r"vehicles\[0\]\.end: another place"),
        (["vehicles", 0, "end"], None, r"vehicles\[0\]\.end: missing"),
        (["vehicles", 1, "capacity"], [3], r"vehicles\[1\]\.capacity: not the first"),
        (["vehicles", 1, "profile"], "bike", r"vehicles\[1\]\.profile"),
        (["jobs", 1, "id"], 100, r"jobs\[1\]\.id: 100 is there twice"),
        (["jobs", 1, "colour"], "red", r"jobs\[1\]\.colour: unknown field"),
        (["jobs", 2, "location"], None, r"jobs\[2\]\.location: missing"),
        (["jobs", 2, "location"], [2.0, 95.0], r"jobs\[2\]\.location: latitude 95"),
        (["jobs", 2, "location"], [float("nan"), 1], r"jobs\[2\]\.location\[0\]"),
        (["jobs", 2, "location"], [1e308, 1], r"jobs\[2\]\.location\[0\]"),
        (["jobs", 2, "location"], [1, 2, 3], r"jobs\[2\]\.location"),
        (["jobs", 2, "delivery"], [3, 4], r"jobs\[2\]\.delivery"),
        (["jobs", 2, "delivery"], [-1], r"jobs\[2\]\.delivery\[0\]"),
        (["jobs", 2, "delivery"], [1.5], r"jobs\[2\]\.delivery\[0\]"),
        (["jobs", 2, "id"], "7", r"jobs\[2\]\.id"),
        (["jobs"], [], "jobs"),
        (["vehicles"], [], "vehicles"),
        (["matrices"], {}, r"start_index: missing"),
        (["lehd"], {"time_limit": -1}, r"lehd\.time_limit"),
        (["lehd"], {"name": "a\nb"}, r"lehd\.name"),
    ],
)
def test_what_is_refused_is_named(path, value, message):
    with pytest.raises(LehdError, match=message):
        parse(changed(path, value))


def test_what_asks_for_nothing_is_let_pass():
    parse(changed(["jobs", 0, "skills"], []))
    parse(changed(["jobs", 0, "time_windows"], None))


def test_too_much_to_carry():
    with pytest.raises(LehdError, match=r"vehicles: the deliveries add up to \d+, but 1 vehicle of capacity 5 can"):
        parse(vroom(vehicles=1, capacity=5))


def test_a_delivery_that_no_vehicle_can_carry():
    request = vroom(jobs=3, vehicles=3)
    request["jobs"][2]["delivery"] = [11]
    with pytest.raises(LehdError, match=r"jobs\[2\]\.delivery: demand 11 exceeds the capacity; expected at most 10"):
        parse(request)


def test_too_many_jobs():
    with pytest.raises(LehdError, match="expected at most 999"):
        parse(vroom(jobs=1000, vehicles=1000))


def test_a_million_mistakes_are_one_message():
    with pytest.raises(LehdError) as error:
        parse_vroom(b'{"vehicles": [], "jobs": [' + b"0," * 1_000_000 + b"0]}", "test", 1000)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b"{", b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b'{"jobs": 1}']
)
def test_other_json_is_refused(body):
    with pytest.raises(LehdError):
        parse_vroom(body, "test", 1000)


def with_matrix():
    request = vroom(jobs=2, vehicles=1)
    for number, job in enumerate(request["jobs"]):
        del job["location"]
        job |= {"location_index": 2 - number, "service": 10, "delivery": [2]}
    for vehicle in request["vehicles"]:
        del vehicle["start"], vehicle["end"]
        vehicle |= {"start_index": 0, "end_index": 0}
    request["matrices"] = {
        "car": {
            "durations": [[0, 1, 2], [3, 0, 4], [5, 6, 0]],
            "distances": [[0, 10, 20], [30, 0, 40], [50, 60, 0]],
        }
    }
    return request


def test_a_matrix_is_taken_in_the_order_of_the_jobs():
    problem = parse(with_matrix())
    assert problem.instances.matrix[0].tolist() == [[0, 2, 1], [5, 0, 6], [3, 4, 0]]


def test_the_answer_adds_up():
    problem = parse(with_matrix())
    reply = answer(problem, result_of(problem, [[2, 1]]))
    (route,) = reply["routes"]
    assert reply["summary"]["cost"] == route["cost"] == 1 + 4 + 5
    assert route["distance"] == 10 + 40 + 50
    assert [step["type"] for step in route["steps"]] == ["start", "job", "job", "end"]
    assert [step.get("id") for step in route["steps"]] == [None, 101, 100, None]
    assert [step["arrival"] for step in route["steps"]] == [0, 1, 15, 30]
    assert [step["duration"] for step in route["steps"]] == [0, 1, 5, 10]
    assert [step["load"] for step in route["steps"]] == [[4], [2], [0], [0]]
    assert route["vehicle"] == 10
    assert reply["summary"]["delivery"] == [4]
    assert reply["summary"]["service"] == 20
    assert reply["unassigned"] == []


def test_metres_on_the_globe():
    request = vroom(jobs=1, vehicles=1, capacity=10)
    request["vehicles"][0] |= {"start": [0, 0], "end": [0, 0]}
    request["jobs"][0]["location"] = [0, 1]
    problem = parse(request)
    reply = answer(problem, result_of(problem, [[1]]))
    degree = EARTH_RADIUS_METRES * 3.141592653589793 / 180
    assert reply["summary"]["distance"] == pytest.approx(2 * degree, abs=0.01)
    assert "duration" not in reply["summary"]  # nobody said how fast


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r["matrices"]["car"].update(durations=[[0, 1], [1, 0]]), "has the rows 0 to 1"),
        (lambda r: r["matrices"]["car"].update(durations=[[0, 1], [1]]), r"durations\[1\]: 1 number; expected 2"),
        (lambda r: r["matrices"].update(bike=r["matrices"].pop("car")), "nothing for the vehicles' profile 'car'"),
        (lambda r: r["matrices"]["car"].clear(), "expected costs, durations or distances"),
        (lambda r: r["jobs"][1].pop("location_index"), r"jobs\[1\]\.location_index: missing"),
        (lambda r: r["matrices"]["car"]["durations"][0].__setitem__(1, -1), r"durations\[0\]\[1\]"),
    ],
)
def test_bad_matrices(change, message):
    request = copy.deepcopy(with_matrix())
    change(request)
    with pytest.raises(LehdError, match=message):
        parse(request)
