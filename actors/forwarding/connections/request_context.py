"""What belongs to one request of a client connection, and to none before or after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from actors.forwarding.access.test_clients import Tester
from actors.forwarding.access.username_parameters import NO_PARAMETERS
from actors.forwarding.connections.bound_origin import Served
from actors.forwarding.protocols.http.targets import Authority
from actors.forwarding.upstream import AnyUpstream

if TYPE_CHECKING:
    from actors.accounts.records import CredentialRecord
    from actors.forwarding.access.peer_certificate import PeerCertificate
    from actors.forwarding.policies.judge import Judge


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
