"""Values that many callers use, each made by one thread at a time while others get the one before."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

STALE = 5.0
"""Seconds beyond its time that a value is still used while it is made anew."""
VALUES = 100
"""Values that are cached, of kinds of callers and of what they ask for."""


@dataclass(slots=True)
class _Value:
    made_at: float = -math.inf
    value: Any = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, max_age: float, make: Callable[[], Any]) -> Any:
        age = time.monotonic() - self.made_at
        if age < max_age or (age < max_age + STALE and self.lock.locked()):
            return self.value
        with self.lock:
            if time.monotonic() - self.made_at >= max_age:
                self.value = make()
                self.made_at = time.monotonic()
        return self.value

    def at_once(self, fresh: float, max_age: float, make: Callable[[], Any]) -> Any:
        if fresh <= time.monotonic() - self.made_at < max_age and not self.lock.locked():
            threading.Thread(target=self.get, args=(fresh, make), name="made-anew", daemon=True).start()
        return self.get(max_age, make)


class SharedValues:
    """Those with a key. Thread-safe."""

    def __init__(self) -> None:
        self._values: dict[Hashable, _Value] = {}

    def get(self, key: Hashable, max_age: float, make: Callable[[], Any]) -> Any:
        """The value, not older than `max_age` seconds, or the one before while another thread makes it."""
        return self._value(key).get(max_age, make)

    def at_once(self, key: Hashable, fresh: float, max_age: float, make: Callable[[], Any]) -> Any:
        """The value, not older than `max_age` seconds. Another thread makes one anew that is older than `fresh`."""
        return self._value(key).at_once(fresh, max_age, make)

    def _value(self, key: Hashable) -> _Value:
        found = self._values.get(key)
        if found is None:
            if len(self._values) >= VALUES:
                self._values.clear()
            found = self._values.setdefault(key, _Value())
        return found
