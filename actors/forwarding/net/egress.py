"""Where the connections of a proxy leave from, and from where each request does.

The first that has entries decides: a rule of a policy, the plan of the account, `bind_address` of the proxy.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from actors.bus.loop import Loop
from actors.forwarding.net.source_address import SourceAddress, choice_of, plain_source
from actors.state.choices import SharedChoices
from actors.state.live_state import LiveState

if TYPE_CHECKING:
    from actors.bus.messages.specs import AccountSpec, ProxySpec
    from actors.forwarding.policies.judge import PolicyVerdict

BIND_ADDRESS: Final = "bind_address"
PLAN: Final = "egress of the plan"

SESSION: Final = "session"
ACCOUNT: Final = "account"

TTL_LEAST: Final = 1.0


class Requested(NamedTuple):
    """Who sends a request: what its source address may go by. What is empty is not there.

    `session` is that of its user name, `rotate` asks for another address, and `ttl` is how many seconds a session stays
    there since its last use.
    """

    client_ip: str
    user: str = ""
    session: str = ""
    rotate: bool = False
    ttl: float = 600.0


class Stated(NamedTuple):
    """The entries that a request leaves from, and what of the configuration says so."""

    entries: tuple[str, ...]
    rule: str


class Sources:
    """Where the connections of one proxy leave from."""

    def __init__(self, loop: Loop, state: LiveState | None = None) -> None:
        self._loop = loop
        self.address = ""
        """The one address that the proxy has, if it is not one of several."""
        self.entries: tuple[str, ...] = ()
        """The addresses and networks of the proxy, where there is a choice."""
        self.policy = "random"
        self._turns = SharedChoices(state or LiveState(lambda: loop.now), "egress")
        """That a session has left its own address: what stands for the one that it has, and until when."""

    def configure(self, spec: ProxySpec) -> bool:
        """Take a configuration. Returns whether it says anything else than the one before."""
        before = self.address, self.entries, self.policy
        self.address, self.entries, self.policy = after = spec.bind_address, spec.egress, spec.bind_policy
        return after != before

    @property
    def own(self) -> SourceAddress:
        """Where what belongs to no request leaves from: one address of each family, always the same."""
        return _choose(Stated(self.entries, BIND_ADDRESS), "") if self.entries else plain_source(self.address)

    def stated(self, verdict: PolicyVerdict | None, account: AccountSpec | None) -> Stated:
        """What decides about a request, without entries where nothing does; `verdict` is that of the policies."""
        applied = None if verdict is None else verdict.egress
        if applied is not None:
            return Stated(applied.rule.spec.egress, applied.entry)
        if account is not None and account.egress:
            return Stated(account.egress, PLAN)
        return Stated(self.entries, BIND_ADDRESS)

    def source(self, stated: Stated, requested: Requested, account: AccountSpec | None) -> SourceAddress:
        """Where a request leaves from by entries that there are."""
        if requested.rotate and requested.session and self.policy == SESSION:
            self._rotate(_session(requested))
        return _choose(stated, self.key(requested._replace(rotate=requested.rotate and not requested.session), account))

    def explained(self, stated: Stated, requested: Requested, account: AccountSpec | None) -> SourceAddress:
        """As `source`, without any effect; a session that is to rotate has no address yet."""
        return _choose(stated, self.key(requested, account, used=False))

    def key(self, requested: Requested, account: AccountSpec | None, used: bool = True) -> str | None:
        """What has the same address each time; None: at random. `used`: it is for a request, not for an explanation."""
        if self.policy == SESSION and not requested.rotate:
            if not requested.session:
                return f"client {requested.client_ip}"
            return self._of_session(_session(requested), requested.ttl, used)
        if self.policy == ACCOUNT:
            if account is not None:
                return f"account {account.id}"
            return f"user {requested.user}" if requested.user else f"client {requested.client_ip}"
        return None

    def _of_session(self, session: str, ttl: float, used: bool) -> str:
        """The key of a session, with its turn if it has left its own address and was used since."""
        turn, until = self._turns.choice(session_digest(session))
        if not turn or until < self._loop.now:
            return session
        if used:
            self._turns.keep(session_digest(session), turn, self._loop.now + ttl)
        return f"{session}\0{turn:016x}"

    def _rotate(self, session: str) -> None:
        self._turns.keep(session_digest(session), secrets.randbits(64) or 1, self._loop.now + TTL_LEAST)

    def __repr__(self) -> str:
        return f"<Sources: {self.policy} of {self.entries or self.address or 'any'}>"


def session_digest(session: str) -> bytes:
    """What stands for a session in all processes."""
    return blake2b(session.encode("utf-8", "surrogateescape"), digest_size=16).digest()


def _session(requested: Requested) -> str:
    return f"session {requested.user}\0{requested.session}"


def _choose(stated: Stated, key: str | None) -> SourceAddress:
    """The addresses of a key; None: at random."""
    return choice_of(stated.entries).choose(key, stated.rule)
