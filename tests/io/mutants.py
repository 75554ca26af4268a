"""Texts gone wrong: small sound files of every kind, and ways to damage them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

SEEDS = {
    "plain.tsp": """NAME : plain
COMMENT : six nodes
TYPE : TSP
DIMENSION : 6
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 38.24 20.42
2 39.57 26.15
3 40.56 25.32
4 36.26 23.12
5 33.48 10.54
6 -37.56 1.2e1
EOF
""",
    "geo.tsp": """NAME: geo
TYPE: TSP
DIMENSION: 5
EDGE_WEIGHT_TYPE: GEO
EDGE_WEIGHT_FORMAT: FUNCTION
DISPLAY_DATA_TYPE: COORD_DISPLAY
NODE_COORD_SECTION
 1 16.47 96.10
 2 16.47 94.44
 3 20.09 92.54
 4 22.39 93.37
 5 -25.23 97.24
EOF
""",
    "full.atsp": """NAME: full
TYPE: ATSP
DIMENSION: 4
EDGE_WEIGHT_TYPE: EXPLICIT
EDGE_WEIGHT_FORMAT: FULL_MATRIX
EDGE_WEIGHT_SECTION
 0 3 5 48
 3 0 3 48
 5 4 0 72
 47 48 74 0
EOF
""",
    "lower.tsp": """NAME: lower
TYPE: TSP
DIMENSION: 5
EDGE_WEIGHT_TYPE: EXPLICIT
EDGE_WEIGHT_FORMAT: LOWER_DIAG_ROW
DISPLAY_DATA_TYPE: TWOD_DISPLAY
EDGE_WEIGHT_SECTION
0 83 0 93
40 0 129 53 42 0
133 62 42 11 0
DISPLAY_DATA_SECTION
1 1.5 10
2 2.5 20
3 3.5 30
4 4.5 50
5 5.5 40
EOF
""",
    "routes.vrp": """NAME : routes
COMMENT : (five customers, Optimal value: 0)
TYPE : CVRP
DIMENSION : 6
EDGE_WEIGHT_TYPE : EUC_2D
CAPACITY : 100
NODE_COORD_SECTION
1 82 76
2 96 44
3 50 5
4 49 8
5 13 7
6 29 89
DEMAND_SECTION
1 0
2 19
3 21
4 6
5 19
6 70
DEPOT_SECTION
1
-1
EOF
""",
    "matrix.vrp": """NAME : matrix
TYPE : CVRP
DIMENSION : 5
EDGE_WEIGHT_TYPE : EXPLICIT
EDGE_WEIGHT_FORMAT : LOWER_ROW
CAPACITY : 12.5
VEHICLES : 3
EDGE_WEIGHT_SECTION
9
14 21
23 22
25 32 36.5 38 42
DEPOT_SECTION
 3
 -1
DEMAND_SECTION
1 7
2 12
3 0
4 5
5 12
EOF
""",
    "att.txt": "name: att\r\ntype: TSP (a remark)\r\nCOMMENT: caf\u00e9\r\ndimension: 4\r\nedge_weight_type ATT\r\n"
    "# a remark\r\nNODE_COORD_SECTION:\r\n3 10 10\r\n1 0 0\r\n2 10\t0\r\n4 0 10",
    "places.csv": """name,lat,lon
Oslo,59.91,10.75
Bergen,60.39,5.32
"Trondheim, N",63.43,10.40
Bodo,67.28,14.40
""",
    "stops.csv": """id;x;y;demand;depot;capacity
7;3.5;4.5;12;;
8;1;2;;1;40
9;8;2.25;40;0;
10;5;5;3;no;40
""",
    "bare.tsv": "0\t0\t0\n4\t5\t2\n6\t1.5\t3\n2\t2\t1\n",
}

ODD_NUMBERS = [
    "nan", "inf", "-inf", "Infinity", "1e400", "-1e400", "1e-400", "1e20", "1e15", "1_000", "0x10", "\uff11", "\u0663",
    "1,5", "1.2.3", "1e", "+-1", "--1", "", "-", ".", "1d3", "0", "-1", "-0", "00", "+7", "007", "1.0", "2.5", "1e0",
    ".5", "5.", "1000000000000", "99999999999999999999", "9" * 500, "0." + "0" * 500 + "1", "1\u00a02", "true", "None",
]  # fmt: skip


def drop_line(rng: random.Random, lines: list[str]) -> list[str]:
    at = rng.randrange(len(lines))
    return lines[:at] + lines[at + 1 :]


def swap_lines(rng: random.Random, lines: list[str]) -> list[str]:
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return lines


def double_line(rng: random.Random, lines: list[str]) -> list[str]:
    at = rng.randrange(len(lines))
    to = rng.choice([at, rng.randrange(len(lines))])
    return [*lines[:to], lines[at], *lines[to:]]


def cut_section(rng: random.Random, lines: list[str]) -> list[str]:
    start = rng.randrange(len(lines))
    return lines[:start] + lines[rng.randint(start, len(lines)) :]


def cut_end(rng: random.Random, lines: list[str]) -> list[str]:
    text = "\n".join(lines)
    return text[: rng.randrange(len(text) + 1)].split("\n")


def alter_number(rng: random.Random, lines: list[str]) -> list[str]:
    text = "\n".join(lines)
    numbers = list(re.finditer(r"-?[0-9][0-9.e]*", text))
    if not numbers:
        return lines
    found = rng.choice(numbers)
    number = rng.choice([*ODD_NUMBERS, str(rng.randint(-2, 9)), str(rng.randint(0, 120)), f"{rng.uniform(-9, 99):.3f}"])
    return (text[: found.start()] + number + text[found.end() :]).split("\n")


def alter_token(rng: random.Random, lines: list[str]) -> list[str]:
    at = rng.randrange(len(lines))
    words = lines[at].split(" ")
    word = rng.randrange(len(words))
    words[word : word + 1] = rng.choice([[], [words[word]] * 2, [words[word], ""], [words[word] + "\t"]])
    lines[at] = " ".join(words)
    return lines


def flip_byte(rng: random.Random, lines: list[str]) -> list[str]:
    content = bytearray("\n".join(lines).encode("latin-1", errors="replace"))
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return content.decode("latin-1").split("\n")


MUTATIONS: list[Callable[[random.Random, list[str]], list[str]]] = [
    drop_line, swap_lines, double_line, cut_section, cut_end, alter_number, alter_number, alter_token, flip_byte,
]  # fmt: skip


def mutate(rng: random.Random, text: str) -> str:
    """A text with one to three things wrong (or, by luck, nothing)."""
    lines = text.split("\n")
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        lines = rng.choice(MUTATIONS)(rng, lines) or [""]
    return "\n".join(lines)
