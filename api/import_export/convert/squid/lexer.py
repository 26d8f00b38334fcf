"""Reads squid.conf: continued lines, comments, `include`, `if`, macros, quoted words and files of parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from api.import_export.convert.report import Effect, Report
from api.import_export.convert.statements import Files, Place, Statement, UnreadableFile, printable

DEPTH_MAX = 16
"""Includes in one another; squid has the same limit."""
"""Also for `if` within `if`."""
LINE_MAX = 1024 * 1024

_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')
_FILE_OF_PARAMETERS = re.compile(r'parameters\("([^"]+)"\)')
_COMPARED = re.compile(r"(-?\d{1,18}) ?= ?(-?\d{1,18})")
_MACROS = {"${process_name}": "squid", "${process_number}": "1", "${service_name}": "squid"}
FILE = "\x00file:"
"""Precedes the name of a file that has the parameters, in the words of a statement."""


class Reader:
    """The statements of a configuration, in order."""

    def __init__(self, files: Files, report: Report) -> None:
        self._files = files
        self._report = report
        self.missing: list[Statement] = []
        """Includes of files that can't be read."""

    def read(self, path: Path, depth: int = 0) -> Iterator[Statement]:
        """All statements of a file and those that it includes. Raises `UnreadableFile` for the file itself."""
        conditions: list[bool] = []
        for place, text in _lines(path, self._files.read(path)):
            keyword = text.split(None, 1)[0]
            if keyword in ("if", "else", "endif"):
                self._condition(Statement(place, keyword, tuple(text.split()[1:])), conditions)
            elif all(conditions):
                yield from self._statement(Statement(place, keyword, words_of(text)), path, depth)

    def _statement(self, statement: Statement, path: Path, depth: int) -> Iterator[Statement]:
        if statement.name != "include":
            yield statement
            return
        for pattern in (word.removeprefix(FILE) for word in statement.words):
            yield from self._include(statement, pattern, path, depth)

    def _include(self, statement: Statement, pattern: str, path: Path, depth: int) -> Iterator[Statement]:
        found = self._files.expand(pattern, path.parent)
        if depth == DEPTH_MAX:
            raise UnreadableFile(f"{statement.place}: more than {DEPTH_MAX} files include one another")
        if not found and not any(each in pattern for each in "*?["):
            self.missing.append(statement)
            return
        if not found:
            self._report.add(Effect.UNNEEDED, statement, f"no file matches {pattern}")
        for each in found:
            try:
                yield from self.read(each, depth + 1)
            except UnreadableFile:
                if statement not in self.missing:  # once, however often it is read
                    self.missing.append(statement)

    def _condition(self, statement: Statement, conditions: list[bool]) -> None:
        if statement.name == "if":
            if len(conditions) == DEPTH_MAX:
                raise UnreadableFile(f"{statement.place}: more than {DEPTH_MAX} conditions in one another")
            conditions.append(self._holds(statement))
        elif conditions and statement.name == "else":
            conditions[-1] = not conditions[-1]
        elif conditions:
            conditions.pop()

    def _holds(self, statement: Statement) -> bool:
        text = " ".join(statement.words)
        compared = _COMPARED.fullmatch(text)
        if compared is not None:
            return int(compared[1]) == int(compared[2])
        if text not in ("true", "false"):
            why = "only true, false and comparisons of numbers are known; the lines up to else are left out"
            self._report.add(Effect.LOST, statement, why, "write the file without if, for one process of squid")
        return text == "true"


def _lines(path: Path, text: str) -> Iterator[tuple[Place, str]]:
    """The lines of a file with continued ones in one, without comments and empty lines."""
    waiting: list[str] = []
    first, size = 0, 0
    for number, raw in enumerate(text.splitlines(), 1):
        part = raw.strip()
        if part.startswith("#"):
            continue
        first = first or number
        size += len(part)
        if part.endswith("\\") and size < LINE_MAX:
            waiting.append(part[:-1])
            continue
        line, place = _expanded("".join([*waiting, part]).strip()), Place(str(path), first)
        waiting, first, size = [], 0, 0
        if line:
            yield place, line
    if last := "".join(waiting).strip():
        yield Place(str(path), first), _expanded(last)


def _expanded(line: str) -> str:
    for macro, value in _MACROS.items():
        line = line.replace(macro, value)
    return line


def words_of(line: str) -> tuple[str, ...]:
    """The parameters of a line: words, and files of parameters with `FILE` before their names; no comments."""
    words: list[str] = []
    for match in _WORD.finditer(line.split(None, 1)[1] if len(line.split(None, 1)) > 1 else ""):
        parameters = _FILE_OF_PARAMETERS.fullmatch(match[0])
        if match[2] is not None and match[2].startswith("#"):
            break
        if parameters is not None:
            words.append(FILE + printable(parameters[1]))
        else:
            words.append(printable(match[2]) if match[1] is None else FILE + printable(match[1]))
    return tuple(words)


def plain(word: str) -> str:
    """A word that is no file: quotation marks only kept it together."""
    return word.removeprefix(FILE)


def items_of(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of the lines of a file of parameters."""
    for number, raw in enumerate(text.splitlines(), 1):
        item = raw.strip()
        if item and not item.startswith("#"):
            yield number, item
