"""Reads 3proxy.cfg: a command in each line, words in quotation marks, words from files (`$FILE`), and `include`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from api.import_export.convert.report import Effect, Report
from api.import_export.convert.statements import Files, Place, Statement, UnreadableFile, printable

DEPTH_MAX = 16


class Reader:
    """The commands of a configuration, in order."""

    def __init__(self, files: Files, report: Report) -> None:
        self._files = files
        self._report = report
        self.missing: list[Statement] = []
        """Commands with files that can't be read."""

    def read(self, path: Path, depth: int = 0) -> Iterator[Statement]:
        """All commands of a file and those that it includes. Raises `UnreadableFile` for the file itself."""
        for number, line in enumerate(self._files.read(path).splitlines(), 1):
            if line[:1] in ("", "#", " ", "\t") or not line.strip():
                continue
            place = Place(str(path), number)
            words = list(self._words(place, line, path))
            if not words:
                continue
            if words[0] == "end":
                return
            statement = Statement(place, words[0], tuple(words[1:]))
            if statement.name == "include":
                yield from self._include(statement, path, depth)
            else:
                yield statement

    def _include(self, statement: Statement, path: Path, depth: int) -> Iterator[Statement]:
        try:
            if depth == DEPTH_MAX or not statement.words:
                raise UnreadableFile("it includes itself, or nothing")
            yield from self.read(self._files.find(statement.words[0], path.parent), depth + 1)
        except UnreadableFile:
            if statement not in self.missing:  # once, however often it is read
                self.missing.append(statement)

    def _words(self, place: Place, line: str, path: Path) -> Iterator[str]:
        for word, of_file in _split(line):
            if not of_file:
                yield word
                continue
            try:
                text = self._files.read(self._files.find(word, path.parent))
            except UnreadableFile as error:
                name = line.split(maxsplit=1)[0]
                statement = Statement(place, name, (f"${word}",))
                why = f"{error}; its words are missing here"
                self._report.add(Effect.LOST, statement, why, "copy the file here, or name its place by --root")
                if name in ("allow", "deny", "redirect", "parent"):
                    self.missing.append(statement)
                continue
            for each in text.splitlines():
                yield from (inner for inner, _file in _split(each))


def _split(line: str) -> Iterator[tuple[str, bool]]:
    """Each word, and whether it is the name of a file with words."""
    at, size = 0, len(line)
    while at < size:
        if line[at] in " \t\r":
            at += 1
            continue
        of_file = line[at] == "$"
        at += of_file
        word = ""
        while at < size and line[at] not in " \t\r":
            if line[at] == '"':
                inner, at = _quoted(line, at + 1)
                word += inner
            else:
                word += line[at]
                at += 1
        yield printable(word), of_file


def _quoted(line: str, at: int) -> tuple[str, int]:
    """The text up to the closing mark, and the place behind it; a doubled mark is one mark."""
    text = ""
    while at < len(line):
        if line[at] == '"':
            if line[at + 1 : at + 2] != '"':
                return text, at + 1
            at += 1
        text += line[at]
        at += 1
    return text, at
