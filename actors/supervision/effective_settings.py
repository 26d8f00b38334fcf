"""The effective settings: the operator's configuration with the overrides made through the API on top.

The base is read at the start and again at SIGHUP; some of its keys hold until the next start (`UNTIL_RESTART`), so a
fresh base keeps the old values of those, and the API reports what is effective.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from config.settings.loading import UNTIL_RESTART, EffectiveValue, Origins, Reading, described, waiting
from config.settings.runtime import Stored, merge, overlay
from config.settings.settings import Settings

log = logging.getLogger(__name__)


@dataclass(slots=True)
class EffectiveSettings:
    """`now` is effective. Raises `config.settings.runtime.InvalidOverride` when `stored` is invalid."""

    base: Settings
    stored: Stored
    now: Settings
    origins: Origins = field(default_factory=Origins)
    latest: Reading | None = None
    """The configuration as it was read last, with what waits for a restart."""

    @classmethod
    def of(cls, base: Settings, stored: Stored, origins: Origins | None = None) -> EffectiveSettings:
        """At the start."""
        return cls(base, stored, with_overrides(base, stored), origins or Origins())

    def preview(self, stored: Stored) -> Settings:
        """The effective settings with `stored` as overrides."""
        return with_overrides(self.base, stored)

    def put(self, stored: Stored) -> None:
        """Make `stored` the overrides."""
        self.now = self.preview(stored)
        self.stored = stored

    def reread(self, fresh: Settings, origins: Origins | None = None) -> list[str]:
        """Make `fresh` the configuration; returns the keys that have changed and wait for a restart."""
        names = [name for name in UNTIL_RESTART if _value(fresh, name) != _value(self.base, name)]
        self.latest = Reading(fresh, origins or Origins())
        self.base = _keeping(fresh, self.base, names)
        self.origins = self.latest.origins.but(self.origins, waiting(self.base, fresh))
        self.now = self.preview(self.stored)
        return names

    def described(self) -> list[EffectiveValue]:
        """Each key with its value, the source of it, and what a change needs; without those of the first start."""
        found = described(Reading(self.base, self.origins), self.stored, self.now, self.latest)
        return [each for each in found if each.change != "first_start"]


def with_overrides(base: Settings, stored: Stored) -> Settings:
    """`base` with `stored` on top. Raises `config.settings.runtime.InvalidOverride`."""
    return base.model_copy(update=dict(overlay(base, stored)))


def shadowed_keys(base: Settings, stored: Stored) -> list[str]:
    """A sentence for each key whose value in the configuration differs from its override."""
    found = []
    for group, values in stored.items():
        for key, value in values.items():
            shadowed = _value(base, f"{group}.{key}")
            if shadowed != value:
                found.append(f"{group}.{key} is {value!r} as set through the API; the configuration says {shadowed!r}")
    return found


def _keeping(fresh: Settings, before: Settings, names: list[str]) -> Settings:
    updates: dict[str, Any] = {name: _value(before, name) for name in names if "." not in name}
    kept: Stored = {}
    for name in names:
        group, _, key = name.partition(".")
        if key:
            kept = merge(kept, {group: {key: _value(before, name)}})
    for group, values in kept.items():
        updates[group] = getattr(fresh, group).model_copy(update=values)
    return fresh.model_copy(update=updates)


def _value(settings: Settings, name: str) -> Any:
    group, _, key = name.partition(".")
    return getattr(getattr(settings, group), key) if key else getattr(settings, group)
