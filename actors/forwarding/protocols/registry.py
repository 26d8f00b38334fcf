"""The sessions by the words of `protocol`, and the reply to a client that is rejected before it is read."""

from __future__ import annotations

from collections.abc import Callable

from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.error_body import UNKNOWN, Asker, dated, error_response
from actors.forwarding.protocols.http.session import HttpSession
from actors.forwarding.protocols.mixed import MixedSession
from actors.forwarding.protocols.session import Session, SessionConfig
from actors.forwarding.protocols.socks import v4, v5

_SESSIONS: dict[str, Callable[[SessionConfig, float], Session]] = {
    "http": HttpSession,
    "https": HttpSession,
    "socks4": v4.Socks4Session,
    "socks5": v5.Socks5Session,
    "mixed": MixedSession,
}
_REJECTIONS = {"socks4": v4.REJECTION, "socks5": v5.REJECTION}


def new_session(protocol: str, config: SessionConfig, now: float) -> Session:
    """The session of a new client connection."""
    return _SESSIONS[protocol](config, now)


def rejection_reply(protocol: str, failure: Failure, date: bytes, asker: Asker = UNKNOWN) -> bytes:
    """The reply to a client that is rejected before anything of it is read; `date` is the line for HTTP, and `asker`
    what there is to say in its body.

    On `mixed` it is that of HTTP: SOCKS clients end at its first byte, which is no version of theirs.
    """
    return _REJECTIONS.get(protocol) or dated(error_response(failure, asker, keep_alive=False), date)
