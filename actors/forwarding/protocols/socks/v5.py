"""SOCKS5 (RFC 1928) with user names and passwords (RFC 1929), without sockets.

The greeting is replied to with method 0 or 2, or with `05 FF` and the end; user name and password with status 0, or
with status 1 and the end; the request with a reply. Read strictly: the version octets are 5, 1 and 5, reserved octets
0, counts of names and passwords not 0 (a credential's secret needs no name). A client that begins with another version
gets no reply.
"""

from __future__ import annotations

from typing import Final

from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import Command, is_secret
from actors.forwarding.protocols.failures import Failure, Refused, malformed
from actors.forwarding.protocols.session import SessionConfig
from actors.forwarding.protocols.socks.replies import (
    UNKNOWN_ADDRESS_TYPE,
    UNKNOWN_COMMAND,
    read_address,
    read_source,
    v5_failed,
    v5_granted,
)
from actors.forwarding.protocols.socks.session import SocksOperation, SocksSession
from actors.forwarding.protocols.socks.states import AUTH, GREETING, PASSWORD, SocksEvent, SocksPhase
from actors.net.socks_wire import Endpoint

VERSION: Final = 5
NO_CREDENTIALS, USERNAME_PASSWORD, NOTHING_ACCEPTABLE = 0, 2, 0xFF
ADMITTED, NOT_ADMITTED = b"\x01\x00", b"\x01\x01"
_ADDRESS_TYPES: Final = (1, 3, 4)

REJECTION = bytes((VERSION, NOTHING_ACCEPTABLE))
"""The reply to a client that is not served, before its greeting is read."""


class Socks5Session(SocksSession):
    """A client that speaks SOCKS5."""

    __slots__ = ()

    def __init__(self, config: SessionConfig, now: float) -> None:
        super().__init__(config, now, SocksPhase.GREETING)

    def _step(self, out: list[Command]) -> bool:
        if self.phase is GREETING:
            return self._greeting(out)
        if self.phase is PASSWORD:
            return self._credentials(out)
        return self._whole_request(out)

    def _greeting(self, out: list[Command]) -> bool:
        buffered = self._in
        if buffered and buffered[0] != VERSION:
            raise malformed("this is not SOCKS5")
        if len(buffered) < 2 or len(buffered) < 2 + buffered[1]:
            return False
        methods = self._consume(2 + buffered[1])[2:]
        config = self._config
        with_user = config.wants_credentials or (config.accepts_optional_user and USERNAME_PASSWORD in methods)
        method = USERNAME_PASSWORD if with_user else NO_CREDENTIALS
        if method not in methods:
            raise Refused(failures.CREDENTIALS_WANTED)
        self._send(bytes((VERSION, method)), out)
        self._on(SocksEvent.PASSWORD if method else SocksEvent.NO_CREDENTIALS)
        return True

    def _credentials(self, out: list[Command]) -> bool:
        """Version 1, ULEN, UNAME, PLEN, PASSWD (RFC 1929 section 2)."""
        buffered = self._in
        if buffered and buffered[0] != 1:
            raise malformed("this is not the sub-negotiation of RFC 1929")
        if len(buffered) < 2 or len(buffered) < 3 + buffered[1]:
            return False
        name_end = 2 + buffered[1]
        if len(buffered) < name_end + 1 + buffered[name_end]:
            return False
        message = self._consume(name_end + 1 + buffered[name_end])
        name, password = message[2:name_end], message[name_end + 1 :]
        if not password or not (name or is_secret(password)):
            raise malformed("a user name and a password have at least one octet")
        try:
            user = name.decode()
        except UnicodeDecodeError:
            raise Refused(failures.CREDENTIALS_WRONG) from None
        self._check(user, password, out)
        return True

    def _admitted(self, out: list[Command]) -> None:
        self._send(ADMITTED, out)

    def _whole_request(self, out: list[Command]) -> bool:
        """VER, CMD, RSV, then an address (RFC 1928 section 4)."""
        buffered = self._in
        if buffered and buffered[0] != VERSION:
            raise malformed("the request is not of version 5")
        if len(buffered) < 4:
            return False
        if not 1 <= buffered[1] <= 3:
            raise Refused(UNKNOWN_COMMAND)
        if buffered[2]:
            raise malformed("a reserved octet is not 0")
        if buffered[3] not in _ADDRESS_TYPES:
            raise Refused(UNKNOWN_ADDRESS_TYPE)
        self._operation = SocksOperation(buffered[1])
        found = (read_source if self._operation is SocksOperation.UDP else read_address)(buffered, 3)
        if found is None:
            return False
        target, end = found
        self._consume(end)
        self._request(self._operation, target)
        self._begin(self._operation, target, out)
        return True

    def _granted(self, bound: Endpoint) -> bytes:
        return v5_granted(bound)

    def _rejection(self, failure: Failure, /) -> bytes:
        if self.phase is GREETING:
            return REJECTION if failure is failures.CREDENTIALS_WANTED else b""
        if self.phase in (PASSWORD, AUTH):
            return NOT_ADMITTED
        return v5_failed(failure)
