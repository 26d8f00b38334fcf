"""The live feed: programs on this machine subscribe to metrics and events (docs/metrics.md).

A message is one frame with the topic and one with a msgpack map. A slow subscriber loses messages and delays no other.
All that the socket receives are subscriptions, and their number has a bound. The socket is an XPUB, so that only what
was subscribed to is packed. (Not in manual mode: there the garbage of one peer can cost another its subscription.) With
keys of subscribers it speaks CURVE (`actors.metrics.live_feed`), else it is for this machine alone.

CURVE for the live feed: a subscriber from elsewhere authenticates by its key, and what it receives is encrypted. The
server's key is a file of its own, made when it is first needed; the subscribers' public keys stand in the
configuration. ZeroMQ authenticates connections by ZAP (ZeroMQ RFC 27), whose requests are handled here in the loop: a
connection whose key isn't listed, or that doesn't speak CURVE, receives nothing and is closed.
"""

from __future__ import annotations

import errno
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgpack
import zmq
from zmq.utils import z85

from actors.bus.loop import Loop, new_socket
from actors.bus.messages.events import Event
from actors.bus.messages.metrics import ProxyStats, Realtime
from actors.counters import COUNTERS
from actors.log_lines import LogThrottle, ThrottledLog
from config.files.durable import KeyFileError, make_key, read_key
from config.files.paths import PathError

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

    Raises `OSError`, `config.files.durable.KeyFileError` and `config.files.paths.PathError`.
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
    """Accepts connections to the CURVE sockets of `context` by their keys; see `allow`."""

    def __init__(self, loop: Loop, context: zmq.Context[Any]) -> None:
        self._loop = loop
        self._allowed: frozenset[bytes] = frozenset()
        self._rejected = 0
        self._rejections = LogThrottle()
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


VERSION = 1
"""Of the payloads. Fields may join within a version; none goes, and none gets another meaning."""
QUEUED_MAX = 1_000
"""Messages that wait for one slow subscriber; what comes then is lost for it."""
TOPICS_MAX = 10_000
"""Different subscriptions since the socket was bound; with one more all subscribers are disconnected."""
RETRY = 10.0
"""Seconds after which a port that was taken is tried again."""
REBOUND_AFTER = 0.2
_MESSAGE_MAX = 256
_CURVE_MESSAGE_MAX = 1_024
"""The third step of the handshake alone has some 300 bytes."""
_BACKLOG = 64
SYSTEM, PROXY, EVENTS = "metrics.system", "metrics.proxy.", "events."
_WHOLE_ID = re.compile(r"metrics\.proxy\.prx_[0-9a-f]{16}", re.ASCII)


class LiveFeed:
    """Bound to `address`; with an empty one nothing is published.

    With `clients`, public keys of subscribers, only they are accepted; our own key is in `key_file` then. A port that
    is taken is logged and tried again, while everything else goes on; so is a key that can't be read.
    """

    def __init__(
        self,
        loop: Loop,
        context: zmq.Context[Any],
        address: str,
        clients: Iterable[str] = (),
        key_file: Path | None = None,
        on_bound: Callable[[str], None] = lambda _endpoint: None,
    ) -> None:
        """`on_bound` is called with the endpoint each time that it is bound."""
        self._on_bound = on_bound
        self._loop = loop
        self._context = context
        self._address = address
        self._clients = tuple(clients)
        self._key_file = key_file
        self._zap: ZapAuthenticator | None = None
        self._prefixes: set[str] = set()
        self._all_proxies = False
        self.system_wanted = False
        """Some subscription includes the metrics of the system."""
        self._socket: zmq.Socket[bytes] | None = None
        self._bind_errors = ThrottledLog(log, "metrics.publish", period=math.inf)
        self.endpoint = ""
        """Where it listens, with the port that was found for port 0."""
        if address:
            self._bind()

    def set_clients(self, clients: Iterable[str]) -> None:
        """Take these as the subscribers' keys from now on: all subscribers have to connect anew.

        They hold at once, not only for the next socket: the old one still accepts connections for a moment after it is
        closed, and ZeroMQ never tries again with a key that was refused.
        """
        before, self._clients = self._clients, tuple(clients)
        if before == self._clients or not self._address:
            return
        if self._zap is not None:
            self._zap.allow(self._clients)
        self._rebind()

    def wanted_of(self, proxy_ids: Iterable[str]) -> list[str]:
        """Those of the proxies that some subscription includes."""
        return [each for each in proxy_ids if self._all_proxies or PROXY + each in self._prefixes]

    def publish(self, topic: str, payload: dict[str, Any]) -> None:
        """Send to the subscribers of the topic. Never blocks."""
        if self._socket is not None:
            self._loop.send(self._socket, [topic.encode(), msgpack.packb(payload)])

    def close(self) -> None:
        """Close the socket for good."""
        self._address = ""
        self._unbind()
        if self._zap is not None:
            self._zap.close()

    def _bind(self) -> None:
        if not self._address or self._socket is not None:
            return
        socket = self._new_socket()
        try:
            self._require_key(socket)
            socket.bind(re.sub(":0$", ":*", self._address))
        except (zmq.ZMQError, OSError, KeyFileError, PathError) as error:
            socket.close(linger=0)
            reason = getattr(error, "strerror", None) or error
            self._bind_errors.error(
                f"{self._address} can't be used: {reason}; nothing is published, and it is tried again every"
                f" {RETRY:g} s"
            )
            self._loop.call_later(RETRY, self._bind)
            return
        self._bind_errors.recovered()
        self.endpoint = self._address = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        log.info("publishing live metrics at %s%s", self.endpoint, " with CURVE" if self._clients else "")
        self._socket = socket
        self._on_bound(self.endpoint)
        self._loop.attach(socket, self._on_subscriptions)

    def _new_socket(self) -> zmq.Socket[bytes]:
        socket = new_socket(self._context, zmq.XPUB, QUEUED_MAX)
        socket.setsockopt(zmq.IPV6, int("[" in self._address))
        socket.setsockopt(zmq.MAXMSGSIZE, _CURVE_MESSAGE_MAX if self._clients else _MESSAGE_MAX)
        socket.setsockopt(zmq.BACKLOG, _BACKLOG)
        socket.setsockopt(zmq.HEARTBEAT_IVL, 10_000)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 30_000)
        return socket

    def _require_key(self, socket: zmq.Socket[bytes]) -> None:
        """Accept only subscribers with a key, if there are keys."""
        if not self._clients or self._key_file is None:
            if not _is_loopback(self._address):  # the last key was taken away, and the address waits for a restart
                raise OSError(errno.EPERM, "it can be reached from elsewhere and there is no metrics.curve_clients")
            return
        if self._zap is None:
            self._zap = ZapAuthenticator(self._loop, self._context)
        self._zap.allow(self._clients)
        keys = server_keys(self._key_file)
        socket.curve_server = True
        socket.curve_secretkey = keys.secret.encode()
        socket.setsockopt(zmq.ZAP_DOMAIN, b"metrics")
        log.info("metrics.publish: the server's public key is %s", keys.public)

    def _on_subscriptions(self, frames: list[bytes]) -> None:
        """Frames that begin with 1 subscribe; all others are ignored.

        Subscriptions are never taken back, since any peer could take back those of another.
        """
        for frame in frames:
            if frame[:1] == b"\1":
                self._add_prefix(frame[1:].decode("ascii", "replace"))
        if len(self._prefixes) > TOPICS_MAX:
            log.warning("dropped all subscribers: more than %d subscriptions; they may reconnect", TOPICS_MAX)
            self._rebind()

    def _rebind(self) -> None:
        self._unbind()
        self._loop.call_later(REBOUND_AFTER, self._bind)  # ZeroMQ closes the old socket in the background

    def _add_prefix(self, prefix: str) -> None:
        self.system_wanted = self.system_wanted or SYSTEM.startswith(prefix)
        if not _WHOLE_ID.fullmatch(prefix):
            self._all_proxies = self._all_proxies or PROXY.startswith(prefix) or prefix.startswith(PROXY)
        self._prefixes.add(prefix)

    def _unbind(self) -> None:
        if self._socket is not None:
            self._loop.detach(self._socket)
            self._socket.close(linger=0)
            self._socket = None
        self.system_wanted = self._all_proxies = False
        self._prefixes.clear()


def _is_loopback(address: str) -> bool:
    return address.startswith(("tcp://127.", "tcp://[::1]:"))


def proxy_fields(proxy_id: str, known: tuple[str, int] | None) -> dict[str, Any]:
    """The fields that identify a proxy; without name and port while they are not `known`."""
    return {"proxy_id": proxy_id} if known is None else {"proxy_id": proxy_id, "name": known[0], "port": known[1]}


def metrics_payload(
    snapshot: Realtime, totals: ProxyStats, about: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """One second of a proxy, or of all; `about` are the fields that identify the proxy."""
    return {
        "v": VERSION,
        "timestamp": snapshot.timestamp,
        **about,
        **snapshot.metrics,
        **{row.live: totals[row.name] for row in COUNTERS if row.live},
    }


def event_payload(event: Event) -> dict[str, Any]:
    """An event, as webhooks get it, too."""
    return {"v": VERSION, "id": event.id, "type": event.type, "timestamp": event.timestamp, "data": event.data}
