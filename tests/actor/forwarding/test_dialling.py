"""Happy Eyeballs (RFC 8305) at dialling, and that only addresses are dialled that were judged."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.specs import AccessSpec, EgressSpec
from actors.forwarding.access.policy import AccessPolicy
from actors.forwarding.access.rules import AccessRules
from actors.forwarding.net.dialer import STAGGER, Dial, Dialer
from actors.forwarding.net.resolver import Resolution, Resolved, Resolver, new_threads
from actors.forwarding.net.resolver_link import OnReply, ResolverReply
from actors.forwarding.protocols.failures import PROHIBITED as PROHIBITED_KIND
from actors.forwarding.protocols.failures import Failure, dns_failed
from actors.forwarding.protocols.http.targets import parse_authority
from actors.net.egress_guard import EgressGuard
from actors.net.resolver_protocol import FAILED, FOUND, SOME

V6, OTHER_V6, V4, OTHER_V4 = "2606:4700::1", "2606:4700::2", "1.1.1.1", "1.0.0.1"
PROHIBITED = "fd00::1"
TARGET = parse_authority(b"site.example:80", 80)
DEADLINE = 120.0
TURN = 0.01
"""Seconds from one turn of the loop to the next."""


class Scripted:
    """In place of the connection to the resolver: passes on what the test gives."""

    on_forget: Callable[[str], None]

    def __init__(self) -> None:
        self.parts: list[Resolution] = []
        self._reply: OnReply = lambda _reply: None

    def ask(self, _name: str, _client: str, done: OnReply) -> bool:
        self._reply = done
        if self.parts:
            self.done(self.parts.pop(0))
        return True

    def done(self, result: Resolution) -> None:
        if isinstance(result, Failure):
            self._reply(ResolverReply(FAILED, 0.0, result.detail))
        else:
            self._reply(ResolverReply(SOME if result.more else FOUND, 0.0, result.addresses))


class Dialling:
    """Connections to addresses in `silent` never come about, and those in `refusing` refuse them.

    `dialled` has all addresses, in order.

    Its clock stands still but for `skip` and the turns of `turn_until`.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.loop = Loop(lambda: self.now)
        self.resolver = Scripted()
        names = Resolver(self.loop, new_threads(self.loop), link=self.resolver)  # type: ignore[arg-type]
        access = AccessPolicy(EgressGuard(EgressSpec("public_only", (), ())), AccessRules(AccessSpec()))
        self.dialer = Dialer(self.loop, names, access, self._connect)
        self.silent: set[str] = set()
        self.refusing: set[str] = set()
        self.dial: Dial
        self.dialled: list[str] = []
        self._others: list[socket.socket] = []

    def _connect(self, address: str, _port: int) -> socket.socket:
        self.dialled.append(address)
        if address in self.refusing:
            raise OSError(errno.ECONNREFUSED, "connect")
        mine, other = socket.socketpair()
        mine.setblocking(False)
        self._others.append(other)
        if address in self.silent:
            self._fill(mine)
        return mine

    def _fill(self, sock: socket.socket) -> None:
        """Until it can't be written to: so it never looks connected."""
        try:
            while True:
                sock.send(bytes(65536))
        except BlockingIOError:
            return

    def begin(self, *parts: Resolution) -> list[socket.socket | Failure]:
        self.resolver.parts[:] = parts
        results: list[socket.socket | Failure] = []
        self.dialled.clear()
        self.dial = self.dialer.dial(TARGET, results.append)
        return results

    def turn_until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end
            self.loop.turn(0.0)
            self.now += TURN

    def connect(self, *parts: Resolution) -> list[str]:
        """The addresses that were dialled until a connection was there."""
        results = self.begin(*parts)
        self.turn_until(lambda: results)
        self._close(results[0])
        return list(self.dialled)

    def _close(self, result: socket.socket | Failure) -> None:
        assert isinstance(result, socket.socket)
        self.loop.unwatch(result.fileno())
        result.close()

    def skip(self, seconds: float) -> None:
        self.now += seconds
        self.loop.turn(0.0)

    def close(self) -> None:
        for other in self._others:
            other.close()
        self.loop.close()


@pytest.fixture
def dialling() -> Iterator[Dialling]:
    dialling = Dialling()
    yield dialling
    dialling.close()


def test_a_black_hole_costs_its_delay_once(dialling: Dialling) -> None:
    dialling.silent = {V6, OTHER_V6}
    both = Resolved((V6, V4))
    assert dialling.connect(both) == [V6, V4]
    assert dialling.connect(both) == [V4]
    assert dialling.connect(Resolved((OTHER_V6, OTHER_V4))) == [OTHER_V4]


def test_it_is_tried_again_after_a_while(dialling: Dialling) -> None:
    dialling.silent = {V6}
    dialling.connect(Resolved((V6, V4)))
    dialling.silent = set()
    dialling.skip(61.0)
    assert dialling.connect(Resolved((V6, V4))) == [V6]


def test_the_next_address_is_tried_when_one_was_silent_for_its_time(dialling: Dialling) -> None:
    dialling.silent = {V6, V4}
    results = dialling.begin(Resolved((V6, V4)))
    dialling.loop.turn(0.0)
    assert dialling.dialled == [V6]
    dialling.skip(STAGGER + 0.01)
    assert dialling.dialled == [V6, V4]
    assert results == []


def test_late_addresses_join_in(dialling: Dialling) -> None:
    dialling.silent = {V6}
    results = dialling.begin(Resolved((V6,), more=True))
    dialling.loop.turn(0.0)
    dialling.resolver.done(Resolved((V6, V4)))
    dialling.turn_until(lambda: results)
    assert dialling.dialled == [V6, V4]
    assert isinstance(results[0], socket.socket)


def test_late_addresses_are_waited_for_when_the_first_are_refused(dialling: Dialling) -> None:
    results = dialling.begin(Resolved(("fd00::1",), more=True))
    dialling.loop.turn(0.0)
    assert results == []
    dialling.resolver.done(Resolved(("fd00::1", V4)))
    dialling.turn_until(lambda: results)
    assert dialling.dialled == [V4]


@pytest.mark.parametrize("addresses", [(PROHIBITED, V4), (V4, PROHIBITED)])
def test_addresses_that_are_prohibited_or_dead_are_a_refusal(dialling: Dialling, addresses: tuple[str, ...]) -> None:
    dialling.refusing = {V4}
    results = dialling.begin(Resolved(addresses))
    dialling.turn_until(lambda: results)
    assert dialling.dialled == [V4]
    assert isinstance(results[0], Failure)
    assert (results[0].status, results[0].kind) == (403, PROHIBITED_KIND)
    dialling.refusing = set()
    assert dialling.connect(Resolved(addresses)) == [V4]


def test_a_prohibited_address_beside_a_silent_one_is_a_refusal_when_the_time_has_passed(dialling: Dialling) -> None:
    dialling.silent = {V4}
    dialling.begin(Resolved((PROHIBITED, V4)))
    dialling.loop.turn(0.0)
    assert dialling.dialled == [V4]
    assert dialling.dial.overdue is not None
    assert dialling.dial.overdue.kind == PROHIBITED_KIND
    dialling.begin(Resolved((V4,)))
    dialling.loop.turn(0.0)
    assert dialling.dial.overdue is None


def test_when_nothing_more_comes_the_first_refusal_counts(dialling: Dialling) -> None:
    results = dialling.begin(Resolved(("fd00::1",), more=True))
    dialling.resolver.done(dns_failed("the rest is lost"))
    dialling.turn_until(lambda: results)
    assert isinstance(results[0], Failure)
    assert results[0].reason == "destination_ip_prohibited"


def test_only_addresses_are_dialled_that_the_guard_has_allowed_of_this_very_result(dialling: Dialling) -> None:
    assert dialling.connect(Resolved(("127.0.0.1", V4))) == [V4]
    results = dialling.begin(Resolved(("127.0.0.1", "10.0.0.1", "::ffff:127.0.0.1")))
    dialling.turn_until(lambda: results)
    assert isinstance(results[0], Failure)
    assert dialling.dialled == []
    dialling.silent = {V4}
    results = dialling.begin(Resolved((V4,), more=True))
    dialling.loop.turn(0.0)
    dialling.resolver.done(Resolved((V4, "127.0.0.1", "169.254.169.254")))
    dialling.skip(STAGGER + 0.01)
    assert dialling.dialled == [V4]
