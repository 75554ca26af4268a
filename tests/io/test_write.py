from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import tsplib95
import vrplib

from lehd import __version__, distance
from lehd.errors import LehdError
from lehd.io.write import check_format, check_writable, result_record, write_result
from lehd.types import Result
from tests import samples


def written(result: Result, path: Path) -> str:
    write_result(result, path)
    return path.read_text()


def test_tour_golden(tmp_path):
    assert written(samples.square_result(), tmp_path / "square.tour") == (
        f"NAME : square.tour\nCOMMENT : length 40, found by lehd {__version__}\nTYPE : TOUR\nDIMENSION : 4\n"
        "TOUR_SECTION\n1\n4\n2\n3\n-1\nEOF\n"
    )


def test_sol_golden(tmp_path):
    text = written(samples.cross_result(), tmp_path / "cross.sol")
    assert text == "Route #1: 1 2\nRoute #2: 4 3\nCost 40\n"


def test_other_programs_read_them(tmp_path):
    write_result(samples.square_result(), tmp_path / "square.tour")
    assert tsplib95.load(tmp_path / "square.tour").tours == [[1, 4, 2, 3]]
    write_result(samples.cross_result(), tmp_path / "cross.sol")
    assert vrplib.read_solution(tmp_path / "cross.sol") == {"routes": [[1, 2], [4, 3]], "cost": 40}


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        (("70", "20", "0", "5"), ["70", "5", "20", "0"]),
        (("a", "b", "c", "d"), ["1", "4", "2", "3"]),
        (("7", "7", "8", "9"), ["1", "4", "2", "3"]),  # not distinct: no use as ids
    ],
)
def test_tour_uses_the_file_s_own_numbers(tmp_path, names, ids):
    result = samples.result(replace(samples.square(), node_names=names), [0, 3, 1, 2])
    lines = written(result, tmp_path / "square.tour").splitlines()
    assert lines[lines.index("TOUR_SECTION") + 1 : -2] == ids


def test_json_is_the_record(tmp_path):
    result = samples.cross_result(notes=("six vehicles are too few",), interrupted=True)
    record = json.loads(written(result, tmp_path / "cross.json"))
    assert record == result_record(result)
    assert record == {
        "name": "cross",
        "problem": "CVRP",
        "cost": 40,
        "routes": [[1, 2], [4, 3]],
        "loads": [4, 4],
        "history": [
            {"seconds": 0.5, "iteration": 0, "cost": 50},
            {"seconds": 1.25, "iteration": 3, "cost": 40},
        ],
        "seconds": 2.0,
        "iterations": 7,
        "seed": 5,
        "model": "tiny-0123",
        "notes": ["six vehicles are too few"],
        "interrupted": True,
        "version": __version__,
    }
    assert isinstance(record["cost"], int)


def test_json_of_a_tour_counts_from_0_and_keeps_names():
    record = result_record(samples.result(samples.islands(), [2, 0, 1]))
    assert record["tour"] == [2, 0, 1]
    assert record["node_names"] == ["Uno", "Due", "Tre"]
    assert "routes" not in record


def test_geojson_of_a_tour(tmp_path):
    collection = json.loads(written(samples.result(samples.islands(), [0, 1, 2]), tmp_path / "islands.geojson"))
    assert collection["type"] == "FeatureCollection"
    line, *points = collection["features"]
    assert line["geometry"] == {
        "type": "LineString",
        "coordinates": [[0.0, 0.0], [1.0, 0.0], [0.5, 1.0], [0.0, 0.0]],  # longitude first, and closed
    }
    assert line["properties"]["cost"] == pytest.approx(111_195 + 2 * 124_317, rel=1e-3)
    assert [point["properties"]["name"] for point in points] == ["Uno", "Due", "Tre"]
    assert points[2]["geometry"] == {"type": "Point", "coordinates": [0.5, 1.0]}


def test_geojson_of_routes(tmp_path):
    plane = samples.cross()
    globe = replace(plane, rule=distance.HAVERSINE, sites=plane.coords)
    collection = json.loads(written(samples.result(globe, [[1, 2], [4, 3]]), tmp_path / "cross.geojson"))
    first, second, *points = collection["features"]
    assert second["geometry"]["coordinates"] == [[0, 0], [-8, -6], [-4, -3], [0, 0]]
    assert (first["properties"]["load"], second["properties"]["route"]) == (4, 2)
    assert points[0]["properties"]["depot"] is True
    assert [point["properties"].get("route") for point in points] == [None, 1, 1, 2, 2]


def test_geojson_turns_minutes_into_decimals(tmp_path):
    instance = samples.islands()
    geo = replace(instance, rule=distance.GEO, sites=instance.coords.new_tensor([[[38.24, -20.30], [0, 0], [1, 1]]]))
    collection = json.loads(written(samples.result(geo, [0, 1, 2]), tmp_path / "geo.geojson"))
    assert collection["features"][1]["geometry"]["coordinates"] == [-20.5, 38.4]


@pytest.mark.parametrize(
    ("result", "name", "words"),
    [
        (samples.square_result(), "a.txt", "unknown ending '.txt'; expected one of .tour, .sol, .json, .geojson"),
        (samples.square_result(), "a", "no ending"),
        (samples.square_result(), "a.sol", "vehicle routes"),
        (samples.cross_result(), "a.tour", "one tour"),
        (samples.square_result(), "a.geojson", "EUC_2D"),
    ],
)
def test_refused(tmp_path, result, name, words):
    with pytest.raises(LehdError, match=words) as refusal:
        write_result(result, tmp_path / name)
    assert str(tmp_path / name) in str(refusal.value)
    with pytest.raises(LehdError, match=words):
        check_format(tmp_path / name, result.instance)
    assert list(tmp_path.iterdir()) == []


def test_folders_are_made_and_endings_may_be_capitals(tmp_path):
    write_result(samples.square_result(), tmp_path / "new" / "folder" / "SQUARE.TOUR")
    assert (tmp_path / "new" / "folder" / "SQUARE.TOUR").is_file()


def test_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "square.tour"
    path.write_text("what was there before")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(LehdError, match=r"square\.tour: cannot write: No space left"):
        write_result(samples.square_result(), path)
    assert path.read_text() == "what was there before"
    assert list(tmp_path.iterdir()) == [path]


def test_links_stay_links(tmp_path):
    (tmp_path / "there.tour").write_text("")
    (tmp_path / "link.tour").symlink_to("there.tour")
    write_result(samples.square_result(), tmp_path / "link.tour")
    assert (tmp_path / "link.tour").is_symlink()
    assert "TOUR_SECTION" in (tmp_path / "there.tour").read_text()


@pytest.mark.parametrize("name", ["file/a.tour", "folder.tour", "x" * 300 + ".tour"])
def test_unwritable_is_found_out_early(tmp_path, name):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.tour").mkdir()
    with pytest.raises(LehdError, match="cannot write"):
        check_writable(tmp_path / name)


def test_trying_leaves_nothing_behind(tmp_path):
    check_writable(tmp_path / "folder" / "a.tour")
    assert list((tmp_path / "folder").iterdir()) == []
