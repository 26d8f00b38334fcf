"""The contents of lists: the compiled files of those that have their entries, and of those that are fetched.

A list with entries of its own is compiled before it is stored, so that the file is there for who gets the change. One
that was stored elsewhere is compiled before proxies get it, one of a restored backup in the rounds of
`api.services.list_fetches`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from actors.bounded import keep
from actors.forwarding.explain import read_target
from actors.forwarding.protocols.failures import Refused
from actors.lists.compiled import CompiledList, ListDamaged
from actors.lists.compiler import domain_of
from actors.lists.files import compile_entries, is_older, is_whole, list_of_file, opened, remove_outdated
from actors.lists.reading import DOMAINS
from api.errors import Invalid
from api.services.list_states import ListState, ListStates, Sourced
from api.store import StoreWriteError
from config.model.lists import DestinationList
from config.model.proxy_checks import Warned
from config.net.addresses import unmapped
from config.net.entries import GEO
from config.text.formatting import timestamp_text

if TYPE_CHECKING:
    from actors.lists.places import PlaceDatabase

log = logging.getLogger(__name__)

SETTLED: Final = 60.0
"""Seconds after which a file that no stored list has is not one of a list that is just being stored."""
OPEN_MAX: Final = 16
"""Lists that are kept mapped for checks."""


class Checked(NamedTuple):
    """The entry of a list that matches, None without one; of a database the network that it knows, and its place."""

    entry: str | None
    country: str | None = None
    asn: int | None = None


class ListContents:
    """Thread-safe: files are replaced whole, and each has one content for good."""

    def __init__(self, states: ListStates) -> None:
        self.states = states
        self._open: dict[str, CompiledList | PlaceDatabase] = {}
        self._settled: dict[str, str] = {}

    def prepare(self, record: DestinationList) -> None:
        """Make the file of a list that has its entries, before it is stored. Raises `StoreWriteError`."""
        if record.source is None:
            try:
                compile_entries(self.states.folder, record.id, record.kind, record.entries)
            except OSError as error:
                raise StoreWriteError(f"{self.states.folder}: {error.strerror or error}") from error

    def settle(self, records: Sequence[DestinationList]) -> list[str]:
        """Make the files that are missing or damaged, and delete those of no list any more; the ids of those made.

        Raises `OSError`.
        """
        made = [record.id for record in records if record.source is None and self._made(record)]
        if self._settled.keys() - {record.id for record in records} or not self._settled:
            self._remove_all_but({record.id for record in records})
        self._settled = {record.id: self.states.current_file(record) for record in records}
        return made

    def _made(self, record: DestinationList) -> bool:
        file = self.states.current_file(record)
        before = self._settled.get(record.id)
        if before == file:
            return False
        known = is_whole(self.states.folder / file, record.kind)
        if not known:
            compile_entries(self.states.folder, record.id, record.kind, record.entries)
        remove_outdated(self.states.folder, record.id, filter(None, (file, before)), SETTLED)
        return not known

    def _remove_all_but(self, ids: Iterable[str]) -> None:
        kept = set(ids)
        for path in self.states.folder.glob("*"):
            list_id = list_of_file(path.name)
            if list_id is not None and list_id not in kept and is_older(path, SETTLED):
                path.unlink(missing_ok=True)
                self.states.forget(list_id)

    # --- for requests ---

    def status(self, record: Sourced) -> dict[str, Any]:
        """How much content a list or a pool has, and of one that is fetched when and how."""
        if isinstance(record, DestinationList) and record.source is None:
            state = ListState(entries=len(record.entries))
        else:
            state = self.states.get(record.id)
        return {
            "entries": state.entries,
            "fetched_at": _moment(state.fetched_at),
            "next_at": _moment(state.next_at),
            "last_error": state.last_error or None,
            "skipped": state.skipped,
            "skipped_examples": [dict(zip(("line", "text", "reason"), each, strict=True)) for each in state.examples],
        }

    def warnings(self, record: DestinationList) -> list[Warned]:
        """Why the list may do less than it seems to."""
        if record.source is None:
            return [] if record.entries else [Warned("entries", "the list is empty: it matches nothing")]
        state = self.states.get(record.id)
        if not self.states.current_file(record):
            return [Warned("source", "the list has no content yet: rules that deny it deny everything")]
        return [] if state.entries else [Warned("source", "what was fetched has no entries: the list matches nothing")]

    def check(self, record: DestinationList, target: str) -> Checked:
        """What a list says about a target: a host, `host:port` or a URL. Raises `Invalid`."""
        host, literal = _host(target)
        content = self._content(record)
        if record.kind != DOMAINS and not literal:
            what = "a database" if record.kind == GEO else f"a list of {record.kind}"
            raise Invalid("target", f"must have an IP address: {what} matches addresses, not names")
        if not isinstance(content, CompiledList):
            found = content.find(unmapped(ip_address(host)))
            return Checked(None) if found is None else Checked(*found)
        if record.kind == DOMAINS:
            return Checked(None if literal else content.by_name(host))
        return Checked(content.by_address(unmapped(ip_address(host))))

    def _content(self, record: DestinationList) -> CompiledList | PlaceDatabase:
        file = self.states.current_file(record)
        found = self._open.get(file)
        if found is not None:
            return found
        try:
            if not file:
                raise ListDamaged("it has no content yet")
            content = opened(self.states.folder / file, record.kind)
        except (ListDamaged, OSError) as error:
            raise Invalid(None, f"the list {record.name!r} can't be read: {error}") from error
        keep(self._open, file, content, OPEN_MAX)
        return content


def _host(target: str) -> tuple[str, bool]:
    """The host as it is compared with entries, and whether it is an address."""
    try:
        found = read_target(target if target.isascii() else domain_of(target))
    except Refused as refused:
        raise Invalid("target", refused.failure.detail) from refused
    except ValueError as error:
        raise Invalid("target", str(error)) from error
    return found.host.lower().removesuffix("."), found.literal


def _moment(seconds: float) -> str | None:
    return timestamp_text(seconds) if seconds else None
