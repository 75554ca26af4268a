"""`lehd serve` on the command line, up to the point where it would serve."""

import socket
import sys

import pytest

import lehd.service.server
from tests.cli.command import lehd_command


@pytest.fixture
def asked(monkeypatch):
    """What the service would have been started with."""
    configs = []
    monkeypatch.setattr(lehd.service.server, "run", lambda config, say: configs.append(config))
    monkeypatch.delenv("LEHD_API_KEY", raising=False)
    return configs


def test_the_defaults_are_for_this_machine_alone(asked, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert lehd_command("serve").exit_code == 0
    (config,) = asked
    assert config.host == "127.0.0.1"
    assert config.keys == ()
    assert config.database == tmp_path / "lehd" / "jobs.sqlite"
    assert config.allowed_hosts == {"localhost", "127.0.0.1", "::1"}
    assert config.limits.body_bytes == 16_000_000
    assert config.batch_on("cpu") == 1
    assert config.batch_on("cuda:1") == 64


def test_settings_arrive(asked, monkeypatch, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("first-secret\n\n  second-secret \n")
    monkeypatch.setenv("LEHD_API_KEY", "third-secret")
    options = ["--host", "0.0.0.0", "--api-keys", keys, "--device", "cpu", "--device", "cuda:1", "--workers", 3]
    options += ["--max-nodes", 7, "--max-seconds", 8, "--max-body", 9, "--max-waiting", 10, "--allow-host", "a.example"]
    assert lehd_command("serve", *options).exit_code == 0
    (config,) = asked
    assert config.keys == ("third-secret", "first-secret", "second-secret")
    assert config.devices == ("cpu", "cuda:1")
    assert config.workers == 3
    limits = config.limits
    assert (limits.nodes, limits.seconds, limits.body_mb, limits.waiting) == (7, 8, 9, 10)
    assert "a.example" in config.allowed_hosts


def test_workers_on_a_cluster(asked, monkeypatch):
    class Cluster:
        def __init__(self, address):
            assert address == "10.0.0.1:6379"

        def workers(self, device, number):
            return device or "cuda", number or 12

    monkeypatch.setattr("lehd.service.places.OnRay", Cluster)
    for options in ([], ["--device", "cpu", "--workers", 3]):
        assert lehd_command("serve", "--cluster", "10.0.0.1:6379", *options).exit_code == 0
    assert [(config.cluster, config.devices, config.workers) for config in asked] == [
        ("10.0.0.1:6379", ("cuda",), 12),
        ("10.0.0.1:6379", ("cpu",), 3),
    ]
    result = lehd_command("serve", "--cluster", "10.0.0.1:6379", "--device", "cpu", "--device", "cuda")
    assert "all workers on a cluster are alike" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--api-keys", "nowhere"], "nowhere: cannot be read"),
        (["--max-seconds", "0"], "seconds = 0"),
        (["--tiles", "ftp://x/{z}/{x}/{y}"], "tiles 'ftp://x/{z}/{x}/{y}': expected an http(s) URL"),
    ],
)
def test_bad_settings_are_named(asked, options, message):
    result = lehd_command("serve", *options)
    assert result.exit_code == 2
    assert message in result.output
    assert asked == []


def test_a_port_that_is_taken_and_a_device_that_is_not_there(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = lehd_command("serve", "--device", "cpu", "--port", port, "--database", tmp_path / "jobs.sqlite")
        assert result.exit_code == 2
        assert f"cannot listen on 127.0.0.1 port {port}" in result.output
    result = lehd_command("serve", "--device", "abacus", "--database", tmp_path / "jobs.sqlite")
    assert result.exit_code == 2
    assert "device abacus" in result.output


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "lehd.service.server")
    result = lehd_command("serve")
    assert result.exit_code == 2
    assert "pip install 'lehd[serve]'" in result.output
