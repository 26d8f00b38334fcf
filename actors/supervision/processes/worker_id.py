"""Which process of a proxy is meant, whatever its instance: the proxy and an index."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Worker:
    """One of the processes that serve a proxy at the same time; `index` counts from 0."""

    proxy_id: str
    index: int = 0


NO_PROXY = Worker("")
"""That of an actor which belongs to no proxy."""
