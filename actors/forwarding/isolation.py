"""What a connection is to all that works for it: it may stop waiting, and it ends alone.

One unforeseen exception in one connection ends that connection, and no other of the proxy.

Everything that the loop calls for a connection (handlers, timers, results) catches exceptions and passes them to
`crashed`: by `isolated`, or in the hottest places by a `try` of its own. All else is crash-only:
an exception there ends the process, and the supervisor starts another.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from actors.bounded import keep

REASON = "proxy_internal_error"
"""The error type of RFC 9209 in the record of such a connection."""
LOGGED_EVERY = 60.0
"""Seconds in which an exception of one place is logged once: an input that raises one may be sent often."""
PLACES_MAX = 64

log = logging.getLogger(__name__)


class Isolated(Protocol):
    """A connection that can be ended by itself."""

    def crashed(self, error: Exception) -> None:
        """End it because of an unforeseen exception."""


class Requester(Protocol):
    """A client connection, in most cases: work off the loop is done for it, and billed for its share of threads."""

    @property
    def client_ip(self) -> str:
        """The client's address; empty for the proxy itself."""

    @property
    def waits(self) -> bool:
        """True while the result is wanted. A client that has ended its side before its turn is taken to be gone."""


class _ProxyItself(NamedTuple):
    client_ip: str = ""
    waits: bool = True


OURSELVES: Requester = _ProxyItself()
"""The proxy itself: for an upstream's address, or for an explanation."""


C = TypeVar("C", bound=Isolated)
P = ParamSpec("P")


def isolated(handler: Callable[Concatenate[C, P], None]) -> Callable[Concatenate[C, P], None]:
    """An exception of the handler ends only the connection that is its first argument."""

    @wraps(handler)
    def guarded(connection: C, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            handler(connection, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - nothing is known of it; it is logged and counted
            connection.crashed(error)

    return guarded


class CrashLog:
    """Logs such exceptions with their traceback, those of one place once in `LOGGED_EVERY` seconds."""

    def __init__(self) -> None:
        self._logged: dict[str, float] = {}

    def add(self, what: str, error: Exception, now: float) -> None:
        """`what` has ended because of `error`; `now` is the loop's clock."""
        place = _place(error)
        last = self._logged.get(place)
        if last is not None and now - last < LOGGED_EVERY:
            log.debug("unforeseen %s at %s ends %s", type(error).__name__, place, what)
            return
        keep(self._logged, place, now, PLACES_MAX)
        log.error("unforeseen %s at %s ends %s: %s", type(error).__name__, place, what, error, exc_info=error)


def _place(error: Exception) -> str:
    """File and line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else type(error).__name__
