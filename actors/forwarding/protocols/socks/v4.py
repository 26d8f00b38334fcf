"""SOCKS4 (Ying-Da Lee, "SOCKS: A protocol for TCP proxy across firewalls") and 4a, without sockets.

The request is the whole handshake: VN, CD, DSTPORT, DSTIP, USERID, NUL; with DSTIP 0.0.0.x (4a) a name and NUL behind
it. The USERID is checked where one is required; every rejection is 91. A USERID is no secret and only says who the
client claims to be, unless it is the secret of a credential.
"""

from __future__ import annotations

from typing import Final

from actors.forwarding.protocols.commands import Command
from actors.forwarding.protocols.failures import Failure, Refused, malformed
from actors.forwarding.protocols.http.targets import Authority, authority_of_literal, authority_of_name
from actors.forwarding.protocols.session import SessionConfig
from actors.forwarding.protocols.socks.replies import UNKNOWN_COMMAND, v4_failed, v4_granted
from actors.forwarding.protocols.socks.session import SocksOperation, SocksSession
from actors.forwarding.protocols.socks.states import SocksPhase
from actors.net.socks_wire import Endpoint

VERSION: Final = 4
USERID_MAX: Final = 512
NAME_MAX: Final = 255
_FIXED: Final = 8

REJECTION = v4_failed()
"""The reply to a client that is not served, before its request is read."""


class Socks4Session(SocksSession):
    """A client that speaks SOCKS4 or 4a."""

    __slots__ = ()

    def __init__(self, config: SessionConfig, now: float) -> None:
        super().__init__(config, now, SocksPhase.REQUEST)

    def _step(self, out: list[Command]) -> bool:
        buffered = self._in
        if buffered and buffered[0] != VERSION:
            raise malformed("this is not SOCKS4")
        if len(buffered) >= 2 and buffered[1] not in (1, 2):
            raise Refused(UNKNOWN_COMMAND)
        if len(buffered) < _FIXED:
            return False
        self._operation = SocksOperation(buffered[1])
        user_end = self._text_end(_FIXED, USERID_MAX)
        if user_end < 0:
            return False
        user = bytes(buffered[_FIXED:user_end])
        found = self._destination(user_end + 1)
        if found is None:
            return False
        target, end = found
        self._consume(end)
        self._request(self._operation, target)
        if self._config.wants_credentials or self._config.accepts_optional_user:
            self._check(_decoded(user), None, out)
        else:
            self._begin(self._operation, target, out)
        return True

    def _destination(self, at: int) -> tuple[Authority, int] | None:
        """The target and the index behind the request; None when the name is not there whole."""
        buffered = self._in
        port, address = int.from_bytes(buffered[2:4], "big"), bytes(buffered[4:8])
        if address[:3] != b"\0\0\0" or not address[3]:
            return authority_of_literal(address, port), at
        end = self._text_end(at, NAME_MAX)
        if end < 0:
            return None
        return authority_of_name(bytes(buffered[at:end]), port), end + 1

    def _text_end(self, start: int, longest: int) -> int:
        """The index of the NUL that ends the text at `start`; -1 when it hasn't come yet."""
        end = self._in.find(0, start, start + longest + 1)
        if end < 0 and len(self._in) > start + longest:
            raise malformed("a text of the request is too long")
        return end

    def _admitted(self, out: list[Command]) -> None:
        if self._operation is not None and self._target is not None:
            self._begin(self._operation, self._target, out)

    def _granted(self, bound: Endpoint) -> bytes:
        return v4_granted(bound)

    def _rejection(self, _failure: Failure) -> bytes:
        other_protocol = self._operation is None and self._in[0] != VERSION
        return b"" if other_protocol else v4_failed()


def _decoded(user: bytes) -> str | None:
    try:
        return user.decode() or None
    except UnicodeDecodeError:
        return None
