import os
import pickle
import sys

import numpy as np
import pytest

from lehd.data import foreign
from lehd.data.dataset import load_labels
from lehd.data.foreign import read_foreign, write_plain
from lehd.errors import InfeasibleError, LehdError

TSP_LINE = "0.0 0.0 1.0 0.0 1.0 1.0 0.0 1.0 output 1 2 3 4 1"
CVRP_LINE = "depot,0.5,0.5,customer,0,0,1,0,1,1,capacity,10,demand,0,4,5,6,cost,3.5,node_flag,2,1,3,1,0,1"


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def test_concorde_text(tmp_path):
    other = "0 0 2 0 2 2 0 2 output 3 1 2 4"  # without the way back
    labelled = load_labels(write(tmp_path / "a.txt", TSP_LINE, "", other))
    assert labelled.solution.nodes.tolist() == [[0, 1, 2, 3], [2, 0, 1, 3]]
    assert labelled.instances.coords[1].tolist() == [[0, 0], [2, 0], [2, 2], [0, 2]]
    assert labelled.instances.demands is None


@pytest.mark.parametrize("line", [CVRP_LINE, CVRP_LINE.replace("demand,0,", "demand,").replace(",10,", ",10.0,")])
def test_lehd_text(tmp_path, line):
    labelled = load_labels(write(tmp_path / "a.txt", line))
    assert labelled.instances.coords[0].tolist() == [[0.5, 0.5], [0, 0], [1, 0], [1, 1]]
    assert labelled.instances.demands.tolist() == [[0, 4, 5, 6]]
    assert labelled.instances.capacity.tolist() == [10]
    assert labelled.solution.nodes.tolist() == [[2, 1, 3]]
    assert labelled.solution.via_depot.tolist() == [[True, False, True]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 0 1 1", "line 2: expected coordinates, the word output"),
        ("0 0 1 1 0 output 1 2", "line 2: 5 coordinates"),
        ("0 0 1 1 output 1 2 3", "line 2: a tour of 3 nodes through 2"),
        ("0 0 1 x output 1 2", "line 2: .*'x'"),
        ("0 0 1 nan output 1 2", "line 2: .*finite"),
        (" output ", "line 2: "),
        (CVRP_LINE.replace("demand", "demands"), "line 2: the part demand is missing"),
        (CVRP_LINE.replace(",6,cost", ",cost"), "line 2: 3 demands .* for 3 customers"),
        (CVRP_LINE.replace(",4,5,", ",4.5,5,"), "line 2: 4.5: expected a whole number"),
        (CVRP_LINE.replace("depot", "x").replace("cost", "depot").replace("x", "cost"), "line 2: .*order"),
        ("0 0 1 0 1 1 output 1 2 3 1", "instance 1: of another size"),
        (CVRP_LINE, "instance 1: of another size or problem"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, message):
    with pytest.raises(LehdError, match=message):
        read_foreign(write(tmp_path / "a.txt", TSP_LINE, line))


def test_labels_that_are_no_solutions_are_refused(tmp_path):
    with pytest.raises(InfeasibleError, match=r"a\.txt: instance 0: node 2 is visited 2 times"):
        read_foreign(write(tmp_path / "a.txt", TSP_LINE.replace("3 4 1", "3 3 1")))
    with pytest.raises(InfeasibleError, match="carries 15"):
        read_foreign(write(tmp_path / "a.txt", CVRP_LINE.replace("2,1,3,1,0,1", "2,1,3,1,0,0")))
    with pytest.raises(LehdError, match="no labels"):
        read_foreign(write(tmp_path / "a.txt", ""))
    with pytest.raises(LehdError, match="readable"):
        read_foreign(tmp_path / "missing.txt")


def dump(path, data, protocol=None):
    path.write_bytes(pickle.dumps(data, protocol))
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("arrays", [False, True])
def test_kool_pickles(tmp_path, protocol, arrays):
    square = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    instances = [np.array(square), np.array(square) * 2] if arrays else [square, square]
    solutions = [(4.0, [0, 1, 2, 3], 0.1), (np.float64(4), np.array([1, 0, 3, 2]), 0.1)]
    files = dump(tmp_path / "a.pkl", instances, protocol), dump(tmp_path / "b.pkl", (solutions, 8), protocol)
    labelled = read_foreign(*files)
    assert labelled.solution.nodes.tolist() == [[0, 1, 2, 3], [1, 0, 3, 2]]
    assert labelled.instances.coords[0].tolist() == square

    depot, demands = [0.5, 0.5], [4, 5, 6, 1]
    cvrp = [(depot, np.array(square) if arrays else square, demands, 10.0)]
    files = dump(tmp_path / "a.pkl", cvrp, protocol), dump(tmp_path / "b.pkl", [(3.0, [2, 1, 0, 0, 4, 3, 0], 1)])
    labelled = read_foreign(*files)
    assert labelled.instances.coords[0, 0].tolist() == depot
    assert labelled.instances.demands.tolist() == [[0, 4, 5, 6, 1]]
    assert labelled.solution.nodes.tolist() == [[2, 1, 4, 3]]
    assert labelled.solution.via_depot.tolist() == [[True, False, True, False]]


class Evil:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "call",
    [
        (os.system, ("touch {mark}",)),
        (eval, ("open('{mark}', 'w')",)),
        (getattr, ("", "join")),
        (np.load, ("x.npy",)),
        (np.lib.format.open_memmap, ("{mark}",)),
    ],
)
def test_pickles_that_run_code_are_refused(tmp_path, call):
    mark = tmp_path / "mark"
    function, arguments = call
    path = dump(tmp_path / "a.pkl", [Evil(function, tuple(word.format(mark=mark) for word in arguments))])
    with pytest.raises(LehdError, match="do not need"):
        read_foreign(path, path)
    assert not mark.exists()


def test_bad_pickles_are_refused(tmp_path):
    good = dump(tmp_path / "a.pkl", [[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]])
    with pytest.raises(LehdError, match="needs one of solutions"):
        read_foreign(good)
    with pytest.raises(LehdError, match="2 solutions for 1"):
        read_foreign(good, dump(tmp_path / "b.pkl", [[0, 1, 2]] * 2))
    with pytest.raises(LehdError, match="instance 0: it has no solution"):
        read_foreign(good, dump(tmp_path / "b.pkl", [None]))
    with pytest.raises(LehdError, match="list of instances"):
        read_foreign(good, dump(tmp_path / "b.pkl", 7))
    (tmp_path / "b.pkl").write_bytes(good.read_bytes()[:20])
    with pytest.raises(LehdError, match="not a pickle"):
        read_foreign(good, tmp_path / "b.pkl")
    with pytest.raises(LehdError, match=r"c\.pkl"):
        read_foreign(good, tmp_path / "c.pkl")


@pytest.mark.parametrize("line", [TSP_LINE, CVRP_LINE])
def test_a_plain_file_holds_the_same(tmp_path, line, monkeypatch, capsys):
    source, target = write(tmp_path / "a.txt", line, line), tmp_path / "b.npz"
    monkeypatch.setattr(sys, "argv", ["foreign", str(source), str(target)])
    foreign.main()
    assert capsys.readouterr().out == f"2 labels in {target}\n"
    first, second = read_foreign(source), load_labels(target)
    assert first.solution.nodes.equal(second.solution.nodes)
    assert first.solution.via_depot.equal(second.solution.via_depot)
    assert first.instances.coords.equal(second.instances.coords)
    write_plain(second, target)
