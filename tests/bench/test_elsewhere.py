"""Benches on several processes find what one process finds."""

import json

import pytest
import torch

from lehd.bench.elsewhere import Elsewhere
from lehd.bench.library import find_cases, run_library
from lehd.bench.peers import Race
from lehd.bench.sets import Options
from lehd.bench.store import Store
from lehd.bench.uniform import run_uniform
from lehd.bench.watch import Watch
from lehd.decoding.stop import Stop
from lehd.errors import LehdError
from lehd.work.local import Pool
from lehd.work.units import Needs
from tests.bench.test_library import folder  # noqa: F401 - a fixture
from tests.bench.test_peers import data, race, rivals_at_hand  # noqa: F401 - fixtures
from tests.bench.test_uniform import Listener, costs, small  # noqa: F401 - a fixture
from tests.cli.command import lehd_command


@pytest.fixture(autouse=True)
def one_thread():
    """What a worker has: the last digits of a cost may depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def elsewhere(options, store, watch=None, engine=None):
    return Elsewhere(options, store, watch or Watch(), engine or Pool(2), Needs())


def test_turned_runs_are_told_apart_from_plain_ones(small):  # noqa: F811
    store = Store()
    elsewhere(Options((2,), batch=2), store).uniform([small])
    found = elsewhere(Options((2,), batch=2, turn=True), store).uniform([small])
    here = run_uniform([small], Options((2,), batch=2, turn=True, device="cpu"), Store(), Watch())
    assert costs(found) == costs(here)
    assert {record.budget for record in found} == {"greedy", "RRC 2 turned"}


def test_sets_come_out_as_in_one_process_and_are_not_measured_again(small, tmp_path):  # noqa: F811
    options = Options((2, 4), batch=2)
    here = run_uniform([small], Options((2, 4), batch=2, device="cpu"), Store(), Watch())
    listener = Listener()
    path = tmp_path / "r.jsonl"
    found = elsewhere(options, Store(path), listener).uniform([small])
    assert costs(found) == costs(here)
    assert [each.label for each in listener.summaries] == ["greedy", "RRC 2", "RRC 4"]
    assert {record.batch for record in found} == {2}
    lines = path.read_text().splitlines()
    assert len(lines) == 12
    # Also what was measured on another device is there: a cluster has many.
    first = [line for line in map(json.loads, lines) if line["instance"] in ("0", "1")]
    path.write_text("".join(json.dumps(line | {"device": "NVIDIA X"}) + "\n" for line in first))

    class Picky(Pool):
        def start(self, job, needs, patience):
            def picky(batch):
                assert list(batch.names) == ["2", "3"], "the others are there"
                return job(batch)

            return super().start(picky, needs, patience)

    again = elsewhere(options, Store(path), engine=Picky(1)).uniform([small])
    assert costs(again) == costs(here)
    stopped = elsewhere(Options((2, 4), batch=2, stop=Stop(deadline=0.0)), Store()).uniform([small])
    assert stopped == []


@pytest.mark.parametrize("library", ["tsplib", "cvrplib"])
def test_files_come_out_as_in_one_process(folder, library):  # noqa: F811
    cases = find_cases(library, folder)
    here = run_library(cases, Options((3,), device="cpu"), Store(), Watch())
    there = elsewhere(Options((3,)), Store()).library(cases)
    assert costs(there) == costs(here)
    assert [record.paper_gap for record in there] == [record.paper_gap for record in here]
    (timed,) = elsewhere(Options(), Store()).library(cases, 0.3)
    assert (timed.budget, timed.cost) == ("0.3 s", 40)


def test_what_fails_is_told_and_the_rest_measured(small, monkeypatch):  # noqa: F811
    def fail(batch, *_):
        if "0" in batch.names:
            raise RuntimeError("no luck")
        return real(batch, *_)

    class Told(Watch):
        said = None

        def failed(self, what, reason):
            self.said = (what, reason)

    import lehd.bench.elsewhere as module

    real, told = module.SetRun, Told()
    monkeypatch.setattr(module, "SetRun", fail)
    found = elsewhere(Options(batch=2), Store(), told).uniform([small])
    assert told.said == ("uniform/small/0", "RuntimeError: no luck")
    assert {record.instance for record in found} == {"2", "3"}


def test_solvers_race_on_several_cores(data, rivals_at_hand):  # noqa: F811
    running = race(data, ("lehd", "naive", "unlucky"))
    running = Race(running.items, running.options, Store(), Watch(), Pool(2))
    found = {(record.method, record.set, record.instance): record for record in running.run()}
    assert len(found) == 3 * 5
    assert found["naive", "TSPLIB", "square"].cost == found["lehd", "TSPLIB", "square"].cost == 40
    assert "no luck" in found["unlucky", "small", "2"].error
    assert all(0 < record.seconds < 2 for record in found.values())
    with pytest.raises(LehdError, match="--throughput"):
        Race(running.items, type(running.options)(throughput=True), Store(), Watch(), Pool(2))


def test_options_of_the_command_line(data, tmp_path):  # noqa: F811
    words = ["bench", "uniform", "--data", data, "--rrc", "1", "--limit", 2, "--batch", 1, "--processes", 2]
    done = lehd_command(*words, "--output", tmp_path / "r.jsonl")
    assert done.exit_code == 0, done.output
    assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 4
    for extra, message in (
        (["--device", "cpu"], "--device does not go with"),
        (["--cluster", "127.0.0.1:1"], "--processes is for this machine"),
        (["--gpus", 0.3, "--processes", 999], "GPU"),
    ):
        bad = lehd_command(*words, *extra)
        assert bad.exit_code == 2
        assert message in bad.stderr
    crowded = lehd_command("bench", "tsplib", "--data", data, "--time-limit", 1, "--processes", 999)
    assert crowded.exit_code == 2
    assert "999 processes" in crowded.stderr
