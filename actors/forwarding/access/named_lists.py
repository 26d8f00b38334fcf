"""The lists that rules of a forwarding actor name: opened at their first use, replaced while they are used.

A list that can't be read is a problem of the proxy, and is tried again. A large new version is read in a thread before
it takes the place of the one that is used, so that no request waits; until then, and when it is damaged, the old one
holds.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from actors.bus.loop import Loop
from actors.bus.messages.common import LIST_UNREADABLE
from actors.bus.messages.specs import ListRef
from actors.forwarding.fleet_objects import FoundList
from actors.net.socks_wire import endpoint_of
from actors.problems import ActiveProblems
from config.net.addresses import plain
from config.net.entries import GEO, ListHost

if TYPE_CHECKING:
    from actors.lists.places import PlaceDatabase
    from actors.thread_pool import ThreadPool

RETRY: Final = 1.0
"""Seconds after which a list that can't be read is tried again, if it is named."""
READ_AT_ONCE: Final = 1_000_000
"""Bytes of a new version that are read in the loop: less than a millisecond."""
AGAIN: Final = 10.0
"""Seconds after which a new version that can't be read is tried again."""


class Content(Protocol):
    """The content of a list."""

    def of(self, host: ListHost) -> FoundList | None:
        """What an entry that names this list matches; None where such an entry can name no list of this kind."""


class NamedListFiles:
    """The lists of an actor, in `folder`. `on_changed` is called when a list that is used has another content."""

    def __init__(self, loop: Loop, problems: ActiveProblems, folder: Path | None) -> None:
        self._loop = loop
        self._problems = problems
        self._folder = folder
        self._refs: dict[str, ListRef] = {}
        self._used: dict[str, tuple[ListRef, Content]] = {}
        self._failed: dict[str, float] = {}
        self._threads: ThreadPool | None = None
        self.on_changed: Callable[[], None] = lambda: None
        self.places: tuple[PlaceDatabase, ...] = ()
        """The databases of places that are used."""

    def configure(self, refs: Iterable[ListRef]) -> None:
        """These are the lists now, by their names."""
        self._refs = {ref.name: ref for ref in refs}
        for name in tuple(self._failed):
            if name not in self._refs:
                self._problems.ends(LIST_UNREADABLE, "there is no such list any more", name)
        self._failed.clear()
        for name, (used, _content) in tuple(self._used.items()):
            ref = self._refs.get(name)
            if ref is None or ref.id != used.id:
                del self._used[name]
                self._note_places()
            elif ref.file != used.file:
                self._replace(ref)

    def find(self, host: ListHost) -> FoundList | None:
        """See `NamedLists`."""
        used = self._used.get(host.name)
        content = self._first_use(host.name) if used is None else used[1]
        return None if content is None else content.of(host)

    def judges_addresses(self, host: ListHost) -> bool:
        """See `NamedLists`."""
        ref = self._refs.get(host.name)
        return ref is not None and ref.judges_addresses

    def read(self, ref: ListRef) -> Content | None:
        """The content of a list, which rules need not name; None when it can't be read."""
        used = self._used.get(ref.name)
        if used is not None and used[0].file == ref.file:
            return used[1]
        try:
            return _read(self._path(ref), ref.kind)
        except (OSError, ValueError):
            return None

    def place_of(self, sock: socket.socket) -> tuple[str, str]:
        """The country and the autonomous system of the address that a socket is connected to, as texts."""
        try:
            address = plain(endpoint_of(sock.getpeername())[0])
        except OSError:  # it has been reset already
            return "", ""
        found = [place for each in self.places if (place := each.find(address)) is not None]
        country = next((each.country for each in found if each.country), "")
        return country, next((str(each.asn) for each in found if each.asn), "")

    def _note_places(self) -> None:
        refs = (each for each in self._used.values() if each[0].kind == GEO)
        self.places = tuple(cast("PlaceDatabase", content) for _ref, content in refs)

    def close(self) -> None:
        """End its thread, if there is one."""
        if self._threads is not None:
            self._threads.close()

    def _first_use(self, name: str) -> Content | None:
        if self._loop.now - self._failed.get(name, -RETRY) < RETRY:
            return None
        ref = self._refs.get(name)
        try:
            if ref is None:
                raise ValueError("there is no such list")
            content = _read(self._path(ref), ref.kind)
        except (OSError, ValueError) as error:
            self._failed[name] = self._loop.now
            self._fails(name, f"rules name the list {name}, which can't be read: {_text(error)}")
            return None
        self._use(ref, content)
        return content

    def _replace(self, ref: ListRef) -> None:
        """Use the new version when it is read."""
        try:
            path = self._path(ref)
            small = path.stat().st_size <= READ_AT_ONCE
        except (OSError, ValueError) as error:
            self._replacement_fails(ref, error)
            return
        if small:
            self._replaced(ref, _result(path, ref.kind))
        else:
            self._thread_pool().submit(partial(_result, path, ref.kind), partial(self._replaced, ref))

    def _replaced(self, ref: ListRef, content: Content | Exception | None) -> None:
        if self._refs.get(ref.name) != ref or ref.name not in self._used:
            return  # there is a newer version, or the list is gone
        if isinstance(content, Exception) or content is None:
            self._replacement_fails(ref, content)
            return
        self._use(ref, content)
        self.on_changed()

    def _replacement_fails(self, ref: ListRef, error: Exception | None) -> None:
        self._fails(
            ref.name, f"the new version of the list {ref.name} can't be read, the old one holds: {_text(error)}"
        )
        self._loop.call_later(AGAIN, lambda: self._try_again(ref))

    def _try_again(self, ref: ListRef) -> None:
        if self._refs.get(ref.name) == ref and ref.name in self._used:
            self._replace(ref)

    def _use(self, ref: ListRef, content: Content) -> None:
        self._used[ref.name] = ref, content
        self._note_places()
        self._failed.pop(ref.name, None)
        self._problems.ends(LIST_UNREADABLE, f"the list {ref.name} can be read", ref.name)

    def _fails(self, name: str, detail: str) -> None:
        self._problems.begins(LIST_UNREADABLE, detail, name)

    def _path(self, ref: ListRef) -> Path:
        """Raises `ValueError` where there is no file yet."""
        if self._folder is None or not ref.file:
            raise ValueError("it has no content yet")
        return self._folder / ref.file

    def _thread_pool(self) -> ThreadPool:
        if self._threads is None:
            from actors.thread_pool import ThreadPool  # few lists are large

            self._threads = ThreadPool(self._loop, 1)
        return self._threads

    def __repr__(self) -> str:
        return f"<NamedListFiles {', '.join(self._used) or 'none'} in use>"


def _read(path: Path, kind: str) -> Content:
    """The whole file, checked. Raises `OSError`, and `ValueError` when it is damaged."""
    from actors.lists.compiled import ListDamaged
    from actors.lists.files import opened  # only where lists are named

    try:
        return opened(path, kind)
    except ListDamaged as error:
        raise ValueError(f"{path.name} {error}") from error


def _result(path: Path, kind: str) -> Content | Exception:
    try:
        return _read(path, kind)
    except (OSError, ValueError) as error:
        return error


def _text(error: Exception | None) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{Path(error.filename).name} is not there"
    return (error.strerror if isinstance(error, OSError) else str(error or "")) or "unknown error"
