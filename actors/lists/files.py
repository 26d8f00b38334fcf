"""The compiled files in the folder of lists: their names, and how a list that has its entries itself gets one.

The name of a file has the id of its list and a digest of the content: another content has another name, and a process
that has mapped a file never finds another content in it. And a fetch from a source as a job and its result.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from actors.lists.compiled import CompiledList, ListDamaged
from actors.lists.compiler import ListCompiler, domain_of, range_of
from actors.lists.reading import DOMAINS
from config.net.entries import GEO

if TYPE_CHECKING:
    from actors.lists.places import PlaceDatabase

ENDING = ".list"
UPSTREAMS: Final = "upstreams"
"""The kind of a pool of upstreams, beside those of lists."""
_FILE = re.compile(r"\.?(list_[0-9a-f]+)(?:-[0-9a-f]+\.list(?:-[0-9a-f]+)?|\.json(?:\.new)?)")


def file_name(list_id: str, digest: str) -> str:
    """The name of a file of this list with a content of this digest."""
    return f"{list_id}-{digest[:24]}{ENDING}"


def file_of_entries(list_id: str, kind: str, entries: Iterable[str]) -> str:
    """The name of the file of a list that has these entries itself."""
    digest = hashlib.sha256(kind.encode())
    for each in entries:
        digest.update(b"\n" + each.encode())
    return file_name(list_id, digest.hexdigest())


def compile_entries(folder: Path, list_id: str, kind: str, entries: Iterable[str]) -> str:
    """Make the file of a list that has these entries itself, unless it is there and whole; its name.

    Raises `OSError`, and `ValueError` for an entry that is none of `kind`.
    """
    entries = list(entries)
    name = file_of_entries(list_id, kind, entries)
    if is_whole(folder / name, kind):
        return name
    compiler = ListCompiler()
    for each in entries:
        if kind == DOMAINS:
            compiler.add_domain(domain_of(each))
        else:
            compiler.add_network(range_of(each))
    folder.mkdir(mode=0o700, exist_ok=True)
    compiler.compile().write(folder / name)
    return name


def opened(path: Path, kind: str) -> CompiledList | PlaceDatabase:
    """The file of a list of this kind, checked. Raises `ListDamaged` and `OSError`."""
    found: CompiledList | PlaceDatabase
    if kind == GEO:
        from actors.lists.places import PlaceDatabase  # needs maxminddb, which only this does

        found = PlaceDatabase(path)
    else:
        found = CompiledList(path)
    found.verify()
    return found


def is_whole(path: Path, kind: str) -> bool:
    """Whether there is the file of a list of this kind, as it was written."""
    try:
        opened(path, kind)
    except (ListDamaged, OSError):
        return False
    return True


def remove_outdated(folder: Path, list_id: str, current: Iterable[str], age: float = 0.0) -> None:
    """Delete the files of a list but those in `current`, and those that were made less than `age` seconds ago.

    Processes that have mapped one keep it. Raises `OSError`.
    """
    kept = set(current)
    for path in folder.glob(f"{list_id}-*{ENDING}"):
        if path.name not in kept and is_older(path, age):
            path.unlink(missing_ok=True)


def is_older(path: Path, age: float) -> bool:
    """Whether a file was made so many seconds ago; also when it is gone. Raises `OSError`."""
    try:
        return time.time() - path.stat().st_mtime >= age
    except FileNotFoundError:
        return True


def version_of(about: os.stat_result) -> str:
    """What differs where the content of an operator's file may."""
    return f"{about.st_dev}-{about.st_ino}-{about.st_size}-{about.st_mtime_ns}"


def list_of_file(name: str) -> str | None:
    """The id of the list whose file in the folder of lists has this name; None for other files."""
    found = _FILE.fullmatch(name)
    return None if found is None else found[1]


CPU_MAX: Final = 300
"""Seconds of a processor after which the process of a fetch ends."""


@dataclass(frozen=True, slots=True)
class FetchJob:
    """What to fetch, from `url` or `file`.

    `etag`, `last_modified` and `entries` are those of the content that there is, empty for none. A content with less
    than half of `entries` is refused. `own` are the addresses of the product's own listeners. `excepted_by` is as in
    `OutgoingGuard`. `headers` are sent with the request, but not to another scheme, host or port behind a redirect.
    """

    list_id: str
    folder: str
    kind: str
    url: str
    form: str
    max_bytes: int
    etag: str = ""
    last_modified: str = ""
    entries: int = 0
    own: list[tuple[str, int, int]] = field(default_factory=list)
    excepted_by: str = ""
    file: str = ""
    headers: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result: `error` says why there is no new content. Without it `file` is its name, empty when it is the same.

    `cause` is what the log says in place of it. `examples` are lines that were skipped: number, text and why.
    `upstreams` are those of a pool, as a request gives them; then `file` is their digest.
    """

    error: str = ""
    file: str = ""
    entries: int = 0
    skipped: int = 0
    examples: list[tuple[int, str, str]] = field(default_factory=list)
    etag: str = ""
    last_modified: str = ""
    cause: str = ""
    upstreams: list[dict[str, Any]] = field(default_factory=list, repr=False)
