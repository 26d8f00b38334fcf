"""The client's side of SOCKS4, SOCKS4a and SOCKS5 (RFC 1928, RFC 1929): CONNECT, names resolved by the upstream."""

from __future__ import annotations

import socket
from collections.abc import Callable

from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.forwarding.upstreams.handshake import Blame, HandshakeStep, UpstreamFailed, unusable, wrong_credentials
from actors.net.socks_wire import IPV4, IPV6, NAME, pack_address

NO_AUTHENTICATION, USERNAME_PASSWORD, NONE_ACCEPTABLE = 0, 2, 255

_UNFIT = Failure(502, "proxy_configuration_error", "the upstream proxy can't reach a target of this kind")

_V5_REPLIES = {
    2: Failure(403, "http_request_denied", "the upstream proxy refuses this target"),
    3: Failure(502, "destination_ip_unroutable", "the upstream proxy has no way to this target"),
    4: Failure(502, "destination_unavailable", "the upstream proxy can't reach this target"),
    5: Failure(502, "connection_refused", "the target refuses the upstream proxy's connection"),
    6: Failure(504, "connection_timeout", "the target did not respond to the upstream proxy in time"),
}
"""Reply codes that are about the target (RFC 1928 section 6)."""


class Socks4Handshake:
    """CONNECT to `target`; names go as SOCKS4a. IPv6 addresses can't be written: `UpstreamFailed`, at once."""

    def __init__(self, target: Authority, username: str | None) -> None:
        if target.literal and ":" in target.host:
            raise UpstreamFailed(Blame.UNFIT, _UNFIT, "socks4 has no IPv6 addresses")
        self._target = target
        self._username = username
        self._reply = b""
        self.target_sent = True

    def begin(self) -> bytes:
        """The request."""
        target = self._target
        literal = target.literal
        address = socket.inet_aton(target.host) if literal else b"\0\0\0\x01"
        name = b"" if literal else target.host.encode("ascii") + b"\0"
        user = (self._username or "").encode()
        return b"\x04\x01" + target.port.to_bytes(2, "big") + address + user + b"\0" + name

    def feed(self, data: bytes) -> HandshakeStep:
        """The reply of eight octets. Raises `UpstreamFailed`."""
        taken = data[: 8 - len(self._reply)]
        self._reply += taken
        if self._reply[:1] not in (b"", b"\0"):
            raise unusable("its reply is not SOCKS4")
        if len(self._reply) < 8:
            return HandshakeStep(len(taken))
        code = self._reply[1]
        if code in (92, 93):
            raise wrong_credentials(f"it replies {code}: it doesn't accept the user id")
        if code == 91:
            failure = Failure(502, "destination_unavailable", "the upstream proxy refuses or can't reach this target")
            raise UpstreamFailed(Blame.UNCLEAR, failure, "it replies 91: rejected or failed")
        if code != 90:
            raise unusable(f"its reply is not SOCKS4: code {code}")
        return HandshakeStep(len(taken), done=True)

    def __repr__(self) -> str:
        return f"<Socks4Handshake to {self._target.text!r}, {len(self._reply)} bytes of the reply>"


class Socks5Handshake:
    """The greeting, credentials where the upstream wants them, and CONNECT to `target`.

    Without a target it ends with the authentication: that is a check whether the upstream works.
    """

    def __init__(self, target: Authority | None, username: str | None, password: str | None) -> None:
        self._target = target
        self._username = username
        self._password = password
        self._message = b""
        self._size = 2
        self._read: Callable[[int], HandshakeStep] = self._read_method
        self.target_sent = False

    def begin(self) -> bytes:
        """The greeting: no authentication, and user and password when there are some."""
        return b"\x05\x01\x00" if self._username is None else b"\x05\x02\x00\x02"

    def feed(self, data: bytes) -> HandshakeStep:
        """Octets of the upstream, up to the end of the message that is awaited. Raises `UpstreamFailed`."""
        taken = data[: self._size - len(self._message)]
        self._message += taken
        if self._message[0] != 5 and self._read != self._read_auth_status:
            raise unusable("its reply is not SOCKS5")
        if len(self._message) < self._size:
            return HandshakeStep(len(taken))
        return self._read(len(taken))

    def _await(self, size: int, read: Callable[[int], HandshakeStep]) -> None:
        """The next message has so many octets; `read` is called with how many of them came last."""
        self._message, self._size, self._read = b"", size, read

    def _read_method(self, used: int) -> HandshakeStep:
        method = self._message[1]
        if method == NO_AUTHENTICATION:
            return self._request(used)
        if method == USERNAME_PASSWORD and self._username is not None:
            self._await(2, self._read_auth_status)
            return HandshakeStep(used, self._credentials())
        if method in (NONE_ACCEPTABLE, USERNAME_PASSWORD):
            raise wrong_credentials("it accepts none of our ways to authenticate")
        raise unusable(f"it chooses the method {method}, which was not offered")

    def _credentials(self) -> bytes:
        user, password = (self._username or "").encode(), (self._password or "").encode()
        return b"\x01" + bytes((len(user),)) + user + bytes((len(password),)) + password

    def _read_auth_status(self, used: int) -> HandshakeStep:
        version, status = self._message
        if version not in (1, 5):  # some write the version of SOCKS here
            raise unusable("its reply to the credentials is not RFC 1929's")
        if status != 0:
            raise wrong_credentials("it doesn't accept the user name and password")
        return self._request(used)

    def _request(self, used: int) -> HandshakeStep:
        target = self._target
        if target is None:
            return HandshakeStep(used, done=True)
        if target.literal:
            address = pack_address((target.host, target.port))
        else:
            name = target.host.encode("ascii")
            address = bytes((NAME, len(name))) + name + target.port.to_bytes(2, "big")
        self._await(5, self._read_start_of_reply)
        self.target_sent = True
        return HandshakeStep(used, b"\x05\x01\x00" + address)

    def _read_start_of_reply(self, used: int) -> HandshakeStep:
        _version, code, reserved, kind, first = self._message
        if code != 0:
            raise _refused(code)
        if reserved != 0 or kind not in (IPV4, IPV6, NAME):
            raise unusable("the address in its reply is not SOCKS5's")
        self._await(2 + {IPV4: 4, IPV6: 16, NAME: 1 + first}[kind], self._read_rest_of_reply)
        self._message = b"\x05"  # stands for what was read of the address
        return HandshakeStep(used)

    def _read_rest_of_reply(self, used: int) -> HandshakeStep:
        return HandshakeStep(used, done=True)

    def __repr__(self) -> str:
        return f"<Socks5Handshake to {self._target!r}, {len(self._message)} of {self._size} bytes>"


def _refused(code: int) -> UpstreamFailed:
    cause = f"it replies {code}"
    if code in _V5_REPLIES:
        return UpstreamFailed(Blame.TARGET, _V5_REPLIES[code], cause)
    if code == 8:
        return UpstreamFailed(Blame.UNFIT, _UNFIT, cause + ": address type not supported")
    failure = Failure(502, "destination_unavailable", "the upstream proxy failed to reach this target")
    return UpstreamFailed(Blame.UNCLEAR, failure, cause + ": general failure" if code == 1 else cause)
