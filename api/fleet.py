"""What requests and periodic work need of the fleet, whether this installation is a node of one or stands alone.

As the classes are here they are of one machine, which loads nothing of a fleet; `api.cluster` overrides them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol


class Claimed(NamedTuple):
    """Of events of the fleet, by their keys: those that this node is to publish, and those that have been published.

    The others are another node's, and may be claimed again later.
    """

    ours: frozenset[str]
    done: frozenset[str]


NOTHING_CLAIMED = Claimed(frozenset(), frozenset())


NOTHING_PENDING = {"sign_ins": 0, "credentials": 0, "audit": 0, "usage_bytes": 0, "usage_seconds": 0}


class SharedFiles(Protocol):
    """Files that one node makes for all, by their SHA-256 in hex. Waits for the database; raises `StoreError`."""

    def put(self, path: Path) -> str:
        """Have this file for all; its digest. A document has to name it soon, or it is removed."""
        ...

    def get(self, digest: str, path: Path) -> None:
        """The file at `path` is the one with this digest then."""
        ...


@dataclass(frozen=True, slots=True)
class Presence:
    """What the last heartbeat of a node said. Times are Unix seconds of the database, `silent` is how old it is."""

    seen_at: float
    silent: float
    started_at: float
    version: str
    level: int
    revision: int
    """The last commit that it serves, and how old the first is that it does not."""
    behind: float
    clock_offset: float
    problems: Mapping[str, Any] = field(default_factory=dict)
    """By name, what parts of the node report (`ThisNode.add_report`)."""
    is_current: bool = True
    """Whether the database has said so now; else it is what was known when it responded last."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Digests of what must be the same on all nodes, by key."""
        found: Mapping[str, str] = self.problems.get("settings", {})
        return found


class ClaimedRequest(NamedTuple):
    """Whether a request of this mark is this node's to execute; else the sealed response, once there is one."""

    ours: bool
    response: str | None


class OwnRequests:
    """What requests at several nodes share, where one is alone: nothing. `api.cluster.shared_requests` overrides it.

    `pair` and `name` are digests, of a user name with an address and of it alone.
    """

    are_shared = False
    """Whether there are other nodes."""

    def claim(self, mark: str) -> ClaimedRequest | None:  # noqa: ARG002 - the node's own file has them
        """Take a request with this mark; None where this node is alone with it. Waits for the database, a second."""
        return None

    def settle(self, mark: str, sealed: str | None) -> None:
        """What a request that was taken has come to; None gives it back. Waits as `claim`."""

    def making(
        self,
        mark: str,  # noqa: ARG002 - the process alone knows of it
        sealed: str,  # noqa: ARG002
        note: Callable[[], object],  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """Within the block, which executes a request that was taken, a commit of this thread has `sealed` with it.

        That is what the request has come to when the process ends before `settle`. `note` is called before a change
        that is in no commit.
        """
        return nullcontext()

    def count_failure(self, pair: str, name: str, limit: int) -> bool | None:  # noqa: ARG002 - it counts in memory
        """Count a failed sign-in over all nodes: whether it has locked the pair.

        None where this node counts alone. Waits for the database, a second.
        """
        return None

    def locked_for(self, pair: str) -> float:  # noqa: ARG002 - as above
        """Seconds for which the pair is locked by failures at any node."""
        return 0.0

    def forget_failures(self, pairs: Collection[str] = (), names: Collection[str] = ()) -> None:
        """Forget failures of these pairs, or of these names with all locks, at all nodes, soon."""


class OwnDuties:
    """What one node does for all, and which events of all it announces: where one is alone, everything."""

    def has(self, name: str) -> bool:  # noqa: ARG002 - it does everything itself
        """Whether this node does now what one node does for all."""
        return True

    def announces_from(self) -> float:
        """Unix time: what is due since before that was announced by others, or by this installation alone."""
        return float("-inf")

    def claim(self, keys: Iterable[str]) -> Claimed:
        """Which of these events of the fleet this node announces. Waits for the database, a second.

        Who publishes one says so by `announced`. Raises `StoreError`.
        """
        return Claimed(frozenset(keys), frozenset())

    def announced(self, keys: Iterable[str]) -> None:
        """These events have been published. Waits and raises as `claim`."""


class UsageScope(NamedTuple):
    """What a report of usage is of: Unix seconds, by the hour if `by_hour`, else by the day; None: all of them."""

    start: int
    end: int
    by_hour: bool
    proxies: Collection[str] | None = None
    account: str | None = None


UsageOfInterval = tuple[int, Any, Any, int, int, int, int, int]
"""Number of the hour or day; id and last user name of an account, or 0; ids of a proxy and a node, each 0 where it is
not by that; and the figures: bytes in and out, requests, milliseconds and refusals."""


class FleetUsage(Protocol):
    """What accounts have used on all nodes. Waits for the database; raises `StoreError`."""

    def total(self, scope: UsageScope) -> tuple[int, int, int, int, int]:
        """The figures altogether."""
        ...

    def rows(self, scope: UsageScope, groups: Collection[str]) -> Iterator[UsageOfInterval]:
        """Figures by interval and by what is in `groups`: `interval`, `account`, `proxy`, `node`; in that order."""
        ...

    def days(self) -> tuple[int, int] | None:
        """The first and the last day with usage."""
        ...

    def names(self) -> dict[str, str]:
        """The names of nodes by their ids."""
        ...


class NodeFigures(NamedTuple):
    """Of this node, for its metrics. `behind` is None while the database has not said so.

    `unreported` are bytes that were used here and that the database lacks. `commits` is a histogram of how long commits
    of this node took since its start (`actors.histogram`), altogether `commit_seconds`.
    """

    behind: float | None
    is_connected: bool
    is_notified: bool
    unreported: int
    commits: Mapping[int, int]
    commit_seconds: float


class ThisNode:
    """What requests and periodic work ask of this installation as a node: here of one that stands alone.

    Thread-safe. Nothing waits for the database, but what says so. `api.cluster.fleet_node` overrides it.
    """

    node_id: str | None = None
    """The id of this node; None without a fleet."""
    files: SharedFiles | None = None
    """What lists are compiled into by one node; None without a fleet."""
    usage: FleetUsage | None = None
    """What accounts have used on all nodes; None without a fleet."""
    trails: Any = None
    """The audit trails of all nodes (`api.audit.trail.FleetTrails`); None without a fleet."""
    requests = OwnRequests()
    """What requests share with those at other nodes."""
    duties = OwnDuties()
    """What one node does for all."""

    def management_at(self) -> Sequence[str] | None:
        """The addresses of the nodes that have the management API, when this one has none: it is an edge node."""
        return None

    def invitation(self) -> tuple[str, str]:
        """The fingerprint of this node's certificate, and the address at which a machine can ask it to join."""
        return "", ""

    def clock(self) -> float:
        """Unix time, the same on all nodes: that of the database."""
        return time.time()

    def cut_off_for(self) -> float | None:
        """Seconds since the last exchange with the database, when this node is cut off from it."""
        return None

    def wait_for(self, number: int, seconds: float) -> bool:  # noqa: ARG002 - what was committed is served
        """Wait until this node serves the commit with this number; whether it does."""
        return True

    def pending(self) -> dict[str, int]:
        """How many `sign_ins`, `credentials` and entries of the `audit` trail wait here for the database.

        And what was used here that it lacks: `usage_bytes`, and `usage_seconds` since the first of them.
        """
        return {**NOTHING_PENDING}

    def figures(self) -> NodeFigures | None:
        """What its metrics say; None without a fleet. Waits for the database, a second."""
        return None

    def presence(self, fresh: bool = False) -> Mapping[str, Presence]:  # noqa: ARG002 - there is no other node
        """By id, the nodes that have made a heartbeat. Waits for the database, a second.

        In an outage it is what was last known. It is at most a second old, or read now if it is to be `fresh`.
        """
        return {}

    def add_report(self, report: Callable[[], Mapping[str, Any]]) -> None:
        """What this returns goes with each heartbeat, as `Presence.problems`."""

    def have_certificates(self, proxies: Iterable[Mapping[str, Any]]) -> None:
        """These documents of proxies are about to be served: get certificates that only another node has.

        Waits for other nodes, two seconds at most.
        """

    def beat_soon(self) -> None:
        """Something has changed that other nodes are to know now."""

    def remove(self, node_id: str) -> Mapping[str, Any]:
        """End what another node may do: its role in the database, its certificate, its sign-ins.

        Returns what it had that no other node has. May be repeated. Waits for the database. Raises `StoreError`.
        """
        raise NotImplementedError(node_id)  # there is no other
