"""Requests made up from our own API description: whatever comes, no 5xx, and every answer as described."""

from __future__ import annotations

import json

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.service.requests import SQUARE, vroom

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
ROUTES = [
    ("post", "/solve"),
    ("post", "/jobs"),
    ("post", "/inspect"),
    ("get", "/jobs/{id}"),
    ("delete", "/jobs/{id}"),
    ("post", "/jobs/{id}/pause"),
    ("post", "/jobs/{id}/resume"),
    ("get", "/jobs/{id}/problem"),
    ("get", "/jobs/{id}/request"),
    ("get", "/jobs/{id}/solution"),
    ("post", "/jobs/{id}/check"),
    ("get", "/jobs/{id}/events"),
    ("get", "/health"),
    ("get", "/metrics"),
    ("get", "/config"),
]


@pytest.fixture(scope="module")
def api(service):
    """Our description, and a finished job for the routes that need one."""
    schema = schemathesis.openapi.from_dict(service.client.get("/openapi.json").json())
    jobs = [service.client.post("/jobs", content=SQUARE, params={"iterations": 0}).json()["id"]]
    jobs.append(service.client.post("/jobs", json=vroom(), params={"iterations": 0}).json()["id"])
    for identity in jobs:
        service.wait_for(identity, "done")
    return schema, jobs


def test_every_route_is_tried(api):
    schema, _ = api
    described = {(method, path) for path, methods in schema.raw_schema["paths"].items() for method in methods}
    assert described == set(ROUTES)


def campaign(api, service, method, path, examples):
    schema, jobs = api
    operation = schema[path][method]
    known = st.sampled_from([None, *jobs])
    modes = st.sampled_from(list(GenerationMode))

    @settings(max_examples=examples, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(data=st.data(), mode=modes, job=known)
    def run(data, mode, job):
        case = data.draw(operation.as_strategy(generation_mode=mode))
        if job is not None and "{id}" in path:
            case.path_parameters = {"id": job}
        if path in ("/solve", "/jobs"):  # without keeping workers busy
            case.query = {**(case.query or {}), "iterations": 0}
        response = case.call(base_url=service.url, session=api_session(), timeout=60)
        case.validate_response(response, checks=CHECKS)

    run()


def api_session():
    import requests

    session = requests.Session()
    session.trust_env = False  # no proxy between the test and the service
    return session


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=lambda value: value)
def test_no_request_breaks_it(api, service, method, path):
    campaign(api, service, method, path, examples=25 if "post" in method else 10)


@pytest.mark.soak
@pytest.mark.parametrize(("method", "path"), ROUTES, ids=lambda value: value)
def test_many_requests_do_not_break_it(api, service, method, path):
    campaign(api, service, method, path, examples=1000)


@settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.sampled_from(sorted(vroom())), inner)
        ),
    )
)
def test_any_json_at_all(service, value):
    response = service.client.post("/inspect", content=json.dumps(value), headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert response.json()["error"]


@settings(max_examples=80, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_sound_request_with_one_thing_changed(service, data):
    request = vroom(jobs=3, vehicles=2)
    strange = st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.lists(st.floats(), max_size=3)
    owner = data.draw(st.sampled_from([request, request["jobs"][1], request["vehicles"][1]]))
    owner[data.draw(st.sampled_from(sorted(owner)) | st.text())] = data.draw(strange)
    response = service.client.post(
        "/inspect", content=json.dumps(request), headers={"content-type": "application/json"}
    )
    assert response.status_code in (200, 422)
    if response.status_code == 422:
        assert response.json()["error"]
