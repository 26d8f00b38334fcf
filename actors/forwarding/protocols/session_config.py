"""The part of a proxy's configuration that its sessions use, whatever they speak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from actors.forwarding.protocols.failures import PROXY_NAME

HANDSHAKE_TIMEOUT = 10.0
"""Seconds that a client may take for all that comes before a request: a PROXY header, TLS, credentials, its head."""


@dataclass(slots=True)
class SessionConfig:
    """Shared by all sessions of a proxy, and changed in place: so a change holds for the next request of each, however
    many there are. What was agreed on with a client stays agreed on. Times are seconds.

    `accepts_optional_user`: no credentials are wanted, but a user name that comes all the same may choose an upstream.
    `date` returns the `Date` line of a response at a time of the session's clock. `pseudonym` names this very proxy, so
    that chains of proxyfleet proxies are no loops; `via` is what is added to `Via` behind the version, empty for
    nothing. `new_id` makes the id of a record before there is one, for responses that name it; `contact` is whom
    clients may ask, a URL or a mail address, empty for none.
    """

    keep_alive: bool = True
    wants_credentials: bool = False
    accepts_optional_user: bool = False
    timeout: float = 30.0
    handshake_timeout: float = HANDSHAKE_TIMEOUT
    keep_alive_timeout: float = 60.0
    date: Callable[[float], bytes] = lambda _now: b""
    new_id: Callable[[], str] = lambda: ""
    contact: str = ""
    pseudonym: bytes = PROXY_NAME.encode()
    via: bytes = PROXY_NAME.encode()

    def become(self, other: SessionConfig) -> None:
        """Say the same as `other`, to all sessions that have this one."""
        for field in fields(self):
            setattr(self, field.name, getattr(other, field.name))
