"""From bytes to lines, and from tokens to numbers: what all the readers share.

Every complaint goes through `fail`, so that it names the file and the line.
"""

from __future__ import annotations

import math
import os
import re
from typing import NoReturn

from lehd.errors import LehdError

LARGEST = 1e15  # whole numbers up to here are exact in float64

# No character outside these begins or continues a number: this keeps out nan, inf, hexadecimal, 1_000 and the digits
# of other scripts, all of which float() would take.
FOREIGN = re.compile(r"[^0-9+\-.eE \t\f\v\n]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_END = "\r\n\x1a"  # what may follow the last line; DOS marks the end of a file with the last of these


def fail(source: str, line: int, message: str) -> NoReturn:
    raise LehdError(f"{source}, line {line}: {message}")


def load(path: str | os.PathLike[str]) -> str:
    """A file's text."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise LehdError(f"{os.fspath(path)}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:  # a null character in the path
        raise LehdError(f"{os.fspath(path)!r}: not a file name ({error})") from error
    return decode(content)


def decode(content: bytes) -> str:
    """The text in bytes: UTF-8, with or without a byte order mark, or else Latin-1."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def split_lines(text: str, source: str) -> list[str]:
    """The lines of a text, whatever ends them. Empty and binary texts are refused."""
    text = text.removeprefix("\ufeff").rstrip(_END).replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise LehdError(f"{source}: the file is empty; expected a TSPLIB or CVRPLIB file, or a table")
    if control := _CONTROL.search(text):
        line = text.count("\n", 0, control.start()) + 1
        fail(source, line, f"not a text file (it has the character {ord(control.group()):#04x}); expected plain text")
    return text.split("\n")


def is_remark(line: str) -> bool:
    """Whether a line says nothing to a reader: it is blank or a comment."""
    stripped = line.strip()
    return not stripped or stripped[0] == "#"


def parse_number(token: str) -> float | None:
    """A finite number of ordinary size in plain ASCII notation; None for anything else."""
    if FOREIGN.search(token):
        return None
    try:
        number = float(token)
    except ValueError:
        return None
    return number if math.isfinite(number) and abs(number) <= LARGEST else None


def short(text: str) -> str:
    """Text quoted for a message, cut where it is long."""
    return repr(text) if len(text) <= 40 else repr(text[:37]) + "…"


def shown(number: float) -> str:
    """A number as a person would write it."""
    return f"{number:.0f}" if number == math.floor(number) else f"{number:g}"
