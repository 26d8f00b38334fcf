"""CURVE for the live feed: a subscriber from elsewhere authenticates by its key, and what it receives is encrypted.

The server's key is a file of its own, made when it is first needed; the subscribers' public keys stand in the
configuration. ZeroMQ authenticates connections by ZAP (ZeroMQ RFC 27), whose requests are handled here in the loop: a
connection whose key isn't listed, or that doesn't speak CURVE, receives nothing and is closed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import zmq
from zmq.utils import z85

from actors.bus.loop import Loop, new_socket
from actors.throttled_log import Throttle
from config.files.keyfile import make_key, read_key

log = logging.getLogger(__name__)

ZAP = "inproc://zeromq.zap.01"
_QUEUED_MAX = 1_000
_CURVE_FRAMES = 9
"""Of a request: routing id, delimiter, version, request id, domain, address, identity, mechanism, key."""


class KeyPair(NamedTuple):
    """Z85, 40 characters each."""

    public: str
    secret: str


def server_keys(file: Path) -> KeyPair:
    """The keys in `file`, which is made when there is none; beside it (`.pub`) lies the public one, to be handed out.

    Raises `OSError`, `config.files.keyfile.KeyFileError` and `config.files.paths.PathError`.
    """
    if not file.exists():
        make_key(file)
    secret = z85.encode(read_key(file))
    public = zmq.curve_public(secret).decode()
    public_file = file.with_suffix(".pub")
    if not public_file.exists() or public_file.read_text(encoding="ascii") != public + "\n":
        public_file.write_text(public + "\n", encoding="ascii")
    return KeyPair(public, secret.decode())


class ZapAuthenticator:
    """Accepts connections to the CURVE sockets of `context` by their keys; see `allow`. `clock` is monotonic."""

    def __init__(self, loop: Loop, context: zmq.Context[Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._loop = loop
        self._allowed: frozenset[bytes] = frozenset()
        self._rejected = 0
        self._rejections = Throttle(clock=clock)
        self._socket = new_socket(context, zmq.ROUTER, _QUEUED_MAX)
        self._socket.bind(ZAP)
        loop.attach(self._socket, self._on_request)

    def allow(self, keys: Iterable[str]) -> None:
        """Accept these public keys (Z85), and no others, from now on."""
        self._allowed = frozenset(z85.decode(each) for each in keys)

    def close(self) -> None:
        """Accept no more connections."""
        self._loop.detach(self._socket)
        self._socket.close(linger=0)

    def _on_request(self, frames: list[bytes]) -> None:
        if len(frames) < _CURVE_FRAMES - 1:
            return  # not from ZeroMQ
        peer, delimiter, version, number, _domain, address, _identity, mechanism, *credentials = frames
        known = mechanism == b"CURVE" and len(credentials) == 1 and credentials[0] in self._allowed
        if not known:
            self._log_rejection(address.decode("ascii", "replace"))
        status = (b"200", b"OK") if known else (b"400", b"this key may not subscribe")
        self._loop.send(self._socket, [peer, delimiter, version, number, *status, b"", b""])

    def _log_rejection(self, address: str) -> None:
        """Once a minute at most: anyone can try as often as they like."""
        self._rejected += 1
        if self._rejections.due():
            text = "metrics.publish: rejected %d subscribers without a known key, the last from %s"
            log.warning(text, self._rejected, address)
            self._rejected = 0
