"""What all connections of one forwarding actor share, and what it counts."""

from __future__ import annotations

import itertools
import os
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from actors.bus.loop import Loop
from actors.bus.messages import EgressSpec, ProxySpec
from actors.bus.records import Row
from actors.forwarding.commands import Report
from actors.forwarding.credentials import Credentials
from actors.forwarding.deadlines import Deadlines, Mortal
from actors.forwarding.dial import Dialer
from actors.forwarding.errors import PROXY_NAME
from actors.forwarding.flow import AnyFlow, CopyingFlow, Flow, PipePool
from actors.forwarding.guard import Guard
from actors.forwarding.http.session import Policy
from actors.forwarding.pool import Pool
from actors.forwarding.protocol import Session
from actors.forwarding.protocols import new_session
from actors.forwarding.resolve import Resolver
from actors.forwarding.transport import Transport
from actors.forwarding.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable

Side = tuple[Transport, int]
"""A connection with its descriptor."""

PIPE_WAIT = 0.1
DENIALS = frozenset(("destination_ip_prohibited", "http_request_denied"))


class Ending(Mortal, Protocol):
    """A connection or a tunnel: it can be ended from outside."""

    def end(self, reason: str) -> None:
        """End it now."""


@dataclass(slots=True)
class Count:
    """Cumulative figures since the actor's start; the fields are those of `messages.Counters`."""

    requests: int = 0
    errors: int = 0
    denied: int = 0
    auth_failures: int = 0
    connections: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    response_seconds: float = 0.0
    last_request: float = 0.0


class Serving:
    """The shared part. `configure` may be called at any time; it holds for new connections."""

    def __init__(self, loop: Loop, add_record: Callable[[Row], None], pool_limit: int, pool_kept: float) -> None:
        self.loop = loop
        self.deadlines = Deadlines(loop)
        self.pipes = PipePool()
        self.workers = Workers(loop)
        self.dialer = Dialer(loop, Resolver(loop, self.workers))
        self.pool = Pool(loop, self.deadlines, pool_limit, pool_kept)
        self.policy = Policy(keep_alive_timeout=pool_kept)
        self.count = Count()
        self.open: set[Ending] = set()
        self.lingering = 0
        self.max_connections = 0
        self.proxy_id = ""
        self.protocol = "http"
        self.credentials: Credentials | None = None
        self.on_empty: Callable[[], None] | None = None
        self._add_record = add_record
        self._spec: ProxySpec | None = None
        self._egress: EgressSpec | None = None
        self._request_ids = itertools.count(1)
        self._id_prefix = os.urandom(6).hex()

    def configure(self, spec: ProxySpec, egress: EgressSpec) -> None:
        """The wish as it is from now on. Sessions under way keep the policy that they began with."""
        if egress != self._egress:
            self._egress = egress
            self.dialer.guard = Guard(egress)
            self.pool.flush()
        if self._spec is None or (spec.auth_username, spec.auth_hash) != (
            self._spec.auth_username,
            self._spec.auth_hash,
        ):
            self.credentials = Credentials(self.loop, self.workers, spec)
        self._spec = spec
        self.proxy_id = spec.id
        self.protocol = spec.protocol
        self.max_connections = spec.max_connections
        self.policy = Policy(
            keep_alive=spec.keep_alive,
            wants_credentials=spec.auth_username is not None,
            timeout=spec.timeout,
            keep_alive_timeout=self.policy.keep_alive_timeout,
            via=f"{PROXY_NAME}-{spec.id[-8:]}".encode(),
        )

    def new_session(self) -> Session:
        """The conversation with a client that has just come, in the proxy's protocol."""
        return new_session(self.protocol, self.policy, self.loop.now)

    def flow(self, source: Side, destination: Side, length: int | None = None) -> AnyFlow:
        """Bulk from one side to the other: by the kernel where it can, else through this process."""
        if isinstance(source[0], socket.socket) and isinstance(destination[0], socket.socket):
            return Flow(self.pipes, source[1], destination[1], length)
        return CopyingFlow(source[0], destination[0], length)

    def wait_for_pipes(self, go_on: Callable[[], None]) -> None:
        """There was no descriptor for a pipe: go on when somebody has given one back."""
        self.dialer.on_trouble("out_of_descriptors", "no descriptor is left for pipes; connections wait")
        self.loop.call_later(PIPE_WAIT, go_on)

    # --- what connections tell ---

    def began(self, connection: Ending) -> None:
        """A client has come."""
        self.count.connections += 1
        self.open.add(connection)

    def ended(self, connection: Ending) -> None:
        """A client has gone."""
        self.open.discard(connection)
        if not self.open and self.on_empty is not None:
            self.on_empty()

    def replaced(self, connection: Ending, tunnel: Ending) -> None:
        """A client's connection has become a tunnel."""
        self.open.discard(connection)
        self.open.add(tunnel)

    def moved(self, count: int, from_client: bool) -> None:
        """The kernel has moved bytes that this process did not see."""
        if from_client:
            self.count.bytes_in += count
        else:
            self.count.bytes_out += count

    def tunnel_ended(self, tunnel: Ending, report: Report) -> None:
        """A tunnel is over."""
        client_ip: str = getattr(tunnel, "client_ip", "")
        self.reported(report, client_ip)
        self.ended(tunnel)

    def reported(self, report: Report, client_ip: str) -> None:
        """An exchange is over: count it and write its access record."""
        count = self.count
        wall = time.time()
        answered = report.answered - report.started if report.answered else 0.0
        count.requests += 1
        count.response_seconds += answered
        count.last_request = wall
        if report.status >= 500:
            count.errors += 1
        if report.reason:
            self._count_refusal(report)
        self._add_record(
            (
                wall,
                "warning" if report.status >= 500 else "info",
                self.proxy_id,
                client_ip,
                report.user,
                report.method.decode("ascii"),
                report.url,
                report.status,
                round(answered * 1000),
                round((self.loop.now - report.started) * 1000),
                report.bytes_in,
                report.bytes_out,
                f"{self._id_prefix}{next(self._request_ids):08x}",
                report.reason,
            )
        )

    def _count_refusal(self, report: Report) -> None:
        if report.status == 407:
            self.count.auth_failures += 1
        if report.reason in DENIALS:
            self.count.denied += 1
