"""The settings that are changed through the API: what is stored, and how a change becomes effective.

In this order, so that a change is made whole or not at all: the supervisor validates it, the store has it, and, as what
follows from each commit of it, the supervisor applies it everywhere. Should the product end between the last two, the
next start finds it in the store.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from actors.bus.messages.common import SUPERVISOR, ApplySettings, Done, Failed
from actors.bus.messages.supervision import (
    ApplyOverrides,
    DescribeSettings,
    SettingSources,
    ValidateSettings,
)
from api.bus_bridge import Bridge, request
from api.errors import Invalid, NotFound, StaleRevision
from api.history.document_changes import DocumentChange
from api.objects.nodes.fleet_nodes import FleetNodes
from api.store import FleetStore, Store, repeated
from config.model.object_fields import Named, names_of_settings
from config.settings.runtime import (
    LIVE_GROUPS,
    Grouped,
    SettingsUpdate,
    Stored,
    changes,
    merge,
    visible_settings,
    without,
)

COLLECTION = "settings"
DOCUMENT = "settings"


@dataclass(frozen=True, slots=True)
class SettingsView:
    """The five groups of effective settings, and their ETag."""

    groups: dict[str, dict[str, Any]]
    revision: int


def stored_of(body: Mapping[str, Any]) -> Stored:
    """The settings in a document of the collection `settings`."""
    return {name: dict(body[name]) for name in LIVE_GROUPS if body.get(name)}


def read_stored(store: Store, identifier: str = DOCUMENT) -> Stored:
    """The settings changed through the API: those of all nodes, or with the id of one those of that one alone."""
    document = store.get(COLLECTION, identifier)
    return {} if document is None else stored_of(document.body)


def read_overrides(store: Store, node_id: str | None) -> Stored:
    """What was changed through the API for this node; for this machine without one."""
    stored = read_stored(store)
    return stored if node_id is None else merge(stored, read_stored(store, node_id))


class LiveSettings:
    """Reads and changes. Thread-safe.

    `effective` gives the settings as they are, `apply` is called with the supervisor's reply to a change.
    `refuse_unknown` raises `Invalid` for names of no object, `objects_lock` holds up changes of these.
    `update` and `unset` raise `Invalid`, `NotFound`, `StaleRevision`, `PeerUnavailable` and `StoreWriteError`.
    """

    def __init__(
        self,
        store: FleetStore,
        bridge: Bridge,
        publish: Callable[[str, dict[str, Any]], None],
        effective: Callable[[], Grouped],
        apply: Callable[[Mapping[str, Any]], None],
        nodes: FleetNodes,
        refuse_unknown: Callable[[Iterable[Named]], None],
        objects_lock: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._store = store
        self._bridge = bridge
        self._publish = publish
        self._effective = effective
        self._apply = apply
        self._nodes = nodes
        self._refuse_unknown = refuse_unknown
        self._objects_lock = objects_lock
        self.lock = threading.Lock()
        """Holds up all changes of settings."""

    def view(self, node: str | None = None) -> SettingsView:
        """The effective settings, here or on the node with this name or id.

        The ETag depends on them, too: the configuration file may have been read again. Raises `NotAFleet`, `NotFound`.
        """
        return self._view(self._document_of(node), node is not None)

    def _view(self, document: str, of_node: bool) -> SettingsView:
        groups = visible_settings(self._effective())
        if of_node and document != self._nodes.this_id:
            known = self._known(document)
            groups = {name: {**each, **known[name]} for name, each in groups.items()}
        revision = self._store.revision_of(COLLECTION, document)
        content = json.dumps([revision, groups], sort_keys=True).encode()
        return SettingsView(groups, int.from_bytes(hashlib.sha256(content).digest()[:7]))

    def _document_of(self, node: str | None) -> str:
        return DOCUMENT if node is None else self._nodes.named(node).id

    def _known(self, document: str) -> dict[str, dict[str, Any]]:
        """The values that a change of this document would alter, as far as this node knows them.

        What is set for this node alone hides what its file has.
        """
        groups, this = visible_settings(self._effective()), self._nodes.this_id
        if this in (None, document):
            return groups
        stored = read_stored(self._store)
        hidden = read_stored(self._store, this or "")
        found = {name: {key: value for key, value in each.items() if key not in hidden.get(name, ())}
                 for name, each in groups.items()}  # fmt: skip
        for each in (stored, {} if document == DOCUMENT else read_stored(self._store, document)):
            found = {name: {**values, **each.get(name, {})} for name, values in found.items()}
        return found

    def sources(self) -> tuple[dict[str, Any], ...]:
        """Each key of the configuration with the source of its value, as `config.settings.loading.EffectiveValue`.

        Raises `PeerUnavailable`: the supervisor alone reads the configuration.
        """
        return request(self._bridge, SUPERVISOR, DescribeSettings(), SettingSources).settings

    def update(self, body: SettingsUpdate, if_match: int | None, node: str | None = None) -> SettingsView:
        """The effective settings after the change, of all nodes or of one."""
        document, of_node = self._document_of(node), node is not None
        if not of_node and body.server is not None and self._nodes.are_several:
            raise Invalid("server", "differs by node: give the query parameter node")

        def change() -> tuple[SettingsView, Stored]:
            expect = self._store.revision_of(COLLECTION, document)
            before = self._matching(document, of_node, if_match)
            changed = changes(self._known(document), body)
            if not changed:
                return before, changed
            with self._there(tuple(names_of_settings(changed))):
                after = self._store_validated(document, of_node, merge(self._read(document), changed), expect)
            return after, changed

        with self.lock:
            after, changed = repeated(change)
        if changed:
            self.publish_change(changed)
        return after

    def unset(self, name: str, if_match: int | None, node: str | None = None) -> SettingsView:
        """Delete the override of `group.key`, and return as `update` does; without an override nothing is changed."""
        document, of_node = self._document_of(node), node is not None
        group, _, key = name.partition(".")

        def change() -> tuple[SettingsView, Stored]:
            expect = self._store.revision_of(COLLECTION, document)
            if key not in self._view(document, of_node).groups.get(group, {}):
                raise NotFound("The setting")
            before = self._matching(document, of_node, if_match)
            stored = self._read(document)
            if key not in stored.get(group, {}):
                return before, {}
            after = self._store_validated(document, of_node, without(stored, group, key), expect)
            return after, {group: {key: None}}

        with self.lock:
            after, changed = repeated(change)
        if changed:
            self.publish_change(changed)
        return after

    @contextmanager
    def _there(self, named: Iterable[Named]) -> Iterator[None]:
        """These objects are there, and stay until the settings that are to name them are stored."""
        if not named:
            yield
            return
        with self._objects_lock(), self._store.rechecked(lambda: self._refuse_unknown(named)):
            self._refuse_unknown(named)
            yield

    def names(self) -> Iterator[tuple[str, Named]]:
        """The objects that settings name, each with the name of the node whose settings these are; empty: of all.

        What the configuration of another node says is known to that alone.
        """
        known = set[Named]()
        for document in self._store.find(COLLECTION):
            node = None if document.id == DOCUMENT else self._nodes.records.get(document.id)
            for each in names_of_settings(stored_of(document.body)):
                known.add(each)
                yield "" if node is None else node.record.name, each
        for each in names_of_settings(visible_settings(self._effective())):
            if each not in known:
                yield "", each

    def publish_change(self, changed: Stored) -> None:
        """Publish the event about a change."""
        names = sorted(f"{group}.{key}" for group, keys in changed.items() for key in keys)
        self._publish("settings.updated", {"changed": names, "source": "api"})

    def _read(self, document: str) -> Stored:
        return read_stored(self._store, document)

    def _matching(self, document: str, of_node: bool, if_match: int | None) -> SettingsView:
        current = self._view(document, of_node)
        if if_match not in (None, current.revision):
            raise StaleRevision(current.revision)
        return current

    def _store_validated(self, document: str, of_node: bool, overrides: Stored, expect: int) -> SettingsView:
        this = self._nodes.this_id
        if document == DOCUMENT and this is not None:
            self.validate(merge(overrides, self._read(this)))
        else:
            self.validate(merge(self._read(DOCUMENT), overrides) if of_node else overrides)
        self._store.put(COLLECTION, {"id": document, **overrides}, expect)
        return self._view(document, of_node)

    def validate(self, stored: Stored) -> None:
        """Raise `Invalid` when these overrides can't be applied, and `PeerUnavailable`."""
        reply: Any = request(self._bridge, SUPERVISOR, ValidateSettings(stored), Done, Failed)
        if isinstance(reply, Failed):
            raise Invalid(None, reply.error)

    def concerns(self, change: DocumentChange) -> bool:
        """Whether a change has an effect here."""
        return change.id in (DOCUMENT, self._nodes.this_id)

    def needs_objects(self, change: DocumentChange) -> bool:
        """Whether it concerns this machine, and processes have to know objects before it is applied."""
        return self.concerns(change) and any(names_of_settings(stored_of(change.after or {})))

    def needs_none(self, change: DocumentChange) -> bool:
        """Whether it concerns this machine, and is to be applied before processes forget objects."""
        return self.concerns(change) and not self.needs_objects(change)

    def apply(self) -> None:
        """Make the overrides in the store effective everywhere before this returns. Raises `PeerUnavailable`."""
        overrides = ApplyOverrides(read_overrides(self._store, self._nodes.this_id))
        self._apply(request(self._bridge, SUPERVISOR, overrides, ApplySettings).groups)
