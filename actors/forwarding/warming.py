"""What every forwarding actor runs at its start and for its first clients, run in the zygote before it forks any.

So what is made at a first use lies in memory that all actors share: readers of messages, caches, and the bytecode that
the interpreter has specialized by then. The first requests of an actor are quicker for it, too. Nothing else is left:
no descriptor, no thread, no ZeroMQ context.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace

import zmq

from actors.bus.codec import Envelope, EnvelopeRole, decode, encode, pack
from actors.bus.loop import Loop
from actors.bus.messages.common import ApplySettings, Done, Hello, Stop
from actors.bus.messages.forwarding import Configure
from actors.bus.messages.metrics import Counters
from actors.bus.messages.specs import EgressSpec, ProxySpec
from actors.bus.records import Row
from actors.forwarding.actor import ForwardingActor
from actors.process import Boot

REPEATS = 10
"""Of each; a function is specialized at its eighth call."""

_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Type: text/plain\r\nServer: a\r\n\r\na"
_TURNS_MAX = 50
_CONNECTED_WITHIN = 1.0
"""Seconds that a client may take to connect: without end where the machine drops what it sends to itself."""
_TURN = 0.02
"""Seconds that a turn waits for the kernel, which nearly always has everything at once."""


_BOOT = Boot(
    "forwarding.warming",
    0,
    os.devnull,
    os.devnull,
    {
        "logging": {"level": "info", "format": "text", "access": "all"},
        "proxy": {
            "max_idle_connections": 1,
            "keep_alive_timeout": 1,
            "dns_cache_seconds": 1,
            "dns": {"servers": (), "hosts": {}, "prefer": "any", "min_ttl": 0, "max_ttl": 1},
        },
    },
)
"""Of an actor whose folders don't exist: nothing that it sends arrives."""


def prepare() -> None:
    """Warm this process. Raises `OSError` without descriptors, or where this machine can't connect to itself."""
    try:
        warm()
    except zmq.ZMQError as error:  # no descriptors
        raise OSError(error.errno, str(error)) from error


def warm(on_record: Callable[[Row], None] = lambda _row: None, repeats: int = REPEATS) -> None:
    """Run it all; `on_record` is called with the record of each client. Raises `OSError` and `zmq.ZMQError`."""
    before, failure = _descriptors(), None
    logging.disable()  # these clients are none
    try:
        for _ in range(repeats):
            _run(on_record)
    except (OSError, zmq.ZMQError) as error:
        failure = error.with_traceback(None)  # which has all that was made
    finally:
        logging.disable(logging.NOTSET)
    gc.collect()  # all that it has made is gone now, but for raw descriptors
    for left in _descriptors() - before:
        os.close(left)
    if failure is not None:
        raise failure


class _WarmingActor(ForwardingActor):
    """Does what others do, but for the name of the process."""

    on_record: Callable[[Row], None]
    recorded = 0

    def _record(self, row: Row) -> None:
        super()._record(row)
        self.recorded += 1
        self.on_record(row)

    def _name_process(self, label: str) -> None:
        """Leave it to this process how it is called."""

    def discard(self) -> None:
        """Let nothing be left of it."""
        self._publisher.publish()
        self.records.flush()
        self.forwarding.pool.flush()
        self.context.destroy(linger=0)
        self.loop.close()


def _run(on_record: Callable[[Row], None]) -> None:
    with _listener() as listener, _listener() as origin:
        actor = _WarmingActor(_boot(), [listener])
        actor.on_record = on_record
        try:
            _serve_all(actor, listener, origin)
        finally:
            actor.discard()


def _serve_all(actor: _WarmingActor, listener: socket.socket, origin: socket.socket) -> None:
    actor.loop.watch(origin.fileno(), select.EPOLLIN, lambda _mask: _accept(actor.loop, origin))
    actor.mailbox.on_frame("supervisor", _configuration())
    target = b"127.0.0.1:%d" % origin.getsockname()[1]
    head = b"Host: %b\r\nUser-Agent: a\r\nAccept: */*\r\n\r\n" % target
    _serve(actor, listener, b"GET http://%b/a HTTP/1.1\r\n" % target + head)
    _serve(actor, listener, b"CONNECT %b HTTP/1.1\r\n" % target + head, b"a")


def _listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def _boot() -> Boot:
    """Of one that wakes."""
    return replace(_BOOT, params={"asleep": True, "configure": pack(_configure())})


def _configuration() -> bytes:
    """A configuration, as it arrives; before it, messages that each actor sends and receives."""
    for message in (Hello(1, 1), Done(), Stop(0.0), ApplySettings({}), Counters("p", 1, {})):
        decode(encode(Envelope(message)))
    return encode(Envelope(_configure(), 1, EnvelopeRole.ASK))


def _configure() -> Configure:
    spec = ProxySpec("p", "p", "127.0.0.1", 1, "http", True, 1, 30.0, True, 1000, None, None, None, sleep_after=3600)
    return Configure(spec, EgressSpec("public_only", ("127.0.0.1/32", "192.0.2.0/24"), (("127.0.0.1", 1),)))


# --- clients and their origin, which turn with the actor ---


def _serve(actor: _WarmingActor, listener: socket.socket, *pieces: bytes) -> None:
    """A client that sends this, piece by piece, the next one at each response, until it has its record."""
    before = actor.recorded
    with socket.socket() as client:
        client.settimeout(_CONNECTED_WITHIN)
        client.connect(listener.getsockname())
        _send_by_turns(actor.loop, client, pieces)
        for _ in range(_TURNS_MAX):
            actor.loop.turn(_TURN)
            if actor.recorded > before:
                break
        actor.loop.unwatch(client.fileno())
    actor.loop.turn(0.0)


def _send_by_turns(loop: Loop, client: socket.socket, pieces: Sequence[bytes]) -> None:
    left = iter(pieces)

    def on_response(_mask: int) -> None:
        following = next(left, b"") if client.recv(1024) else b""
        if following:
            client.send(following)
        else:
            loop.unwatch(client.fileno())
            client.shutdown(socket.SHUT_WR)

    loop.watch(client.fileno(), select.EPOLLIN, on_response)
    client.send(next(left))


def _accept(loop: Loop, origin: socket.socket) -> None:
    """Serve a connection to the origin: a request gets a response, anything else an echo."""
    connection = origin.accept()[0]

    def on_request(_mask: int) -> None:
        received = connection.recv(1024)
        if received:
            connection.send(_RESPONSE if received.startswith(b"GET") else received)
        else:
            loop.unwatch(connection.fileno())
            connection.close()

    loop.watch(connection.fileno(), select.EPOLLIN, on_request)


def _descriptors() -> set[int]:
    return set(map(int, os.listdir("/proc/self/fd")))
