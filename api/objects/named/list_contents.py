"""The contents of lists: what is known about those that are fetched, and the compiled files.

The state of a list or a pool with a source is a small file beside the compiled one. It says which file is current, how
it was fetched, and what went wrong since. Both files are replaced whole, so after a crash the list has its old content
or the new one.

A list with entries of its own is compiled before it is stored, so that the file is there for who gets the change. One
that was stored elsewhere is compiled before proxies get it, one of a restored backup in the rounds of
`api.objects.named.list_fetches`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Iterable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from actors.bounded import keep
from actors.forwarding.protocols.failures import Refused
from actors.forwarding.protocols.http.targets import read_target
from actors.lists.compiled import CompiledList, ListDamaged
from actors.lists.compiler import domain_of
from actors.lists.files import (
    UPSTREAMS,
    compile_entries,
    file_of_entries,
    is_older,
    is_whole,
    list_of_file,
    opened,
    remove_outdated,
)
from actors.lists.reading import DOMAINS
from api.errors import Invalid
from api.store import StoreWriteError
from config.files.durable import replace_file
from config.model.proxy_parts import FieldWarning
from config.model.shared_objects.lists import DestinationList
from config.model.shared_objects.pools import Pool
from config.net.addresses import unmapped
from config.net.entries import GEO
from config.text.formatting import timestamp_text

if TYPE_CHECKING:
    from actors.lists.places import PlaceDatabase


log = logging.getLogger(__name__)


Sourced = DestinationList | Pool
"""What may have a source."""


def fetched_kind(record: Sourced) -> str:
    """What is fetched: the kind of the list, or upstreams."""
    return UPSTREAMS if isinstance(record, Pool) else record.kind


class ListState(BaseModel):
    """The content is `file`, of `kind` and read as `form` from `url` (or a path); empty: there is none. Of a pool it
    is the digest of its upstreams, which are in the store.

    Times are Unix seconds.
    `fetched_at` is when the source was last found to have this content, 0 for never; `next_at` when it is asked again.
    `asked` is the source that was requested last, `failures` how often in a row that has failed, `last_error` why.
    `examples` are lines that were skipped: number, text and why.
    """

    model_config = ConfigDict(frozen=True)

    file: str = ""
    kind: str = ""
    url: str = ""
    form: str = ""
    etag: str = ""
    last_modified: str = ""
    entries: int = 0
    skipped: int = 0
    examples: list[tuple[int, str, str]] = []
    fetched_at: float = 0.0
    next_at: float = 0.0
    asked: str = ""
    failures: int = 0
    last_error: str = ""

    def is_of(self, record: Sourced) -> bool:
        """Whether the content is of the present source of the list."""
        source = record.source
        return source is not None and (self.kind, self.url, self.form) == (
            fetched_kind(record),
            source.place,
            source.form,
        )

    def has_asked(self, record: Sourced) -> bool:
        """Whether the last request was to the present source of the list."""
        return self.asked == asked(record)


def asked(record: Sourced) -> str:
    """The source of a list or a pool as a state remembers it."""
    source = record.source
    if source is None:
        return ""
    sent = f" {hashlib.sha256(json.dumps(source.headers).encode()).hexdigest()}" if source.headers else ""
    return f"{fetched_kind(record)} {source.form} {source.place}{sent}"


class ListStates:
    """The states of lists in the folder of lists, which no other process writes. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, ListState] = {}
        self._files: dict[str, tuple[tuple[float, str, int], str]] = {}

    def get(self, list_id: str) -> ListState:
        """The state of a list; one without content where there is none, or where it can't be read."""
        known = self._known.get(list_id)
        if known is None:
            known = self._known[list_id] = self._read(self._path(list_id))
        return known

    def _read(self, path: Path) -> ListState:
        try:
            return ListState.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return ListState()
        except (OSError, ValidationError) as error:
            log.error("%s can't be read, the list is fetched anew: %s", path, error)
            return ListState()

    def put(self, list_id: str, state: ListState) -> None:
        """Store it. Raises `OSError`."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        replace_file(self._path(list_id), state.model_dump_json().encode())
        self._known[list_id] = state

    def remember(self, list_id: str, state: ListState) -> None:
        """Have it without storing it."""
        self._known[list_id] = state

    def forget(self, list_id: str) -> None:
        """The list is gone, and so is its file."""
        self._known.pop(list_id, None)

    def keep_only(self, ids: Collection[str]) -> None:
        """Forget all lists but these."""
        for known in (self._known, self._files):
            for list_id in list(known):
                if list_id not in ids:
                    known.pop(list_id, None)

    def current_file(self, record: DestinationList) -> str:
        """The name of the compiled file of a list; empty while it has no content.

        Until another source was fetched, the content of the previous one holds, if it is of the same kind.
        """
        if record.source is None:
            return self._file_of_entries(record)
        state = self.get(record.id)
        return state.file if state.kind == record.kind else ""

    def _file_of_entries(self, record: DestinationList) -> str:
        """Remembered, since it takes milliseconds for many entries."""
        known = self._files.get(record.id)
        if known is None or known[0] != (record.updated_at, record.kind, len(record.entries)):
            file = file_of_entries(record.id, record.kind, record.entries)
            known = self._files[record.id] = (record.updated_at, record.kind, len(record.entries)), file
        return known[1]

    def _path(self, list_id: str) -> Path:
        return self.folder / f"{list_id}.json"


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

    def warnings(self, record: DestinationList) -> list[FieldWarning]:
        """Why the list may do less than it seems to."""
        if record.source is None:
            return [] if record.entries else [FieldWarning("entries", "the list is empty: it matches nothing")]
        state = self.states.get(record.id)
        if not self.states.current_file(record):
            return [FieldWarning("source", "the list has no content yet: rules that deny it deny everything")]
        if state.entries:
            return []
        return [FieldWarning("source", "what was fetched has no entries: the list matches nothing")]

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
