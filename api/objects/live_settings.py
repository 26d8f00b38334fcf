"""The settings that are changed through the API: what is stored, and how a change becomes effective.

In this order, so that a change is made whole or not at all: the supervisor validates it, the store has it, and, as what
follows from each commit of it, the supervisor applies it everywhere. Should the product end between the last two, the
next start finds it in the store.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
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
from api.store import Store, repeated
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


def read_stored(store: Store) -> Stored:
    """The settings changed through the API."""
    document = store.get(COLLECTION, DOCUMENT)
    return {} if document is None else stored_of(document.body)


class LiveSettings:
    """Reads and changes. Thread-safe.

    `effective` gives the settings as they are, `apply` is called with the supervisor's reply to a change.
    `update` and `unset` raise `Invalid`, `NotFound`, `StaleRevision`, `PeerUnavailable` and `StoreWriteError`.
    """

    def __init__(
        self,
        store: Store,
        bridge: Bridge,
        publish: Callable[[str, dict[str, Any]], None],
        effective: Callable[[], Grouped],
        apply: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._store = store
        self._bridge = bridge
        self._publish = publish
        self._effective = effective
        self._apply = apply
        self.lock = threading.Lock()
        """Holds up all changes of settings."""

    def view(self) -> SettingsView:
        """The effective settings. The ETag depends on them, too: the configuration file may have been read again."""
        document = self._store.get(COLLECTION, DOCUMENT)
        groups = visible_settings(self._effective())
        content = json.dumps([document.revision if document else 0, groups], sort_keys=True).encode()
        return SettingsView(groups, int.from_bytes(hashlib.sha256(content).digest()[:7]))

    def sources(self) -> tuple[dict[str, Any], ...]:
        """Each key of the configuration with the source of its value, as `config.settings.loading.EffectiveValue`.

        Raises `PeerUnavailable`: the supervisor alone reads the configuration.
        """
        return request(self._bridge, SUPERVISOR, DescribeSettings(), SettingSources).settings

    def update(self, body: SettingsUpdate, if_match: int | None) -> SettingsView:
        """The effective settings after the change."""

        def change() -> tuple[SettingsView, Stored]:
            expect = self._store.revision_of(COLLECTION, DOCUMENT)
            before = self._matching(if_match)
            changed = changes(self._effective(), body)
            if not changed:
                return before, changed
            return self._store_validated(merge(read_stored(self._store), changed), expect), changed

        with self.lock:
            after, changed = repeated(change)
        if changed:
            self.publish_change(changed)
        return after

    def unset(self, name: str, if_match: int | None) -> SettingsView:
        """Delete the override of `group.key`, and return as `update` does; without an override nothing is changed."""
        group, _, key = name.partition(".")

        def change() -> tuple[SettingsView, Stored]:
            expect = self._store.revision_of(COLLECTION, DOCUMENT)
            if key not in self.view().groups.get(group, {}):
                raise NotFound("The setting")
            before = self._matching(if_match)
            stored = read_stored(self._store)
            if key not in stored.get(group, {}):
                return before, {}
            return self._store_validated(without(stored, group, key), expect), {group: {key: None}}

        with self.lock:
            after, changed = repeated(change)
        if changed:
            self.publish_change(changed)
        return after

    def publish_change(self, changed: Stored) -> None:
        """Publish the event about a change."""
        names = sorted(f"{group}.{key}" for group, keys in changed.items() for key in keys)
        self._publish("settings.updated", {"changed": names, "source": "api"})

    def _matching(self, if_match: int | None) -> SettingsView:
        current = self.view()
        if if_match not in (None, current.revision):
            raise StaleRevision(current.revision)
        return current

    def _store_validated(self, overrides: Stored, expect: int) -> SettingsView:
        self.validate(overrides)
        self._store.put(COLLECTION, {"id": DOCUMENT, **overrides}, expect)
        return self.view()

    def validate(self, stored: Stored) -> None:
        """Raise `Invalid` when these overrides can't be applied, and `PeerUnavailable`."""
        reply: Any = request(self._bridge, SUPERVISOR, ValidateSettings(stored), Done, Failed)
        if isinstance(reply, Failed):
            raise Invalid(None, reply.error)

    def apply(self) -> None:
        """Make the overrides in the store effective everywhere before this returns. Raises `PeerUnavailable`."""
        overrides = ApplyOverrides(read_stored(self._store))
        self._apply(request(self._bridge, SUPERVISOR, overrides, ApplySettings).groups)
