"""The line of each key in a TOML file, which `tomllib` does not report.

It scans lines and is no parser: the file is known to be TOML. Each table of an array has its line. Keys inside an
inline table have the line of that, and values of any other array the line of the key that has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

_PART = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)\s*""")
_TOKEN = re.compile(
    r'"""(?:[^"\\]|\\.|""?(?!"))*+"{0,5}+|'
    r"'''.*?'''|"
    r'"(?:[^"\\\n]|\\.)*+"?+|'
    r"'[^'\n]*'|"
    r"#[^\n]*|[\[{]|[\]}]|\n",
    re.DOTALL,
)


def lines_of(text: str) -> dict[tuple[str, ...], int]:
    """The line, from 1, of every table and every key, by its whole path.

    What is in an array of tables is there twice: with the number of its table, from 0, and without one, where the first
    is meant.
    """
    found: dict[tuple[str, ...], int] = {}
    implied: dict[tuple[str, ...], int] = {}
    arrays: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, statement, entries in _statements(text):
        header = statement.startswith("[")
        path = tuple(_parts(statement.lstrip("[") if header else statement))
        if statement.startswith("[["):
            array = (*_numbered(path[:-1], arrays), path[-1])
            arrays[array] = arrays.get(array, -1) + 1
        if header:
            table = path
        whole = table if header else table + path
        for each in (whole, _numbered(whole, arrays)):
            found.setdefault(each, number)
            found.update({(*each, str(index)): line for index, line in enumerate(() if header else entries)})
            for length in range(1, len(each)):
                implied.setdefault(each[:length], number)
    return implied | found


def _numbered(path: tuple[str, ...], arrays: Mapping[tuple[str, ...], int]) -> tuple[str, ...]:
    """`path` with the number of the present table behind each array of tables on its way."""
    numbered: tuple[str, ...] = ()
    for part in path:
        numbered += (part,)
        if numbered in arrays:
            numbered += (str(arrays[numbered]),)
    return numbered


def line_of(lines: dict[tuple[str, ...], int], path: Sequence[object]) -> int | None:
    """The line of `path`, or of the nearest thing that it is inside of; None when the file has nothing of it."""
    parts = tuple(str(part) for part in path)
    for length in range(len(parts), 0, -1):
        if parts[:length] in lines:
            return lines[parts[:length]]
    return None


def _statements(text: str) -> Iterator[tuple[int, str, list[int]]]:
    """Headers and assignments with the line that they begin on; a value may go on over several lines.

    Of an array the lines, too, on which its tables begin.
    """
    begin, start, line, depth = 0, 1, 1, 0
    entries: list[int] = []
    outermost = ""
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word == "\n" and depth == 0:
            yield start, text[begin : token.start()].strip(), entries
            begin, start, entries = token.end(), line + 1, []
        if word in "[{" and depth == 0:
            outermost = word
        elif word == "{" and depth == 1 and outermost == "[":
            entries.append(line)
        depth += (word in "[{") - (word in "]}") if len(word) == 1 and word != "\n" else 0
        line += word.count("\n")
    yield start, text[begin:].strip(), entries


def _parts(statement: str) -> Iterator[str]:
    """The parts of a dotted key at the beginning of a statement."""
    position = 0
    while match := _PART.match(statement, position):
        part = match[1]
        yield part[1:-1] if part[0] in "\"'" else part
        position = match.end()
        if statement[position : position + 1] != ".":
            return
        position += 1
