"""Requests that mean harm, or are just too much: each gets a clear 4xx, and the service goes on."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from urllib.parse import urlsplit

import httpx
import pytest

from lehd.errors import LehdError
from lehd.service.config import Config, Limits
from tests.service.requests import SQUARE, table, vroom


def refused(response, *statuses):
    """A 4xx in the service's own words."""
    assert response.status_code in (statuses or range(400, 500)), response.text
    assert response.json()["error"]
    assert "Traceback" not in response.text
    return response.json()["error"]


def goes_on(client):
    assert client.get("/health").status_code == 200
    assert client.post("/jobs", content=SQUARE).status_code == 201


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static/....//app.py",
        "/static/..%5capp.py",
        "/static/%00",
        "/static//etc/passwd",
        "/static/examples/../../store.py",
        "/jobs/../../etc/passwd",
        "/jobs/..%2f..%2fetc%2fpasswd",
        "/jobs/%00",
        "/jobs/" + "x" * 5000,
        "/jobs/' OR 1=1 --",
        "/jobs/{0.__class__}",
        "/%s%s%n",
    ],
)
def test_paths_lead_nowhere(plain, path):
    request = plain.build_request("GET", "/")
    request.url = request.url.copy_with(raw_path=path.encode())  # as it is: httpx would tidy it up
    refused(plain.send(request), 404, 422)
    goes_on(plain)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00\x01\x02",
        b"\xff\xfe\x00",
        b"{",
        b"[" * 200_000,
        b'{"jobs":' * 100_000,
        b'{"jobs": NaN}',
        json.dumps(vroom()).replace("48.", "1e308").encode(),
        json.dumps(vroom()).replace("48.8", "NaN").encode(),
        json.dumps(vroom()).replace("48.8", "Infinity").encode(),
        json.dumps(vroom()).replace("100", "1" * 5000).encode(),
        b'{"vehicles": [], "jobs": [' + b"{}," * 300_000 + b"{}]}",
        b"x,y\n1,nan\n2,3\n",
        b"x,y\n1e308,1\n2,3\n",
        b"x,y\n1,1\n" + b"2," * 100_000 + b"3\n",
        b"x,y\n" + b"1,1\n" * 1_100_000,
        b"x,y\n" + b"1,1\r" * 1_100_000,
        b"TYPE : TSP\nDIMENSION : 1000000000\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n1 1 1\n",
        b"TYPE : TSP\nDIMENSION : 100000\nEDGE_WEIGHT_TYPE : EXPLICIT\nEDGE_WEIGHT_FORMAT : FULL_MATRIX\n"
        b"EDGE_WEIGHT_SECTION\n1\n",
        b"NAME : %s%n{0.__class__}\nTYPE : TSP\nDIMENSION : 2\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n1 1 x\n",
        b"TYPE : CVRP\nDIMENSION : 3\nDISTANCE : 5\nEDGE_WEIGHT_TYPE : EUC_2D\n",
    ],
)
def test_bodies_are_refused_quickly(plain, body):
    refused(plain.post("/jobs", content=body), 422)  # the client would not wait if parsing exploded
    goes_on(plain)


def test_bodies_may_not_be_huge(plain):
    error = refused(plain.post("/jobs", content=b"1" * 100_000_000), 413)
    assert error == "the body is too large; expected at most 16 MB"

    def endless():
        for _ in range(100):
            yield b"1" * 1_000_000

    refused(plain.post("/jobs", content=endless()), 413)  # without a Content-Length
    refused(plain.post("/health", content=b"1" * 20_000_000), 413)
    goes_on(plain)


def test_compressed_bodies_are_not_unpacked(plain):
    refused(plain.post("/jobs", content=b"\x1f\x8b" + b"0" * 100, headers={"content-encoding": "gzip"}), 415)


def test_a_form_is_told_to_send_the_file_itself(plain):
    error = refused(plain.post("/jobs", files={"file": SQUARE.encode()}), 415)
    assert error == "Content-Type: forms are not taken; expected the file itself as the body"


def test_bodies_on_their_way_have_a_bound(idle):
    client = idle(Limits(body_mb=0.1))  # four times that for one client
    head = b"POST /inspect HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(raw(client)).sendall(head + b" " * 99_000)
        large = SQUARE + "\n" * 50_000
        until(lambda: client.post("/inspect", content=large).status_code == 429)
        response = client.post("/inspect", content=large)
        assert "too many large bodies" in refused(response, 429)
        assert int(response.headers["retry-after"]) >= 1
        with other_client(client) as other:
            assert other.post("/inspect", content=large).status_code == 200
        goes_on(client)
    until(lambda: client.post("/inspect", content=large).status_code == 200)  # they hung up: there is room again


def test_one_client_does_not_take_all_streams(idle):
    client = idle(Limits(streams=3, streams_per_client=2))
    path = f"/jobs/{client.post('/jobs', content=SQUARE).json()['id']}/events"

    def begin(stack, client):
        """Open a stream and keep it open; its status."""
        response = stack.enter_context(client.stream("GET", path))
        lines = response.iter_lines()
        next(lines)
        stack.callback(lines.close)
        return response.status_code

    with contextlib.ExitStack() as stack:
        other = stack.enter_context(other_client(client))
        assert [begin(stack, client) for _ in range(3)] == [200, 200, 429]
        assert [begin(stack, other) for _ in range(2)] == [200, 429]


def test_too_many_nodes_and_too_much_time(idle):
    client = idle(Limits(nodes=50, seconds=5))
    assert "51 nodes; expected at most 50" in refused(client.post("/jobs", content=table(51)), 422)
    assert "at most 49" in refused(client.post("/jobs", json=vroom(jobs=50)), 422)
    assert client.post("/jobs", content=table(50)).status_code == 201
    assert "expected at most 5" in refused(client.post("/jobs", content=SQUARE, params={"time_limit": 6}), 422)
    body = vroom() | {"lehd": {"time_limit": 1e9}}
    refused(client.post("/jobs", json=body), 422)
    record = client.post("/jobs", content=SQUARE).json()
    assert record["time_limit"] == 5  # the default is no longer than the longest


@pytest.mark.parametrize(
    "query",
    [
        *("time_limit=nan", "time_limit=inf", "time_limit=-1", "time_limit=0", "time_limit=1e400"),
        *("seed=-1", "seed=1.5", "iterations=1e9", "iterations=-1", "capacity=nan", "vehicles=0"),
        *("name=a%0Ab", "name=" + "x" * 121, "colour=red"),
    ],
)
def test_parameters_are_validated(plain, query):
    error = refused(plain.post(f"/jobs?{query}", content=SQUARE), 422)
    assert error.startswith(query.split("=")[0])


def test_rates(idle):
    client = idle(Limits(jobs_per_minute=3, requests_per_second=1000))
    answers = [client.post("/jobs", content=SQUARE) for _ in range(5)]
    assert [each.status_code for each in answers] == [201, 201, 201, 429, 429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    client = idle(Limits(requests_per_second=2))
    codes = [client.get("/health").status_code for _ in range(10)]
    assert codes[:4] == [200] * 4
    assert 429 in codes


def test_a_full_queue(idle):
    client = idle(Limits(waiting=5, waiting_per_client=3))
    answers = [client.post("/jobs", content=SQUARE) for _ in range(4)]
    assert [each.status_code for each in answers] == [201, 201, 201, 429]
    assert int(answers[-1].headers["retry-after"]) >= 1
    positions = [client.get(f"/jobs/{each.json()['id']}").json()["position"] for each in answers[:3]]
    assert positions == [0, 1, 2]
    client.delete(f"/jobs/{answers[0].json()['id']}")
    assert client.post("/jobs", content=SQUARE).status_code == 201


def test_keys(idle):
    client = idle(keys=("first-secret", "second-secret"))
    assert client.get("/health").status_code == 200
    assert client.get("/").status_code == 200
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"x-api-key": "first-secre"},
        {"authorization": "Basic Zmlyc3Q="},
    ):
        refused(client.post("/jobs", content=SQUARE, headers=headers), 401)
        refused(client.get("/metrics", headers=headers), 401)
    for headers in ({"authorization": "Bearer first-secret"}, {"x-api-key": "second-secret"}):
        assert client.post("/jobs", content=SQUARE, headers=headers).status_code == 201


def test_keys_cannot_be_tried_quickly(idle):
    client = idle(Limits(requests_per_second=2), keys=("first-secret",))
    codes = [client.get("/metrics", headers={"x-api-key": f"guess {number}"}).status_code for number in range(10)]
    assert codes[:4] == [401] * 4
    assert 429 in codes
    assert client.get("/metrics", headers={"x-api-key": "first-secret"}).status_code == 200  # who knows it goes on


def test_other_sites_may_not_use_it(idle):
    client = idle()
    refused(client.get("/health", headers={"host": "evil.example"}), 421)
    refused(client.post("/jobs", content=SQUARE, headers={"origin": "http://evil.example"}), 403)
    for origin in ("null", "http://[", "[", "://", ""):
        refused(client.post("/jobs", content=SQUARE, headers={"origin": origin}), 403)
    mine = f"http://{client.base_url.netloc.decode()}"
    assert client.post("/jobs", content=SQUARE, headers={"origin": mine}).status_code == 201
    assert idle(hosts=("Routes.example",)).get("/health", headers={"host": "routes.example:80"}).status_code == 200


def test_headers_of_every_answer(idle):
    client = idle(tiles="https://tiles.example/{z}/{x}/{y}.png")
    for response in (client.get("/"), client.get("/nowhere"), client.post("/jobs", content=b"")):
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "img-src 'self' blob: data: https://tiles.example;" in policy
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)//{z}{x}{y}",
        "https://a b/{z}/{x}/{y}",
        "https://t/{z}/{x}",
        "https://t;script-src/{z}{x}{y}",
        "https:///{z}/{x}/{y}",
        "https://[t/{z}/{x}/{y}",
    ],
)
def test_tiles_must_be_an_address(url):
    with pytest.raises(LehdError, match="tiles"):
        Config(tiles=url)


def test_the_page_asks_nobody_else(plain):
    for path in ("/", "/docs", "/static/style.css", "/static/js/main.js", "/static/js/docs.js"):
        text = plain.get(path).text
        assert "https://" not in text
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert " style=" not in text
        assert "innerHTML" not in text
    assert plain.get("/static/examples/harbour.tsp").text.startswith("NAME : harbour")


def test_names_stay_names(plain):
    name = "..\\..<script>alert(1)<script>%s{0}.csv"
    record = plain.post("/jobs", content=SQUARE, params={"name": name}).json()
    assert "<script>" in record["name"]  # kept as it is, sent as JSON
    response = plain.get(f"/jobs/{record['id']}/request")
    assert response.headers["content-type"].startswith("text/plain")


def raw(client) -> socket.socket:
    url = urlsplit(str(client.base_url))
    return socket.create_connection((url.hostname, url.port), timeout=20)


def other_client(client) -> httpx.Client:
    """The same service, seen from another address."""
    transport = httpx.HTTPTransport(local_address="127.0.0.2")
    return httpx.Client(base_url=client.base_url, transport=transport, timeout=30)


def until(true) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def everything(connection: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            found += part
    return found


def test_slow_clients_are_let_go(idle):
    client = idle(Limits(header_seconds=0.5, body_seconds=0.7))
    with raw(client) as silent, raw(client) as head, raw(client) as body:
        head.sendall(b"GET /health HTTP/1.1\r\nHost: local")
        body.sendall(b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx,y\n")
        assert everything(silent) == b""
        assert everything(head).startswith(b"HTTP/1.1 408 ")
        answer = everything(body)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive within 0.7 seconds" in answer
    goes_on(client)


def test_who_does_not_take_an_answer_is_let_go(idle):
    client = idle(Limits(reading_seconds=0.5))
    body = json.dumps(vroom()).encode() + b" " * 15_000_000
    identity = client.post("/jobs", content=body).json()["id"]
    with raw(client) as connection:
        connection.sendall(f"GET /jobs/{identity}/request HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        time.sleep(3)
        assert len(everything(connection)) < len(body)  # what the system had in its buffers, then the end
    assert len(client.get(f"/jobs/{identity}/request").content) == len(body)
    goes_on(client)


@pytest.mark.parametrize(
    "request_",
    [
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n",
    ],
)
def test_broken_http(plain, request_):
    with raw(plain) as connection:
        connection.sendall(request_)
        with contextlib.suppress(OSError):  # it may have been closed already
            connection.shutdown(socket.SHUT_WR)
        assert everything(connection)[:10] in (b"HTTP/1.1 4", b"")
    goes_on(plain)


def test_hanging_up_in_the_middle(plain):
    for _ in range(20):
        with raw(plain) as connection:
            connection.sendall(b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx,y\n")
    goes_on(plain)
    assert 'status="500"' not in plain.get("/metrics").text


def test_limits_must_make_sense():
    with pytest.raises(LehdError, match="seconds = 0: expected a positive number"):
        Limits(seconds=0)
    with pytest.raises(LehdError, match="an API key"):
        Config(keys=("short",))
