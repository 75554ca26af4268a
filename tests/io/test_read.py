"""Opening files: encodings, endings, and what is no problem file at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import lehd
from lehd.errors import LehdError
from lehd.io import read, read_text
from tests.io.mutants import SEEDS
from tests.io.test_tsplib import SQUARE


def test_read_is_the_public_name() -> None:
    assert lehd.read is read


@pytest.mark.parametrize("name", SEEDS)
def test_a_file_and_its_text_read_alike(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(SEEDS[name].encode())
    capacity = 50 if name == "bare.tsv" else None
    from_file, from_text = read(path, capacity=capacity), read_text(SEEDS[name], name, capacity=capacity)
    assert from_file.coords.tolist() == from_text.coords.tolist()
    assert from_file.names == from_text.names
    assert (from_file.demands is None) == (from_text.demands is None)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252"])
def test_encodings(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "square.tsp"
    path.write_bytes(SQUARE.replace("square", "Zürich").encode(encoding))
    instances = read(str(path))
    assert instances.names == ("Zürich",)
    assert instances.num_nodes == 4


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.txt", SQUARE, "EUC_2D"),
        ("a", "COMMENT no colon\n" + SQUARE, "EUC_2D"),
        ("a.dat", "# remark\nx\ty\n1\t2\n", "euclidean"),
        ("a.txt", "name x y\nnorth 1 2\n", "euclidean"),
        ("A.CSV", "1;2\n3;4\n", "euclidean"),
        ("a.tsv", "lat\tlon\n1\t2\n", "haversine"),
        ("A.VRP", SEEDS["routes.vrp"], "EUC_2D"),
    ],
)
def test_content_decides_where_the_ending_does_not(name: str, text: str, problem: str) -> None:
    assert read_text(text, name).rule.name == problem


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b" \r\n\t\n\xef\xbb\xbf"[:5], "the file is empty"),
        (b"\xef\xbb\xbf\r\n", "the file is empty"),
        (b"\x00\x01\x02\x03", "line 1: not a text file"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "line 2: not a text file"),
        (SQUARE.encode("utf-16"), "not a text file"),
        (SQUARE.encode() + b"\x00", "line 11: not a text file"),
        (b"once upon a time\n", "line 1: expected a TSPLIB or CVRPLIB keyword"),
        (b"# only a remark\n", "expected TYPE"),
    ],
)
def test_not_a_problem_file(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.tsp"
    path.write_bytes(content)
    with pytest.raises(LehdError) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["Route #1: 1 2 3\nCost 7\n", '{"tour": [0, 1]}', "<html>", "# remark"])
def test_unknown_content(text: str) -> None:
    with pytest.raises(
        LehdError, match=r"thing, line 1: expected a TSPLIB or CVRPLIB keyword or the header of a table"
    ):
        read_text(text, "thing")


def test_types_that_are_not_solved_are_named() -> None:
    with pytest.raises(LehdError, match=r"line 2: TYPE 'HCP' is not supported; expected TSP, ATSP or CVRP"):
        read_text(SQUARE.replace("TYPE : TSP", "TYPE : HCP"), "a.tsp")


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.tsp", tmp_path, tmp_path / "missing" / "a.tsp"):
        with pytest.raises(LehdError, match="cannot be read"):
            read(path)
    with pytest.raises(LehdError, match="not a file name"):
        read("a\0b")


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="this user may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "secret.tsp"
    path.write_text(SQUARE)
    path.chmod(0)
    with pytest.raises(LehdError, match="cannot be read"):
        read(path)


def test_a_tsp_takes_no_capacity() -> None:
    for arguments in ({"capacity": 5}, {"vehicles": 5}):
        with pytest.raises(LehdError, match=r"a\.tsp: a TSP takes neither capacity nor vehicles"):
            read_text(SQUARE, "a.tsp", **arguments)
