import json

import numpy as np
import pytest
import torch

from lehd.bench import unseen
from lehd.bench.report import read_results
from lehd.data.dataset import draw_shard
from lehd.model.checkpoint import load_model, save_model, shipped_weights


@pytest.fixture
def worse(tmp_path):
    """The package's CVRP model with a blurred head."""
    model = load_model(shipped_weights("CVRP"))
    torch.manual_seed(0)
    with torch.no_grad():
        model.head.weight += torch.randn_like(model.head.weight)
    path = tmp_path / "worse.safetensors"
    save_model(model, path)
    return str(path)


def test_models_meet_the_same_instances_and_a_worse_one_is_seen_to_be(worse, tmp_path, capsys):
    output = tmp_path / "unseen.jsonl"
    sets = ["uniform-10", "x_type_cvrp-10"]
    options = ["--instances", "4", "--rrc", "1", "2", "--device", "cpu", "--output", str(output)]
    unseen.main(["CVRP", "shipped", worse, "--sets", *sets, *options])
    found = [json.loads(line) for line in output.read_text().splitlines()]
    methods, models = ("greedy", "RRC 1", "RRC 2"), ("shipped", worse)
    assert [(each["set"], each["model"], each["method"]) for each in found] == [
        (name, model, method) for name in sets for model in models for method in methods
    ]
    by_method = {(each["set"], each["model"], each["method"]): np.array(each["costs"]) for each in found}
    for name in sets:
        for model in models:
            greedy, one, two = (by_method[name, model, method] for method in methods)
            assert (one <= greedy * (1 + 1e-9)).all()  # sums in another order
            assert (two <= one * (1 + 1e-9)).all()
        assert by_method[name, worse, "greedy"].mean() > by_method[name, "shipped", "greedy"].mean()
    assert not read_results([output]).records  # a folder of results may hold it
    header, _, *rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert worse in header
    assert len(rows) == 6
    assert all("+" in row.split("|")[4] for row in rows if "greedy" in row)


def test_a_difference_and_its_error():
    mean, error = unseen.difference([1.0, 3.0], [1.1, 3.3])
    assert mean == pytest.approx(10.0)
    assert error == pytest.approx(100 * (0.15 - 0.05) / 2**0.5 / 2**0.5)  # deviation 0.1414 of 5 and 15 %


@pytest.mark.parametrize(("name", "capacity"), [("x_type_cvrp-20", None), ("uniform-20", 50), ("uniform-200", 80)])
def test_instances_are_none_of_those_that_labels_have(name, capacity):
    drawn = unseen.draw("CVRP", name, 150)
    assert len(drawn) == 150
    kind, _, nodes = name.replace("uniform", "uniform_cvrp").rpartition("-")
    for shard in (0, 1):
        labelled = draw_shard(kind, int(nodes), shard).coords
        assert not any((labelled == each).all((1, 2)).any() for each in drawn.sites.numpy())
    again = unseen.draw("CVRP", name, 120)
    assert torch.equal(again.sites, drawn.sites[:120])
    assert torch.equal(again.demands, drawn.demands[:120])
    assert capacity is None or (drawn.capacity == capacity).all()


@pytest.mark.parametrize(
    "name", ["uniform", "uniform-x", "clusters-20", "uniform_tsp-20", "uniform-2", "uniform-99999999"]
)
def test_sets_that_are_not_there_are_refused(name, capsys):
    with pytest.raises(SystemExit, match=f"{name}|customers: expected"):
        unseen.main(["CVRP", "shipped", "--sets", name, "--device", "cpu"])


@pytest.mark.parametrize("option", ["--instances", "--rrc", "--longest"])
def test_numbers_that_mean_nothing_are_refused(option):
    with pytest.raises(SystemExit, match="counted from 1"):
        unseen.main(["CVRP", "shipped", "--sets", "uniform-20", "--device", "cpu", option, "0"])


def test_what_is_named_twice_is_measured_once():
    sets, weights = ["uniform-5", "uniform-5"], ["shipped", "shipped"]
    assert len(unseen.measure("CVRP", weights, sets, count=2, device="cpu")) == 1


def test_weights_for_another_problem_are_refused():
    with pytest.raises(SystemExit, match="another problem"):
        unseen.main(["TSP", str(shipped_weights("CVRP")), "--sets", "uniform-20", "--device", "cpu"])
