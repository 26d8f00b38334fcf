"""Reads configuration files: finds those that they name."""

from __future__ import annotations

import re
from collections.abc import Callable
from glob import escape, has_magic, iglob
from ipaddress import ip_address
from itertools import islice
from pathlib import Path

FILE_MAX = 64 * 1024 * 1024
"""Bytes of one file, and of all together."""
READS_MAX = 2_000
"""Files that are read for one configuration: those that include one another double with each level."""
PATTERNS_MAX = 2
FILE = "\x00file:"
"""Precedes the name of a file that has the parameters, in the words of a statement."""
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class UnreadableFile(Exception):
    """A file can't be read; the text says why."""


class Files:
    """The files of one configuration. Absolute paths are searched below `root` first, if there is one."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        self._reads = 0
        self._left = FILE_MAX

    def find(self, name: str, beside: str) -> Path:
        """The path of a file that the file `beside` names."""
        path = Path(name)
        if not path.is_absolute():
            return Path(beside).parent / path
        moved = None if self._root is None else self._root / path.relative_to("/")
        return moved if moved is not None and moved.exists() else path

    def expand(self, pattern: str, beside: str) -> list[Path]:
        """The files that a pattern of a shell names, sorted. Raises `UnreadableFile`: some would walk a disk."""
        given = Path(pattern)
        if sum(map(has_magic, given.parts)) > PATTERNS_MAX:
            raise UnreadableFile(f"{pattern}: more than {PATTERNS_MAX} of its folders are patterns")
        whole = str(given if given.is_absolute() else Path(escape(str(Path(beside).parent))) / given)
        moved = [] if self._root is None else _matching(f"{escape(str(self._root))}/{whole.lstrip('/')}")
        found = moved or _matching(whole)
        if not found and not has_magic(pattern):
            raise UnreadableFile(f"{pattern}: no such file")
        return list(map(Path, found))

    def read(self, path: Path) -> str:
        """The text of a file. Raises `UnreadableFile`."""
        self._reads += 1
        if self._reads > READS_MAX:
            raise UnreadableFile(f"{path}: more than {READS_MAX} files are named")
        try:
            if not path.is_file():
                raise UnreadableFile(f"{path}: no such file" if not path.exists() else f"{path}: is no file")
            with path.open("rb") as file:
                content = file.read(self._left + 1)
        except OSError as error:
            raise UnreadableFile(f"{path}: {error.strerror or error}") from error
        if len(content) > self._left:
            raise UnreadableFile(f"{path}: with it there are more than {FILE_MAX} bytes")
        self._left -= len(content)
        return content.decode("utf-8", "replace")


def _matching(pattern: str) -> list[str]:
    return sorted(islice(iglob(pattern), READS_MAX + 1))


def printable(word: str) -> str:
    """Without control characters, which no field of a document may have."""
    return _UNFIT.sub("\ufffd", word)


def plain(word: str) -> str:
    """A word that is no file: quotation marks only kept it together."""
    return word.removeprefix(FILE)


def passes(check: Callable[[str], object], word: str) -> bool:
    """Whether `check` raises no `ValueError`."""
    try:
        check(word)
    except ValueError:
        return False
    return True


def is_address(word: str) -> bool:
    """Whether it is an IP address, without a zone."""
    return passes(ip_address, word) and "%" not in word


def is_port(word: str) -> bool:
    """Whether it is the number of a port."""
    return word.isdecimal() and 1 <= int(word) <= 65535
