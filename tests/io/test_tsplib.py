"""TSPLIB texts: every layout, odd but valid ones, and bad ones with the message they deserve."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lehd.errors import LehdError
from lehd.io import parse_tsplib
from lehd.io.tsplib import LAYOUTS

SQUARE = """NAME : square
TYPE : TSP
DIMENSION : 4
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 3 0
3 3 4
4 0 4
EOF
"""
TRIANGLE = """TYPE: TSP
DIMENSION: 3
EDGE_WEIGHT_TYPE: EXPLICIT
EDGE_WEIGHT_FORMAT: LOWER_DIAG_ROW
EDGE_WEIGHT_SECTION
0
3 0
4 5 0
EOF
"""


def with_lines(text: str, changes: dict[int, str]) -> str:
    """The text with some lines, counted from 1, replaced; several at once where the replacement has several."""
    return "\n".join(changes.get(i, line) for i, line in enumerate(text.split("\n"), 1))


def entries(matrix: np.ndarray, layout: str) -> list[float]:
    """A matrix as the TSPLIB text describes its layouts, entry by entry."""
    n, diagonal = len(matrix), "DIAG" in layout
    by_row = [(i, j) for i in range(n) for j in range(n)]
    pairs = [(j, i) for i, j in by_row] if layout.endswith("COL") else by_row
    if layout.startswith("UPPER"):
        pairs = [(i, j) for i, j in pairs if i < j or (diagonal and i == j)]
    if layout.startswith("LOWER"):
        pairs = [(i, j) for i, j in pairs if i > j or (diagonal and i == j)]
    return [matrix[i, j] for i, j in pairs]


@given(
    layout=st.sampled_from(sorted(LAYOUTS)),
    n=st.integers(1, 9),
    whole=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_layout_gives_back_the_matrix(layout: str, n: int, whole: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.integers(0, 10**6, (n, n)).astype(float) if whole else rng.random((n, n))
    if layout != "FULL_MATRIX":
        matrix = np.maximum(matrix, matrix.T)
    text = (
        f"TYPE: ATSP\nDIMENSION: {n}\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: {layout}\nEDGE_WEIGHT_SECTION\n"
    )
    for number in entries(matrix, layout):
        text += f"{int(number) if whole else float(number)!r}" + rng.choice(["\n", " ", "  \t", "\n\n "])
    read = parse_tsplib(text, "random.atsp").matrix
    assert read is not None
    np.fill_diagonal(matrix, 0)
    assert read[0].tolist() == matrix.tolist()
    assert read.dtype == (torch.int64 if whole or n == 1 else torch.float64)


def test_full_matrix_may_be_asymmetric() -> None:
    text = "TYPE: TSP\nDIMENSION: 2\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: FULL_MATRIX\nEDGE_WEIGHT_SECTION\n"
    instances = parse_tsplib(text + "99 1 2 -7", "two.tsp")
    assert instances.matrix is not None
    assert instances.matrix.tolist() == [[[0, 1], [2, 0]]]  # nobody travels the diagonal
    assert not instances.symmetric


ODD = {
    "no EOF": with_lines(SQUARE, {10: ""}),
    "no NAME": with_lines(SQUARE, {1: ""}),
    "text after EOF": SQUARE + "what comes after the end says nothing\n1 2 3\n",
    "nodes in another order": with_lines(SQUARE, {6: "4 0 4", 9: "1 0 0"}),
    "a section before the keywords": "\n".join([*SQUARE.split("\n")[4:9], *SQUARE.split("\n")[:4]]),
    "comments": with_lines(SQUARE, {1: "COMMENT : one\nCOMMENT two\n# three", 7: "2 3 0\nCOMMENT: between\n#\n"}),
    "no space around colons": SQUARE.replace(" : ", ":"),
    "no colons": SQUARE.replace(" : ", "\t "),
    "colon after the section": SQUARE.replace("SECTION", "SECTION :"),
    "small letters": SQUARE.lower(),
    "tabs and blank lines": SQUARE.replace("\n", "\n\n \t").replace(" ", "\t"),
    "CRLF": SQUARE.replace("\n", "\r\n"),
    "CR": SQUARE.replace("\n", "\r"),
    "byte order mark": "\ufeff" + SQUARE,
    "DOS end of file": SQUARE + "\x1a",
    "a remark in brackets": with_lines(SQUARE, {2: "TYPE: TSP (of mine)"}),
    "floats": with_lines(SQUARE, {6: "1.0 0. -0.0", 7: "2 +3e0 .0", 8: "003 30E-1 4"}),
    "display settings": with_lines(
        SQUARE, {1: "NODE_COORD_TYPE: TWOD_COORDS\nEDGE_WEIGHT_FORMAT: FUNCTION\nDISPLAY_DATA_TYPE: COORD_DISPLAY"}
    ),
    "ATSP with coordinates": with_lines(SQUARE, {2: "TYPE : ATSP"}),
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_odd_but_valid(text: str) -> None:
    instances = parse_tsplib(text, "folder/square.tsp")
    assert instances.coords.tolist() == [[[0, 0], [3, 0], [3, 4], [0, 4]]]
    assert instances.rule.name == "EUC_2D"
    assert instances.names == ("square",)
    assert instances.node_names == ()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_very_small(n: int) -> None:
    rows = "\n".join(f"{i + 1} 7 7" for i in range(n))
    text = f"TYPE: TSP\nDIMENSION: {n}\nEDGE_WEIGHT_TYPE: CEIL_2D\nNODE_COORD_SECTION\n{rows}\nEOF"
    assert parse_tsplib(text, "small.tsp").coords.tolist() == [[[7, 7]] * n]


@pytest.mark.parametrize("scale", ["1e9", "1e-9", "-1e15"])
def test_very_large_and_very_close(scale: str) -> None:
    instances = parse_tsplib(with_lines(SQUARE, {8: f"3 {scale} {scale}"}), "scaled.tsp")
    assert instances.coords[0, 2].tolist() == [float(scale)] * 2


def test_geo_keeps_the_sites_and_draws_a_map() -> None:
    text = SQUARE.replace("EUC_2D", "GEO")
    instances = parse_tsplib(with_lines(text, {6: "1 0.0 179.30", 7: "2 0.0 -179.30"}), "map.tsp")
    assert instances.sites is not None
    assert instances.sites[0, :2].tolist() == [[0.0, 179.3], [0.0, -179.3]]
    east = instances.coords[0, 1] - instances.coords[0, 0]  # one degree across the antimeridian
    assert 110_000 < east[0] < 112_000


def test_the_picture_of_a_matrix() -> None:
    display = "DISPLAY_DATA_SECTION\n3 5 6\n1 1 2\n2 3 4\n"
    coordinates = "NODE_COORD_SECTION\n1 0 0\n2 0 1\n3 0 2\n"
    text = TRIANGLE.replace("EOF\n", "")
    assert parse_tsplib(text + display, "t.tsp").coords.tolist() == [[[1, 2], [3, 4], [5, 6]]]
    assert parse_tsplib(text + coordinates, "t.tsp").coords.tolist() == [[[0, 0], [0, 1], [0, 2]]]
    assert parse_tsplib(text + coordinates + display, "t.tsp").coords.tolist() == [[[1, 2], [3, 4], [5, 6]]]
    embedded = parse_tsplib(text, "t.tsp").coords
    torch.testing.assert_close(
        torch.cdist(embedded, embedded), torch.tensor([[[0, 3, 4], [3, 0, 5], [4, 5, 0]]]).double()
    )


BAD = [
    # the square with lines replaced; the line and the words that the message must have
    ({3: "DIMENSION : 5"}, 9, "NODE_COORD_SECTION ends after 4 nodes; expected 5"),
    ({3: "DIMENSION : 3"}, 9, "no node 4; expected ids from 1 to 3"),
    ({3: "DIMENSION : 0"}, 3, "DIMENSION is '0'; expected a whole number"),
    ({3: "DIMENSION : -4"}, 3, "DIMENSION is '-4'; expected a whole number"),
    ({3: "DIMENSION : 4.0"}, 3, "DIMENSION is '4.0'; expected a whole number"),
    ({3: "DIMENSION : four"}, 3, "DIMENSION is 'four'; expected a whole number"),
    ({3: "DIMENSION : 1000000000000"}, 9, "ends after 4 nodes; expected 1000000000000"),
    ({3: "DIMENSION : " + "9" * 5000}, 3, "expected a whole number"),
    ({3: "DIMENSION : 4_0"}, 3, "DIMENSION is '4_0'; expected a whole number"),
    ({3: "DIMENSION :"}, 3, "DIMENSION has no value; expected one"),
    ({3: ""}, 10, "expected DIMENSION before the end"),
    ({2: ""}, 10, "expected TYPE (TSP or ATSP) before the end"),
    ({4: ""}, 10, "expected EDGE_WEIGHT_TYPE (EUC_2D, CEIL_2D, ATT, GEO or EXPLICIT) before the end"),
    ({5: ""}, 6, "expected a keyword, found '1 0 0'"),
    ({5: "EOF"}, 5, "expected NODE_COORD_SECTION before the end"),
    ({5: "NODE_COORD_SECTION 1 0 0"}, 5, "expected the numbers of NODE_COORD_SECTION to begin on the next line"),
    ({6: "EOF"}, 5, "NODE_COORD_SECTION ends after 0 nodes; expected 4"),
    ({8: "EOF"}, 7, "NODE_COORD_SECTION ends after 2 nodes; expected 4"),
    ({1: "NAME : a\nTYPE : TSP"}, 3, "TYPE is there twice"),
    ({8: "3 3 4\nNODE_COORD_SECTION"}, 9, "NODE_COORD_SECTION is there twice"),
    ({7: "1 3 0"}, 7, "node 1 is there twice"),
    ({7: "2 3 0\n2 3 0"}, 8, "node 2 is there twice"),
    ({7: "5 3 0"}, 7, "no node 5; expected ids from 1 to 4"),
    ({7: "0 3 0"}, 7, "no node 0; expected ids from 1 to 4"),
    ({7: "2.5 3 0"}, 7, "no node 2.5; expected ids from 1 to 4"),
    ({7: "2 3"}, 7, "expected 'id x y' in NODE_COORD_SECTION, found '2 3'"),
    ({7: "2 3 0 1"}, 7, "expected 'id x y' in NODE_COORD_SECTION, found '2 3 0 1'"),
    ({7: "2 nan 0"}, 7, "found 'nan'"),
    ({7: "2 3 inf"}, 7, "found 'inf'"),
    ({7: "2 3 -Infinity"}, 7, "found '-Infinity'"),
    ({7: "2 1e400 0"}, 7, "expected a number (at most 1e+15) in NODE_COORD_SECTION, found '1e400'"),
    ({7: "2 1.1e15 0"}, 7, "found '1.1e15'"),
    ({7: "2 1_000 0"}, 7, "found '1_000'"),
    ({7: "2 0x10 0"}, 7, "found '0x10'"),
    ({7: "2 \uff11 0"}, 7, "found '\uff11'"),
    ({7: "2 1d3 0"}, 7, "found '1d3'"),
    ({7: "2 1,5 0"}, 7, "found '1,5'"),
    ({7: "2\u00a03 0"}, 7, "expected blanks or tabs between numbers"),
    ({7: "2 three 0"}, 7, "found 'three'"),
    ({7: "two 3 0"}, 7, "expected a number, a keyword or EOF in NODE_COORD_SECTION, found 'two 3 0'"),
    ({7: "2 3 " + "x" * 10**6}, 7, "…"),
    ({7: "\uff11 3 0"}, 7, "expected a number, a keyword or EOF"),
    ({1: "NICKNAME : square"}, 1, "expected a TSPLIB or CVRPLIB keyword, found 'NICKNAME : square'"),
    ({1: "? square"}, 1, "expected a TSPLIB or CVRPLIB keyword"),
    ({2: "TYPE : HCP"}, 2, "TYPE 'HCP' is not supported; expected TSP or ATSP"),
    ({2: "TYPE : SOP"}, 2, "TYPE 'SOP' is not supported"),
    ({4: "EDGE_WEIGHT_TYPE : EUC_3D"}, 4, "EDGE_WEIGHT_TYPE 'EUC_3D' is not supported; expected EUC_2D"),
    ({4: "EDGE_WEIGHT_TYPE : MAN_2D"}, 4, "'MAN_2D' is not supported"),
    ({4: "EDGE_WEIGHT_TYPE : EUC_2D CEIL_2D"}, 4, "'EUC_2D CEIL_2D' is not supported"),
    ({1: "NODE_COORD_TYPE : THREED_COORDS"}, 1, "'THREED_COORDS' is not supported"),
    ({1: "NODE_COORD_TYPE : NO_COORDS"}, 1, "NO_COORDS with EUC_2D; expected TWOD_COORDS"),
    ({1: "DISPLAY_DATA_TYPE : HOLOGRAM"}, 1, "'HOLOGRAM' is not supported"),
    ({1: "DISPLAY_DATA_TYPE : TWOD_DISPLAY"}, 10, "expected DISPLAY_DATA_SECTION before the end"),
    ({1: "EDGE_WEIGHT_FORMAT : FULL_MATRIX"}, 1, "'FULL_MATRIX' is not supported; expected FUNCTION"),
    ({10: "EDGE_WEIGHT_SECTION\n0"}, 10, "EDGE_WEIGHT_SECTION with EUC_2D; expected it with EXPLICIT"),
    ({1: "FIXED_EDGES_SECTION\n1 2\n-1"}, 1, "FIXED_EDGES_SECTION is not supported"),
    ({1: "DISTANCE : 100"}, 1, "DISTANCE is not supported"),
    ({1: "SERVICE_TIME : 10"}, 1, "SERVICE_TIME is not supported"),
    ({1: "EDGE_DATA_FORMAT : EDGE_LIST"}, 1, "EDGE_DATA_FORMAT is not supported"),
    ({10: "TIME_WINDOW_SECTION\n1 0 5"}, 10, "TIME_WINDOW_SECTION is not supported"),
    ({10: "TOUR_SECTION\n1"}, 10, "TOUR_SECTION is not supported (a solution, not a problem)"),
    ({1: "CAPACITY : 5"}, 1, "CAPACITY does not belong in a TSP"),
    ({10: "DEMAND_SECTION\n1 0"}, 10, "DEMAND_SECTION does not belong in a TSP"),
    ({4: "EDGE_WEIGHT_TYPE : GEO", 8: "3 91 0"}, 8, "latitude 91; expected a value from -90 to 90"),
    ({4: "EDGE_WEIGHT_TYPE : GEO", 8: "3 0 -181.5"}, 8, "longitude -181.5; expected a value from -180 to 360"),
]


@pytest.mark.parametrize(("changes", "line", "words"), BAD, ids=[words[:50] for _, _, words in BAD])
def test_bad_square(changes: dict[int, str], line: int, words: str) -> None:
    with pytest.raises(LehdError) as caught:
        parse_tsplib(with_lines(SQUARE, changes), "square.tsp")
    assert str(caught.value).startswith(f"square.tsp, line {line}: ")
    assert words in str(caught.value)
    assert "expected" in str(caught.value)
    assert len(str(caught.value)) < 300


BAD_MATRIX = [
    ({8: ""}, 7, "EDGE_WEIGHT_SECTION has 3 numbers; expected 6 for LOWER_DIAG_ROW of 3 nodes"),
    ({8: "4 5 0\n1"}, 9, "EDGE_WEIGHT_SECTION has 7 numbers; expected 6"),
    ({4: ""}, 9, "expected EDGE_WEIGHT_FORMAT (FULL_MATRIX, "),
    ({4: "EDGE_WEIGHT_FORMAT: FUNCTION"}, 4, "EDGE_WEIGHT_FORMAT 'FUNCTION' is not supported; expected FULL_MATRIX"),
    ({5: "EOF"}, 5, "expected EDGE_WEIGHT_SECTION before the end"),
    ({2: "DIMENSION: 1000000000000"}, 8, "EDGE_WEIGHT_SECTION has 6 numbers; expected 500000000000500000000000"),
    ({7: "-3 0"}, 7, "distance -3; expected 0 or more"),
    ({8: "4 nan 0"}, 8, "found 'nan'"),
    ({8: "4 5 0\nDISPLAY_DATA_SECTION\n1 0 0\n2 0 0"}, 11, "DISPLAY_DATA_SECTION ends after 2 nodes; expected 3"),
]


@pytest.mark.parametrize(("changes", "line", "words"), BAD_MATRIX, ids=[words[:50] for _, _, words in BAD_MATRIX])
def test_bad_triangle(changes: dict[int, str], line: int, words: str) -> None:
    with pytest.raises(LehdError) as caught:
        parse_tsplib(with_lines(TRIANGLE, changes), "triangle.tsp")
    assert str(caught.value).startswith(f"triangle.tsp, line {line}: ")
    assert words in str(caught.value)


def test_sums_that_could_overflow_are_refused() -> None:
    rows = "\n".join(f"{i + 1} {i} 1e15" for i in range(2000))
    text = f"TYPE: TSP\nDIMENSION: 2000\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n{rows}\n"
    with pytest.raises(LehdError, match=r"line 5: coordinate 1e\+15; expected a finite number of at most 5e\+14"):
        parse_tsplib(text, "wide.tsp")
