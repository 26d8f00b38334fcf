"""A check whether an HTTP upstream accepts our credentials, by a request that goes no further than the upstream.

`OPTIONS` with `Max-Forwards: 0` is for the upstream itself to respond to (RFC 9110 section 7.6.2), and its target is a
name that never resolves (RFC 6761 section 6.4), for upstreams that know nothing of this. Any response but 407 will do:
an upstream that rejects OPTIONS may serve all else.
"""

from __future__ import annotations

from actors.forwarding.protocols.http.head_parser import ResponseHead
from actors.forwarding.protocols.http.targets import authority_of_name
from actors.forwarding.upstreams.handshake import wrong_credentials
from actors.forwarding.upstreams.http_connect import ConnectHandshake, credentials_field

WANTS_OTHERS = "it responds 407: it wants other credentials"
NOWHERE = authority_of_name(b"check.invalid", 80)


class CredentialsProbe(ConnectHandshake):
    """Reads as for CONNECT; done with the first final response that isn't 407."""

    def __init__(self, username: str | None, password: str | None) -> None:
        super().__init__(NOWHERE, credentials_field(username, password), b"")
        self.target_sent = False

    def begin(self) -> bytes:
        """The request."""
        head = b"OPTIONS http://%b/ HTTP/1.1\r\nHost: %b\r\nMax-Forwards: 0\r\nConnection: close\r\n%b\r\n"
        return head % (NOWHERE.text, NOWHERE.text, self._credentials)

    def _check(self, response: ResponseHead) -> None:
        if response.status == 407:
            raise wrong_credentials(WANTS_OTHERS)
