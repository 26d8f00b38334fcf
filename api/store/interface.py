"""What a store of documents does, whatever engine is behind it.

Documents are JSON-like maps with a string `id`, in named collections. Commits are numbered, whichever documents they
change; the number of the commit is the document's `revision` from then on. So a follower that remembers one number can
ask what changed since, and a writer that read revision 7 can insist on it.

Errors: everything that a store raises is a `StoreError`.

==================  ================================================================================================
`StoreDamaged`      a file is unreadable, altered or gone; nothing was opened, and nothing in it was changed
`StoreTooNew`       the files were written by a later release
`StoreWriteError`   the disk refused a write; the documents are what they were before
`RevisionConflict`  the document is not at the revision that the writer expected; `actual` 0 means: there is none
`NotStored`         there is no such document
`HistoryPruned`     changes were asked for since a commit after which deletions are forgotten; read everything anew
`CommitRefused`     a commit of another file does not follow the last one of this file; nothing was changed
`LedgerError`       the ledger of the fleet can't be used for this; nothing was changed
`FleetLevel`        nodes of the fleet have releases that don't know a field, or this one a document
`OutcomeUnknown`    the ledger of the fleet has not said in time whether the commit was made
==================  ================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from config import OperatorError

T = TypeVar("T")
Predicate = Callable[[Mapping[str, Any]], bool]


class StoreError(OperatorError):
    """The store can't be opened, read or written; the text says what is wrong and where."""


class StoreDamaged(StoreError):
    """A file is cut short, altered or missing."""


class StoreTooNew(StoreError):
    """The files have a schema version that this release doesn't know."""


class StoreWriteError(StoreError):
    """A write didn't reach the disk; memory and disk still hold the state before it."""


class RevisionConflict(StoreError):
    """The document is at revision `actual` (0: it doesn't exist), not at `expected`."""

    def __init__(self, collection: str, identifier: str, expected: int, actual: int) -> None:
        super().__init__(f"{collection}/{identifier} is at revision {actual}, not {expected}")
        self.expected = expected
        self.actual = actual


class SignInEnded(RevisionConflict):
    """Another node has ended this sign-in, or renewed it, while that was done here."""


class NotStored(StoreError):
    """There is no document `identifier` in `collection`."""

    def __init__(self, collection: str, identifier: str) -> None:
        super().__init__(f"{collection}/{identifier} does not exist")
        self.collection = collection
        self.identifier = identifier


class HistoryPruned(StoreError):
    """Deletions up to the commit `horizon` are forgotten; changes since an earlier one would be incomplete."""

    def __init__(self, horizon: int) -> None:
        super().__init__(f"changes are known since step {horizon}")
        self.horizon = horizon


class CommitRefused(StoreError):
    """A commit of another file does not follow the last one of this file."""


class LedgerError(StoreError):
    """The ledger of the fleet can't be used for this, now or as it is; nothing was changed."""


class FleetLevel(StoreError):
    """Nodes of the fleet, by their names, have a release that does not know these fields; nothing was changed.

    Without fields the document is one that this release does not know itself.
    """

    def __init__(self, text: str, level: int, nodes: Sequence[str] = (), fields: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.level = level
        self.nodes = tuple(nodes)
        self.fields = tuple(fields)


class OutcomeUnknown(StoreError):
    """Whether the commit with this number was made could not be learnt in time."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        super().__init__("the database did not respond in time: it is not known yet whether the change was made")


@dataclass(frozen=True, slots=True)
class Document:
    """A stored document. `body` is the reader's own copy, with its `id` in it."""

    id: str
    revision: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """The last thing that happened to a document; `body` is None when that was its deletion."""

    collection: str
    id: str
    revision: int
    body: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Write:
    """One change among several: `body` under its `id`, or None for a deletion. `expect` as in `Store.put`.

    All have one but those of documents that are never merged, sign-ins and credentials: their deletion holds for good.
    """

    collection: str
    id: str
    body: Mapping[str, Any] | None
    expect: int | None = None


ATTEMPTS = 50
"""Of a change that other changes of the same documents overtake."""


def repeated(change: Callable[[], T]) -> T:
    """What a change returns that reads documents and expects them to be as it has read them.

    It is made anew while others come between, and raises `RevisionConflict` when they always do.
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(RevisionConflict):
            return change()
    return change()


class Store(Protocol):
    """The store. All methods may be called from any thread; what has returned is durable.

    Reading waits for no writer: it gives what the last durable commit left.
    """

    @property
    def revision(self) -> int:
        """The number of the last commit."""
        ...

    def get(self, collection: str, identifier: str) -> Document | None:
        """The document, or None."""
        ...

    def revision_of(self, collection: str, identifier: str) -> int:
        """The revision of the document, 0 when there is none: what was made of it once is good while this stays."""
        ...

    def find(self, collection: str, where: Predicate | None = None, **fields: Any) -> list[Document]:
        """The documents for which `where` holds and whose top-level fields equal `fields`, oldest change first.

        `where` gets the store's own copy and must not alter it.
        """
        ...

    def every(self, collection: str) -> list[Document]:
        """All documents, in no order. What their bodies contain is the store's own and must not be altered."""
        ...

    def put(self, collection: str, document: Mapping[str, Any], expect: int | None = None) -> Document:
        """Store `document`, whole, under its `id`. With `expect`, only if that is its revision now (0: it is new).

        Raises `RevisionConflict`, `StoreWriteError`.
        """
        ...

    def delete(self, collection: str, identifier: str, expect: int | None = None) -> int:
        """Remove a document; the number of this commit. Raises `NotStored`, `RevisionConflict`, `StoreWriteError`."""
        ...

    def commit(self, writes: Sequence[Write]) -> int:
        """Make all of the changes, or none of them, even if the machine stops in the middle; the commit's number.

        Raises as `put` and `delete`, and then nothing was changed.
        """
        ...

    def changed(self, since: int, collection: str | None = None) -> list[Change]:
        """What changed after the commit `since`, of this collection or of all, in order, each document once.

        Raises `HistoryPruned`.
        """
        ...

    def check(self) -> None:
        """Raise `StoreError` when the store can't be relied on at this moment."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...
