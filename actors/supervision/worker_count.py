"""How many workers a proxy has on this machine."""

from __future__ import annotations

from actors.bus.messages.specs import ProxySpec
from config.workers import resolved


def worker_count(spec: ProxySpec) -> int:
    """The number of workers that the proxy is to have."""
    return resolved(spec.workers)
