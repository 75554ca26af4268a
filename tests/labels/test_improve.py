"""Labels by a model: never worse, in the same order, with a record of who made them."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from lehd.data.dataset import SHARD, Labelled, draw_shard, load_labels
from lehd.data.foreign import write_plain
from lehd.data.label_file import fresh_instances, read_label_file
from lehd.errors import LehdError
from lehd.labels.improve import improve
from lehd.labels.makers import by_model, model_name
from lehd.labels.part_folder import merge_parts
from lehd.labels.parts import Settings
from lehd.labels.pool import label, merge
from lehd.labels.solvers import make_solver
from lehd.model.checkpoint import load_model, save_model, shipped_weights
from lehd.problems import PROBLEMS, of
from lehd.work.local import Pool
from tests.builders import cvrp, random_solution, tiny_model, tsp
from tests.labels.test_pool import Alone

CPU = torch.device("cpu")
SETTINGS = Settings(iterations=3, batch=40)


def costs(labelled):
    return of(labelled.instances).cost(labelled.instances, labelled.solution).double().numpy()


def by_the_model(file, folder, model, device, settings, **how):
    return improve(by_model(file, model, device, settings), file, folder, **how)


def merged(file, folder, model, settings, target):
    return merge_parts(folder, file, model_name(model, settings), target)


def plain(folder, make, count=50):
    instances = make(count, 9)
    write_plain(Labelled(instances, random_solution(instances)), folder / "old.npz")
    return folder / "old.npz"


@pytest.mark.parametrize("make", [tsp, cvrp])
def test_labels_get_shorter_never_longer_and_tell_their_maker(tmp_path, make):
    path = plain(tmp_path, make)
    file = read_label_file(path)
    model = load_model(shipped_weights(of(file.instances).name))
    seen = []
    progress = by_the_model(file, tmp_path / "parts", model, CPU, SETTINGS, watch=lambda now: seen.append(now.share))
    assert progress.complete
    assert seen == sorted(seen)
    assert seen[-1] == 1
    assert merged(file, tmp_path / "parts", model, SETTINGS, tmp_path / "new.npz") == 50
    old, new = load_labels(path), load_labels(tmp_path / "new.npz")
    assert torch.equal(old.instances.coords, new.instances.coords)
    shorter = costs(new) < costs(old) - 1e-6
    assert 10 < shorter.sum() == progress.improved
    assert (costs(new) <= costs(old)).all()
    same = (old.solution.nodes == new.solution.nodes).all(1).numpy()
    assert (same == ~shorter).all()  # what is not shorter stays as it was
    again = read_label_file(tmp_path / "new.npz")
    names = np.array(again.sources)[again.source]
    assert (names[shorter] == model_name(model, SETTINGS)).all()
    assert (names[~shorter] == "unknown (old.npz)").all()
    assert progress.before / 50 == pytest.approx(costs(old).mean(), rel=1e-5)
    assert progress.after / 50 == pytest.approx(costs(new).mean(), rel=1e-5)


@pytest.mark.parametrize("recipe", ["uniform_tsp", "varied_cvrp"])
def test_compact_files_stay_compact_and_remember_solvers(tmp_path, recipe):
    missing = draw_shard(recipe, 7, 1).coords[5, 0, 0]
    label(recipe, 7, range(2), tmp_path, Alone({float(missing): "fail"}), Pool(1))
    merge(tmp_path, recipe, 7, tmp_path / "old.npz")
    file = read_label_file(tmp_path / "old.npz")
    assert file.sources == ("alone 0.5 s",)
    assert (~file.labelled).nonzero()[0].tolist() == [SHARD + 5]
    model = tiny_model(of(file.instances))
    by_the_model(file, tmp_path / "parts", model, CPU, Settings(2, batch=150))
    merged(file, tmp_path / "parts", model, Settings(2, batch=150), tmp_path / "new.npz")
    again = read_label_file(tmp_path / "new.npz")
    assert again.labelled.all()  # the model also labels what the solver could not
    assert set(again.sources) == {"alone 0.5 s", model_name(model, Settings(2))}
    with np.load(tmp_path / "new.npz") as archive:
        assert "coords" not in archive.files
        assert archive["source"].shape == (2, SHARD)
    assert (again.costs() <= file.costs()).all()
    assert len(load_labels(tmp_path / "new.npz")) == 2 * SHARD


def test_a_run_goes_on_where_it_stopped_and_ends_the_same(tmp_path):
    file = read_label_file(plain(tmp_path, cvrp))
    model = tiny_model(PROBLEMS["CVRP"])
    by_the_model(file, tmp_path / "whole", model, CPU, SETTINGS)

    class StopError(Exception):
        pass

    def stop(progress):
        if progress.parts == 1 and progress.iteration == 2:
            raise StopError

    with pytest.raises(StopError):
        by_the_model(file, tmp_path / "halves", model, CPU, SETTINGS, watch=stop)
    assert [path.name for path in sorted((tmp_path / "halves").glob("part*"))] == ["part-000000.npz"]
    halfway = merged(file, tmp_path / "halves", model, SETTINGS, tmp_path / "half.npz")
    assert halfway == 50  # the old labels of what is still to come
    again = by_the_model(file, tmp_path / "halves", model, CPU, SETTINGS)
    assert again.done_here == 10
    for name in ("whole", "halves"):
        merged(file, tmp_path / name, model, SETTINGS, tmp_path / f"{name}.npz")
    whole, halves = (load_labels(tmp_path / f"{name}.npz") for name in ("whole", "halves"))
    assert torch.equal(whole.solution.nodes, halves.solution.nodes)
    assert by_the_model(file, tmp_path / "halves", model, CPU, SETTINGS, budget=-1).complete
    for other in (Settings(4, batch=40), Settings(3, batch=41)):
        with pytest.raises(LehdError, match="another run"):
            by_the_model(file, tmp_path / "halves", model, CPU, other)


def test_fresh_instances_are_labelled_by_the_model_alone(tmp_path):
    file = fresh_instances("uniform_tsp", 8, range(3, 4))
    model, settings = tiny_model(PROBLEMS["TSP"]), Settings(2, batch=60)
    none_yet = by_the_model(file, tmp_path / "parts", model, CPU, settings, budget=-1)
    assert not none_yet.complete
    assert merged(file, tmp_path / "parts", model, settings, tmp_path / "none.npz") == 0
    by_the_model(file, tmp_path / "parts", model, CPU, settings)
    assert merged(file, tmp_path / "parts", model, settings, tmp_path / "new.npz") == SHARD
    labelled = load_labels(tmp_path / "new.npz")
    np.testing.assert_array_equal(labelled.instances.coords.numpy(), draw_shard("uniform_tsp", 8, 3).coords)
    assert read_label_file(tmp_path / "new.npz").sources == (model_name(model, settings),)


def test_a_trained_model_finds_the_shortest_tours_of_small_instances(tmp_path):
    """The shipped model against labels that are optimal: it must reach most of them from bad ones."""
    pytest.importorskip("fast_tsp")
    label("uniform_tsp", 11, range(1), tmp_path, make_solver("TSP", seconds=0.002), Pool(1))
    merge(tmp_path, "uniform_tsp", 11, tmp_path / "best.npz")
    best = costs(load_labels(tmp_path / "best.npz"))
    label("uniform_tsp", 11, range(1), tmp_path / "bad", Alone(), Pool(1))
    merge(tmp_path / "bad", "uniform_tsp", 11, tmp_path / "bad.npz")
    file = read_label_file(tmp_path / "bad.npz")
    model = load_model(shipped_weights("TSP"))
    by_the_model(file, tmp_path / "parts", model, CPU, Settings(15, parallel=True))
    merged(file, tmp_path / "parts", model, Settings(15), tmp_path / "good.npz")
    reached = costs(load_labels(tmp_path / "good.npz")) < best * (1 + 1e-5)
    assert reached.mean() > 0.8


def test_a_file_of_instances_alone_gets_labels(tmp_path):
    instances = cvrp(7, 8)
    arrays = {"coords": instances.coords, "demands": instances.demands, "capacity": instances.capacity}
    np.savez(tmp_path / "bare.npz", **{name: tensor.numpy() for name, tensor in arrays.items()})
    with pytest.raises(LehdError, match="--improve"):
        load_labels(tmp_path / "bare.npz")
    file, model = read_label_file(tmp_path / "bare.npz"), tiny_model(PROBLEMS["CVRP"])
    assert not file.labelled.any()
    by_the_model(file, tmp_path / "parts", model, CPU, SETTINGS, budget=-1)
    with pytest.raises(LehdError, match="7 instances without a label"):
        merged(file, tmp_path / "parts", model, SETTINGS, tmp_path / "new.npz")
    by_the_model(file, tmp_path / "parts", model, CPU, SETTINGS)
    assert merged(file, tmp_path / "parts", model, SETTINGS, tmp_path / "new.npz") == 7
    assert len(load_labels(tmp_path / "new.npz")) == 7


def test_mistakes_are_told(tmp_path):
    file = read_label_file(plain(tmp_path, tsp))
    with pytest.raises(LehdError, match="another problem"):
        by_the_model(file, tmp_path / "parts", tiny_model(PROBLEMS["CVRP"]), CPU, SETTINGS)
    with pytest.raises(LehdError, match="iterations"):
        by_the_model(file, tmp_path / "parts", tiny_model(PROBLEMS["TSP"]), CPU, Settings(-1))
    with pytest.raises(LehdError, match="soup"):
        fresh_instances("soup", 8, range(1))
    np.savez(tmp_path / "bad.npz", coords=np.zeros((2, 4, 2)), nodes=[[0, 1, 2, 3]] * 2, source=[0, 5], sources=["x"])
    with pytest.raises(LehdError, match=r"bad\.npz"):
        read_label_file(tmp_path / "bad.npz")


BARE = """
import sys
for name in ("typer", "rich", "matplotlib", "fast_tsp", "hygese"):
    sys.modules[name] = None
from lehd.labels import improve
improve.main()
"""


def test_the_module_runs_without_solvers_and_the_command_lines_packages(tmp_path):
    path = plain(tmp_path, cvrp, count=6)
    save_model(tiny_model(PROBLEMS["CVRP"]), tmp_path / "w.safetensors")
    words = [path, tmp_path / "parts", "--weights", tmp_path / "w.safetensors", "--iterations", 2, "--device", "cpu"]
    words += ["--merge", tmp_path / "new.npz"]
    done = subprocess.run([sys.executable, "-c", BARE, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1/1 parts" in done.stdout
    assert "6 labels" in done.stdout
    assert json.loads((tmp_path / "parts" / "improve.json").read_text())["iterations"] == 2
