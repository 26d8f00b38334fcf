"""What belongs to one request of a client connection, and to none before or after it.

Origin connections that are authenticated themselves (NTLM, Negotiate: RFC 4559) belong to one client connection.
Between two requests such a connection is parked here and not in the pool. It serves the next request of the same user
to the same target; for any other it is closed. When it ends, the client's connection ends, too (RFC 4559 section 6),
since what the client sends after that would go over a connection that is not authenticated.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from actors.bus.loop import Loop
from actors.forwarding.access.test_clients import Tester
from actors.forwarding.access.username_parameters import NO_PARAMETERS
from actors.forwarding.net.connection_pool import ConnectionPool, OriginConnection
from actors.forwarding.protocols.http.targets import Authority
from actors.pools.upstream import AnyUpstream

if TYPE_CHECKING:
    from actors.accounts.records import CredentialRecord
    from actors.forwarding.access.peer_certificate import PeerCertificate
    from actors.forwarding.policies.judge import Judge

Served = tuple[str, int, str]
"""What a request is for: host, port, and the user of this proxy."""


class BoundOrigin:
    """The place of one client connection for such a connection, from its first one on; none of the pool's serves it.

    `on_lost` is called when the parked connection has ended.
    """

    __slots__ = ("_loop", "_on_lost", "_origin", "_pool", "_served")

    def __init__(self, loop: Loop, pool: ConnectionPool, on_lost: Callable[[], None]) -> None:
        self._loop = loop
        self._pool = pool
        self._on_lost = on_lost
        self._origin: OriginConnection | None = None
        self._served: Served | None = None

    def park(self, origin: OriginConnection, served: Served | None) -> None:
        """Keep a connection whose last exchange ended well, and was for `served`."""
        self._origin = origin
        self._served = served
        origin.readable = False
        self._loop.set_handler(origin.fd, self._on_idle_event)

    def acquire(self, wanted: Served | None, forward: bool) -> OriginConnection | None:
        """The parked connection for the client's next request; closed, and None, when it doesn't serve that one."""
        origin = self._origin
        if origin is not None and origin.epoch == self._pool.epoch and forward and wanted == self._served:
            self._origin = None
            return origin
        self.close()
        return None

    def _on_idle_event(self, mask: int) -> None:
        """It has ended, or sends bytes that respond to no request. An edge of being writable means nothing."""
        origin = self._origin
        if origin is not None and mask & ~select.EPOLLOUT and (origin.plain or not origin.is_reusable):
            self.close()
            self._on_lost()

    def close(self) -> None:
        """Close the parked connection."""
        origin, self._origin = self._origin, None
        if origin is not None:
            self._pool.close(origin)

    def __repr__(self) -> str:
        return f"<BoundOrigin for {self._served}: {'in use or closed' if self._origin is None else 'parked'}>"


Suspects = tuple[tuple[AnyUpstream, int, str], ...]


class Tries(NamedTuple):
    """The upstreams of a pool that a request was sent to in vain.

    `suspects` have failed in a way that may be the target's fault: each with the status, 0 without one, and the cause.
    """

    tried: tuple[AnyUpstream, ...] = ()
    suspects: Suspects = ()


NO_TRIES: Final = Tries()


class RequestContext:
    """Made new for each request, as soon as the one before has been reported."""

    __slots__ = (
        "admitted",
        "asked_at",
        "certificate",
        "credential",
        "failures",
        "judge",
        "name_alone",
        "named",
        "parameters",
        "pool",
        "target",
        "tester",
        "tries",
        "upstream",
        "user",
        "verified_hash",
    )

    def __init__(self) -> None:
        self.user = ""
        """The authenticated user; empty where there is none, or not yet."""
        self.verified_hash: bytes | None = None
        """The hash that the user's password was checked against; None when no credentials were wanted."""
        self.credential: CredentialRecord | None = None
        """The credential whose secret came in place of the password."""
        self.name_alone: str | None = None
        """The user name that came where the protocol has no passwords; None elsewhere."""
        self.certificate: PeerCertificate | None = None
        """The client's certificate, if that has authenticated it."""
        self.tester: Tester | None = None
        """The test of the API that sends it, if it is one."""
        self.named = ""
        """The account in the user name that came with parameters; empty where it came as a credential's secret."""
        self.parameters = NO_PARAMETERS
        """The parameters in the user name."""
        self.target: Authority | None = None
        self.admitted = False
        """Whether credentials, account and limits have admitted it already: it may be sent twice."""
        self.judge: Judge | None = None
        """What judges it, where the proxy has policies."""
        self.pool = ""
        """The pool whose upstreams a policy has chosen for it; empty: those of the proxy."""
        self.upstream: AnyUpstream | None = None
        """The upstream that it goes through, if any."""
        self.asked_at = 0.0
        """When that began to be connected to for it, or a kept connection got it."""
        self.failures: Sequence[tuple[AnyUpstream, str]] = ()
        """The upstreams that it was sent to in vain, whatever is tried again, and what each did."""
        self.tries = NO_TRIES
        """What upstreams of a pool have made of it."""

    @property
    def target_text(self) -> str:
        """`host:port`, with an IPv6 address in brackets; empty without a target."""
        target = self.target
        if target is None:
            return ""
        return f"[{target.host}]:{target.port}" if ":" in target.host else f"{target.host}:{target.port}"

    @property
    def by_name(self) -> bool:
        """Whether the user name alone has authenticated it."""
        return bool(self.user) and self.name_alone == self.user

    @property
    def session_key(self) -> str | None:
        """The session of its user name, with the account; None without one."""
        session = self.parameters.session
        return None if session is None else f"{self.named or self.user}\0{session}"

    @property
    def credential_id(self) -> str:
        """Empty without a credential."""
        return "" if self.credential is None else self.credential.id

    @property
    def served(self) -> Served | None:
        """What an origin connection of its own would be kept for."""
        target = self.target
        return None if target is None else (target.host, target.port, self.user)

    def __repr__(self) -> str:
        return f"<RequestContext of {self.user or 'no user'} for {self.target and self.target.text!r}>"
