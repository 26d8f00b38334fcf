"""A public name whose name server says that it is on the inside: on each protocol the address that is dialled is the
one that the guard has judged, whenever the server changes its mind."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from actors.bus.messages.specs import DnsSpec, EgressSpec
from tests.kit.forwarding_rig import Rig
from tests.kit.name_servers import ScriptedNameServer, zone
from tests.kit.resolver_process import LOOPBACK, ResolverProcess
from tests.kit.tables import table

OUTSIDE = "127.0.0.2"
"""An address that the guard allows, as if it were public."""
INSIDE = (
    "127.0.0.1",
    "::1",
    "::ffff:127.0.0.1",
    "10.1.2.3",
    "169.254.169.254",
    "fd00::1",
    "0.0.0.0",
    "64:ff9b::7f00:1",
)


class Stage:
    """A proxy that forwards to public addresses alone; `port` is of a listener on loopback that nothing may reach."""

    def __init__(self, stack: ExitStack) -> None:
        self.server = stack.enter_context(ScriptedNameServer(zone({})))
        self.rig = stack.enter_context(
            Rig(EgressSpec("public_only", (OUTSIDE,), ()), dns=DnsSpec((self.server.address,)), protocol="mixed")
        )
        stack.enter_context(ResolverProcess(self.rig.folder, LOOPBACK))
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port: int = self._listener.getsockname()[1]

    def has(self, *addresses: str, ttl: int = 0) -> None:
        self.server.handle = zone({"*": addresses}, ttl=ttl)

    def exchange(self, *sent: bytes) -> bytes:
        """The first bytes of the last reply."""
        with socket.create_connection(("127.0.0.1", self.rig.port), 30) as client:
            reply = b""
            for each in sent:
                client.sendall(each)
                reply = client.recv(4096)
            return reply

    def was_reached(self) -> bool:
        self._listener.setblocking(False)
        try:
            self._listener.accept()
        except BlockingIOError:
            return False
        return True


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with ExitStack() as stack:
        made = Stage(stack)
        yield made


def http(stage: Stage, name: bytes) -> bytes:
    target = name + b":%d" % stage.port
    return stage.exchange(b"GET http://" + target + b"/ HTTP/1.1\r\nHost: " + target + b"\r\n\r\n")


def connect(stage: Stage, name: bytes) -> bytes:
    target = name + b":%d" % stage.port
    return stage.exchange(b"CONNECT " + target + b" HTTP/1.1\r\nHost: " + target + b"\r\n\r\n")


def socks5(stage: Stage, name: bytes) -> bytes:
    return stage.exchange(b"\5\1\0", b"\5\1\0\3" + bytes([len(name)]) + name + stage.port.to_bytes(2, "big"))


def socks4a(stage: Stage, name: bytes) -> bytes:
    return stage.exchange(b"\4\1" + stage.port.to_bytes(2, "big") + b"\0\0\0\1\0" + name + b"\0")


PATHS = {http: b"HTTP/1.1 403 ", connect: b"HTTP/1.1 403 ", socks5: b"\5\2", socks4a: b"\0\x5b"}


@table("address", INSIDE)
def test_an_inner_address_of_a_public_name_is_not_connected_to(stage: Stage, address: str) -> None:
    stage.has(address)
    for number, (path, refusal) in enumerate(PATHS.items()):
        name = b"%d.%d.example.com" % (INSIDE.index(address), number)
        assert path(stage, name).startswith(refusal), path
        assert stage.server.asked(name.decode()), "by the resolver"
    assert not stage.was_reached()


def test_a_name_that_was_public_is_judged_again_where_it_is_now(stage: Stage) -> None:
    """A time to live of 0: the second lookup has another result."""
    for path, refusal in PATHS.items():
        name = path.__name__.encode() + b".again.example.com"
        stage.has(OUTSIDE)
        first = path(stage, name)
        assert path is socks4a or not first.startswith(refusal), "the kernel refuses it; SOCKS4 has one code for all"
        asked = len(stage.server.asked(name.decode()))
        stage.has("127.0.0.1")
        assert path(stage, name).startswith(refusal)
        assert len(stage.server.asked(name.decode())) > asked
    assert not stage.was_reached()


def test_of_several_addresses_inner_ones_are_left_out(stage: Stage) -> None:
    stage.has("127.0.0.1", "10.0.0.1")
    assert socks5(stage, b"both.example.com").startswith(b"\5\2")
    stage.has("127.0.0.1", OUTSIDE)
    assert socks5(stage, b"one.example.com").startswith(b"\5\2"), "nothing listens at the other one"
    assert not stage.was_reached()
