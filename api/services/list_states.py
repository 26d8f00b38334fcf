"""What is known about the content of a list or a pool that is fetched: a small file beside the compiled one.

It says which file is current, how it was fetched, and what went wrong since. Both files are replaced whole, so after a
crash the list has its old content or the new one.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from actors.lists.files import UPSTREAMS, file_of_entries
from config.files.durable import replace_file
from config.model.lists import DestinationList
from config.model.pools import Pool

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

        Until another source was fetched, the content of the former one holds, if it is of the same kind.
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
