"""A check what an HTTP upstream itself says, of our credentials first of all, by a request that goes no further.

`OPTIONS` with `Max-Forwards: 0` is for the upstream itself to respond to (RFC 9110 section 7.6.2), and its target is a
name that never resolves (RFC 6761 section 6.4), for upstreams that know nothing of this. Any response but 407 will do:
an upstream that rejects OPTIONS may serve all else. Where an origin's response suggested that the upstream refuses to
serve us, the same refusal here confirms it.
"""

from __future__ import annotations

from actors.forwarding.protocols.http.head_parser import ResponseHead
from actors.forwarding.protocols.http.own_responses import retry_after
from actors.forwarding.protocols.http.targets import authority_of_name
from actors.forwarding.upstreams.handshake import Blame, UpstreamFailed, wrong_credentials
from actors.forwarding.upstreams.http_connect import NOT_NOW, ConnectHandshake, credentials_field

WANTS_OTHERS = "it responds 407: it wants other credentials"
NOWHERE = authority_of_name(b"check.invalid", 80)


class CredentialsProbe(ConnectHandshake):
    """Reads as for CONNECT; done with the first final response that isn't 407 and doesn't confirm `suspected`, a
    status."""

    def __init__(self, username: str | None, password: str | None, suspected: int = 407) -> None:
        super().__init__(NOWHERE, credentials_field(username, password), b"")
        self.target_sent = False
        self._suspected = suspected

    def begin(self) -> bytes:
        """The request."""
        head = b"OPTIONS http://%b/ HTTP/1.1\r\nHost: %b\r\nMax-Forwards: 0\r\nConnection: close\r\n%b\r\n"
        return head % (NOWHERE.text, NOWHERE.text, self._credentials)

    def _check(self, response: ResponseHead) -> None:
        if response.status == 407:
            raise wrong_credentials(WANTS_OTHERS)
        status = response.status
        if status == self._suspected == 429 or (status >= 500 and self._suspected >= 500):
            cause = f"it responds {status}, as it seemed to before"
            raise UpstreamFailed(Blame.UPSTREAM, NOT_NOW, cause, status, retry_after(response))
