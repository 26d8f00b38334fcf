"""What every forwarding actor runs at its start and for its first clients, run in the zygote before it forks any.

So what is made at a first use lies in memory that all actors share: readers of messages, caches, and the bytecode that
the interpreter has specialized by then. The first requests of an actor are quicker for it, too. Nothing else is left:
no descriptor, no thread, no ZeroMQ context. What has been run is put together in memory (`actors.memory_layout`).
"""

from __future__ import annotations

import gc
import logging
import os
import random
import socket
import threading
from collections.abc import Callable

import zmq

from actors.bus.codec import Envelope, Role, decode, encode
from actors.bus.messages.common import ApplySettings, Done, Hello, Stop
from actors.bus.messages.forwarding import Configure
from actors.bus.messages.metrics import Counters
from actors.bus.messages.specs import EgressSpec, ProxySpec
from actors.bus.records import Row
from actors.forwarding.actor import ForwardingActor
from actors.forwarding.connections.client_connection import ClientConnection
from actors.forwarding.connections.command_handlers import HANDLERS
from actors.forwarding.context import ForwardingContext
from actors.forwarding.net.dialer import EDGE
from actors.memory_layout import called_code, fill_gaps, gather_code
from actors.process import Boot
from actors.signals import blocked

ROUNDS = 10
"""Of each; a function is specialized at its eighth call."""

_HOST = b"127.0.0.1:9"
"""A target that the egress guard denies."""
_BEGINNINGS = {
    "http": (
        b"GET http://%b/a HTTP/1.1\r\nHost: %b\r\nUser-Agent: a\r\nAccept: */*\r\n\r\n" % (_HOST, _HOST),
        b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (_HOST, _HOST),
    ),
    "socks4": (b"\x04\x01\x00\x09\x7f\x00\x00\x01\x00",),
    "socks5": (b"\x05\x01\x00", b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x09"),
}
"""By protocol what a client sends, piece by piece."""


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
    """Warm this process, and put together what processes that are forked from it will use. Raises `OSError`."""
    try:
        gather_code(called_code(lambda: warm(rounds=1)))
        warm()
    except zmq.ZMQError as error:  # no descriptors
        raise OSError(error.errno, str(error)) from error
    fill_gaps()


def warm(on_record: Callable[[Row], None] = lambda _row: None, rounds: int = ROUNDS) -> None:
    """Run it all; `on_record` is called with the record of each client."""
    before = _descriptors()
    logging.disable()  # these clients are none
    try:
        for _ in range(rounds):
            _begin_as_forked()
            _run(on_record)
    finally:
        logging.disable(logging.NOTSET)
    gc.collect()  # all that it has made is gone now, but for raw descriptors
    for left in _descriptors() - before:
        os.close(left)


def _begin_as_forked() -> None:
    """What the interpreter runs in each new process (`os.register_at_fork`), and what the zygote does."""
    with blocked():
        random.seed()
        after_fork = getattr(threading, "_after_fork", None)  # a private part, which need not be in every release
        if after_fork is not None and threading.active_count() == 1:
            after_fork()


class _WarmingActor(ForwardingActor):
    """Does what others do, but for the name of the process."""

    on_record: Callable[[Row], None]

    def _record(self, row: Row) -> None:
        super()._record(row)
        self.on_record(row)

    def _name_process(self, label: str) -> None:
        """Leave it to this process how it is called."""

    def discard(self) -> None:
        """Let nothing be left of it."""
        self._publisher.publish()
        self.context.destroy(linger=0)
        self.loop.close()


def _run(on_record: Callable[[Row], None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        actor = _WarmingActor(_BOOT, [listener])
        actor.on_record = on_record
        for protocol, pieces in _BEGINNINGS.items():
            actor.mailbox.on_frame("supervisor", _configuration(protocol))
            actor.loop.turn(0.0)
            _serve(actor.forwarding, pieces)
        actor.discard()


def _configuration(protocol: str) -> bytes:
    """A configuration, as it arrives; before it, messages that each actor sends and receives."""
    for message in (Hello(1, 1), Done(), Stop(0.0), ApplySettings({}), Counters("p", 1, {})):
        decode(encode(Envelope(message)))
    spec = ProxySpec("p", "p", "127.0.0.1", 1, protocol, True, 1, 30.0, True, 1000, None, None, None)
    return encode(
        Envelope(Configure(spec, EgressSpec("public_only", ("192.0.2.0/24",), (("127.0.0.1", 1),))), 1, Role.ASK)
    )


def _serve(context: ForwardingContext, pieces: tuple[bytes, ...]) -> None:
    """A client that sends this and is refused."""
    theirs, ours = socket.socketpair()
    with theirs:
        ours.setblocking(False)
        client = ClientConnection(context, ours, "127.0.0.1", 1, HANDLERS)
        context.add(client)
        context.loop.watch(client.fileno, EDGE, client.on_client)
        for piece in pieces:
            theirs.send(piece)
            context.loop.turn(0.0)
    for _ in range(2):
        context.loop.turn(0.0)


def _descriptors() -> set[int]:
    return set(map(int, os.listdir("/proc/self/fd")))
