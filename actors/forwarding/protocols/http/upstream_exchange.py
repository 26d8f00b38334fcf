"""A request in absolute-form and the upstream proxies that it is sent to: whether another one may have it.

Only what may be repeated is sent again: nothing with a body, which is gone then, and after anything but a 407 only
idempotent methods (RFC 9110 9.2.2), since the upstream may have passed the request on.
"""

from __future__ import annotations

from typing import Final

from actors.forwarding.protocols.commands import Again, Command, UpstreamRefused, UpstreamResponded
from actors.forwarding.protocols.failures import UPSTREAM_REFUSES_US, AskAnotherUpstream, Refused, UpstreamRefusesUs
from actors.forwarding.protocols.http.head_parser import RequestHead, ResponseHead
from actors.forwarding.protocols.http.own_responses import is_own, names_target

UPSTREAMS_TRIED: Final = 3
"""So many upstreams may refuse our credentials for one request until its client gets a 502."""

IDEMPOTENT: Final = frozenset((b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"))
"""Methods of requests that may be sent twice."""


class UpstreamExchange:
    """One request. `in_use`: it is at an upstream in absolute-form now."""

    __slots__ = ("_again", "_head", "_refused", "in_use")

    def __init__(self, head: RequestHead) -> None:
        self._head = head
        self._again: Again | None = None
        self._refused = 0
        self.in_use = False

    def sent(self, in_use: bool, again: Again | None) -> None:
        """The head is sent, once more perhaps. `again` as for `Session.opened`."""
        self.in_use, self._again = in_use, again

    def may_retry(self, interim: bool) -> bool:
        """An upstream has rejected our credentials: may another one have it? `interim`: the client has had a 1xx."""
        self._refused += 1
        return self._refused < UPSTREAMS_TRIED and self._is_repeatable(407, interim)

    def check(self, response: ResponseHead, interim: bool, out: list[Command]) -> None:
        """Look at a response with an error.

        Raises `UpstreamRefusesUs` and `AskAnotherUpstream`, after which another upstream may be asked, and `Refused`.
        """
        status, again = response.status, self._again
        if again is None:
            if status == 407:
                out.append(UpstreamRefused())
                raise UpstreamRefusesUs(UPSTREAM_REFUSES_US)
            return
        if not is_own(response):
            return
        if status == 407:
            out.append(UpstreamRefused())
        else:
            out.append(UpstreamResponded(status, names_target(response)))
        if self._is_repeatable(status, interim) and again(status):
            raise AskAnotherUpstream
        if status == 407:
            raise Refused(UPSTREAM_REFUSES_US)

    def lost(self, interim: bool, out: list[Command]) -> bool:
        """The connection has ended without a response: whether another upstream is asked."""
        if not self.in_use or self._again is None or not self._is_repeatable(0, interim) or not self._again(0):
            return False
        out.append(UpstreamResponded(0))
        return True

    def _is_repeatable(self, status: int, interim: bool) -> bool:
        fields = self._head.fields
        if fields.chunked or fields.length or interim:
            return False
        return status == 407 or (self._head.method in IDEMPOTENT and not fields.expects)

    def __repr__(self) -> str:
        return f"<UpstreamExchange, in use: {self.in_use}, refused {self._refused} times>"
