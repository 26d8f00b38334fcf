"""The settings that are changed through the API: what is stored, and how a change comes into force.

In this order, so that a change is either whole or never was: the supervisor says whether it could be (and binds a new
address), the store has it, the supervisor puts it in force everywhere. Should the product die between the last two, the
next start finds it in the store.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from actors.bus.messages.common import SUPERVISOR, ApplySettings, Done, Failed
from actors.bus.messages.supervision import ApplyOverrides, ListenerRefused, ValidateSettings
from api.bus_bridge import Bridge, reason_of, request
from api.errors import Invalid, NotFound, PeerUnavailable, StaleRevision
from api.store import Store
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
class Shown:
    """The four groups as they are in force, and their ETag."""

    groups: dict[str, dict[str, Any]]
    revision: int


def stored_of(body: Mapping[str, Any]) -> Stored:
    """What a document of the collection `settings` says."""
    return {name: dict(body[name]) for name in LIVE_GROUPS if body.get(name)}


def read_stored(store: Store) -> Stored:
    """What was set through the API."""
    document = store.get(COLLECTION, DOCUMENT)
    return {} if document is None else stored_of(document.body)


class LiveSettings:
    """Reads and changes. Thread-safe.

    `in_force` gives the settings as they are, `apply` is called with the supervisor's answer to a change.
    `update` and `unset` raise `Invalid`, `NotFound`, `StaleRevision`, `PeerUnavailable` and `StoreWriteError`.
    """

    def __init__(
        self,
        store: Store,
        bridge: Bridge,
        publish: Callable[[str, dict[str, Any]], None],
        in_force: Callable[[], Grouped],
        apply: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._store = store
        self._bridge = bridge
        self._publish = publish
        self._in_force = in_force
        self._apply = apply
        self._lock = threading.Lock()

    def show(self) -> Shown:
        """What is in force."""
        document = self._store.get(COLLECTION, DOCUMENT)
        return _shown(self._in_force(), document.revision if document else 0)

    def update(self, body: SettingsUpdate, if_match: int | None) -> tuple[Shown, bool]:
        """What is in force after the change, and whether the API listens somewhere else from now on."""
        with self._lock:
            before = self.show()
            if if_match not in (None, before.revision):
                raise StaleRevision(before.revision)
            changed = self._changes(body)
            if not changed:
                return before, False
            stored = merge(read_stored(self._store), changed)
            self.prepare(stored)
            self._store.put(COLLECTION, {"id": DOCUMENT, **stored})
            self.put_in_force(stored)
            after = self.show()
        self.say(changed)
        return after, moves(changed)

    def unset(self, name: str, if_match: int | None) -> tuple[Shown, bool]:
        """Forget what was set of `group.key`, as `update` changes it; nothing happens when nothing was set."""
        group, _, key = name.partition(".")
        with self._lock:
            before = self.show()
            if key not in before.groups.get(group, {}):
                raise NotFound("The setting")
            if if_match not in (None, before.revision):
                raise StaleRevision(before.revision)
            stored = read_stored(self._store)
            if key not in stored.get(group, {}):
                return before, False
            left = without(stored, group, key)
            self.prepare(left)
            self._store.put(COLLECTION, {"id": DOCUMENT, **left})
            self.put_in_force(left)
            after = self.show()
        self.say({group: {key: None}})
        address = ("host", "port")
        return after, any(before.groups["server"][each] != after.groups["server"][each] for each in address)

    def hold(self) -> AbstractContextManager[Any]:
        """Nobody else changes a setting meanwhile."""
        return self._lock

    def say(self, changed: Stored) -> None:
        """The event about a change."""
        names = sorted(f"{group}.{key}" for group, keys in changed.items() for key in keys)
        self._publish("settings.updated", {"changed": names, "source": "api"})

    def _changes(self, body: SettingsUpdate) -> Stored:
        return changes(self._in_force(), body)

    def prepare(self, stored: Stored) -> None:
        """Could this be in force? A new address of the API is bound. Raises `Invalid`, `PeerUnavailable`."""
        reply = self._bridge.ask(SUPERVISOR, ValidateSettings(stored))
        if isinstance(reply, ListenerRefused):
            raise Invalid(f"server.{reply.field}", reply.error)
        if isinstance(reply, Failed):
            raise Invalid(None, reply.error)
        if not isinstance(reply, Done):
            raise PeerUnavailable(SUPERVISOR, reason_of(reply))

    def put_in_force(self, stored: Stored) -> None:
        """What the store has is in force everywhere when this returns. Raises `PeerUnavailable`."""
        self._apply(request(self._bridge, SUPERVISOR, ApplyOverrides(stored), ApplySettings).groups)


def moves(changed: Stored) -> bool:
    """Does the API listen somewhere else from such a change on?"""
    return bool({"host", "port"} & changed.get("server", {}).keys())


def _shown(settings: Grouped, revision: int) -> Shown:
    """The ETag depends on what is in force, too: the configuration file may have been read again."""
    shown = visible_settings(settings)
    content = json.dumps([revision, shown], sort_keys=True).encode()
    return Shown(shown, int.from_bytes(hashlib.sha256(content).digest()[:7]))
