"""Forwarding actors and the resolver: names by its socket, and what holds when it is gone or hangs."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dns.message
import dns.rcode
import pytest

from actors.bus.loop import Loop
from actors.forwarding.net import resolver, resolver_link
from actors.forwarding.net.resolver import Resolution, Resolved, Resolver, new_threads
from actors.forwarding.net.resolver_link import DnsSettings, ResolverLink, ResolverProfile
from actors.forwarding.protocols.failures import Failure
from actors.net.this_machine import HostsFile
from config.files.paths import RunDir
from tests.actor.resolver.resolving import DEADLINE
from tests.kit.name_servers import ScriptedNameServer, SilentNameServer, zone
from tests.kit.resolver_process import LOOPBACK, ResolverProcess

NAME = "www.example.com"
FROM_SYSTEM = Resolved(("198.51.100.1",))


@dataclass
class Client:
    client_ip: str = "192.0.2.1"
    waits: bool = True


@dataclass
class Front:
    """What a forwarding actor has in front of the resolver; `looked_up` are the names that went to the system."""

    folder: Path
    loop: Loop = field(default_factory=Loop)
    looked_up: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.link = ResolverLink(self.loop, RunDir(self.folder))
        hosts = self.folder / "hosts"
        hosts.write_text("")
        self.resolver = Resolver(self.loop, new_threads(self.loop), self._look_up, HostsFile(hosts), self.link)

    def _look_up(self, name: str) -> Resolution:
        self.looked_up.append(name)
        return FROM_SYSTEM

    def begin(self, name: str, in_parts: bool = False) -> list[Resolution]:
        results: list[Resolution] = []
        self.resolver.resolve(name, results.append, Client(), in_parts)
        return results

    def resolve(self, name: str) -> Resolution:
        results = self.begin(name)
        self.turn_until(lambda: results)
        return results[0]

    def turn_until(self, condition: Callable[[], object]) -> None:
        end = self.loop.now + DEADLINE
        while not condition():
            assert self.loop.now < end
            self.loop.turn(0.05)


@pytest.fixture
def front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    """A resolver that is slow to get its turn does not hang."""
    monkeypatch.setattr(resolver_link, "HUNG_AFTER", 60.0)
    front = Front(tmp_path)
    yield front
    front.link.close()
    front.loop.close()


def test_a_name_comes_from_the_resolver_and_is_kept_in_front_of_it(front: Front) -> None:
    with ResolverProcess(front.folder), ScriptedNameServer(zone({NAME: ("192.0.2.1", "2001:db8::1")})) as server:
        front.link.set_profile(ResolverProfile((server.address,)))
        assert front.resolve(NAME) == Resolved(("2001:db8::1", "192.0.2.1"))
        assert front.resolver.known(NAME) == Resolved(("2001:db8::1", "192.0.2.1"))
        assert isinstance(front.resolve("other.example.com"), Failure)
        assert front.looked_up == []


def test_ipv4_comes_first_where_it_is_preferred(front: Front) -> None:
    with ResolverProcess(front.folder), ScriptedNameServer(zone({NAME: ("192.0.2.1", "2001:db8::1")})) as server:
        front.resolver.configure(
            DnsSettings(ResolverProfile((server.address,)), "ipv4", {"own.example.com": ("192.0.2.77",)})
        )
        assert front.resolve(NAME) == Resolved(("192.0.2.1", "2001:db8::1"))
        assert front.resolver.known("Own.example.com.") == Resolved(("192.0.2.77",))


def test_without_a_resolver_the_system_is_asked_at_once(front: Front) -> None:
    assert front.resolve(NAME) == FROM_SYSTEM


def test_names_under_way_are_asked_of_the_system_when_the_resolver_is_killed(front: Front) -> None:
    with ResolverProcess(front.folder) as resolver, SilentNameServer() as silent:
        front.link.set_profile(ResolverProfile((silent.address,)))
        results = front.begin(NAME)
        front.loop.turn(0.05)
        assert results == []
        resolver.kill()
        front.turn_until(lambda: results)
        assert results == [FROM_SYSTEM]


class OwnFront:
    """A proxy with name servers of its own, whose names may go to no other."""

    def __init__(self, front: Front, *servers: str) -> None:
        self.front = front
        front.resolver.configure(DnsSettings(ResolverProfile(servers, proxy="prx_1")))

    def fails(self, name: str) -> Failure:
        result = self.front.resolve(name)
        assert isinstance(result, Failure), result
        assert self.front.looked_up == []
        return result


def test_with_own_name_servers_a_name_waits_for_the_resolver_and_fails_then(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedNameServer(zone({"*": ("192.0.2.1",)})) as server, ResolverProcess(front.folder):
        own = OwnFront(front, server.address)
        monkeypatch.setattr(resolver, "AWAITED", 0.5)
        failure = own.fails(NAME)
        assert (failure.status, failure.kind) == (502, "dns_error")
        assert "does not run" in failure.recorded
        monkeypatch.setattr(resolver, "AWAITED", DEADLINE)
        results = front.begin("late.example.com")
        front.loop.turn(0.05)
        with ResolverProcess(front.folder, LOOPBACK) as process:
            front.turn_until(lambda: results)
            assert results == [Resolved(("192.0.2.1",))]
            process.kill()
            monkeypatch.setattr(resolver, "AWAITED", 0.5)
            own.fails("killed.example.com")
        assert server.asked("killed.example.com") == []


def test_with_own_name_servers_clients_do_not_learn_how_a_server_fails(front: Front) -> None:
    def refused(query: Any, _way: str) -> Any:
        response = dns.message.make_response(query)
        response.set_rcode(dns.rcode.REFUSED)
        return response

    with (
        ResolverProcess(front.folder, LOOPBACK, timeout=0.5),
        ScriptedNameServer(refused) as refusing,
        SilentNameServer() as silent,
        socket.create_server(("127.0.0.1", 0)) as closing,
        socket.socket() as closed,
    ):
        closed.bind(("127.0.0.1", 0))
        closing.listen(0)
        port = closed.getsockname()[1]
        servers = (refusing.address, silent.address, f"127.0.0.1:{port}", f"tls://127.0.0.1:{port}", "192.0.2.1")
        found, recorded = set(), set()
        for server in servers:
            failure = OwnFront(front, server).fails(NAME)
            found.add(replace(failure, recorded=""))
            recorded.add(failure.recorded)
        assert [(each.status, each.kind) for each in found] == [(502, "dns_error")]
        assert "127.0.0.1" not in found.pop().detail
        assert len(recorded) > 2, recorded


@pytest.mark.parametrize(
    "server", ["127.0.0.1:{}", "[::ffff:127.0.0.1]:{}", "tls://127.0.0.1:{}", "tls://localhost:{}"]
)
def test_a_name_server_of_a_proxy_that_the_guard_refuses_gets_nothing(front: Front, server: str) -> None:
    with ResolverProcess(front.folder, ()), ScriptedNameServer(zone({"*": ("192.0.2.1",)})) as scripted:
        address = server.format(scripted.address.rpartition(":")[2])
        failure = OwnFront(front, address).fails(NAME)
        assert "is not a public address" in failure.recorded
        assert scripted.asked(NAME) == []


def test_a_resolver_that_is_back_is_used_again(front: Front) -> None:
    with ScriptedNameServer(zone({"*": ("192.0.2.1",)})) as server:
        front.link.set_profile(ResolverProfile((server.address,)))
        with ResolverProcess(front.folder):
            assert front.resolve("a.example.com") == Resolved(("192.0.2.1",))
        assert front.resolve("b.example.com") == FROM_SYSTEM
        with ResolverProcess(front.folder):
            front.turn_until(lambda: front.resolve(f"c{front.loop.now}.example.com") == Resolved(("192.0.2.1",)))


def test_a_resolver_that_hangs_is_given_up_until_it_replies_again(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ResolverProcess(front.folder) as resolver, ScriptedNameServer(zone({"*": ("192.0.2.1",)})) as server:
        front.link.set_profile(ResolverProfile((server.address,)))
        assert front.resolve("a.example.com") == Resolved(("192.0.2.1",))
        monkeypatch.setattr(resolver_link, "HUNG_AFTER", 1.0)
        resolver.process.send_signal(signal.SIGSTOP)
        assert front.resolve("b.example.com") == FROM_SYSTEM
        resolver.process.send_signal(signal.SIGCONT)
        front.turn_until(lambda: front.resolve(f"c{front.loop.now}.example.com") == Resolved(("192.0.2.1",)))


def test_names_of_other_means_go_to_the_system(front: Front) -> None:
    switch = front.folder / "nsswitch.conf"
    switch.write_text("hosts: files mdns4_minimal [NOTFOUND=return] dns\n")
    with ResolverProcess(front.folder, nsswitch_conf=str(switch)):
        assert front.resolve("printer.local") == FROM_SYSTEM


def test_a_broken_packet_costs_its_sender_alone(front: Front) -> None:
    with ResolverProcess(front.folder), ScriptedNameServer(zone({"*": ("192.0.2.1",)})) as server:
        front.link.set_profile(ResolverProfile((server.address,)))
        other = Front(front.folder)
        other.link.set_profile(ResolverProfile(("no server",)))
        assert other.resolve(NAME) == FROM_SYSTEM
        assert front.resolve(NAME) == Resolved(("192.0.2.1",))
        other.link.close()
        other.loop.close()


def test_some_of_the_addresses_are_passed_on_and_all_of_them_follow(front: Front) -> None:
    both = zone({"*": ("192.0.2.1", "2001:db8::1")})
    waiting: list[Any] = [True]

    def handle(query: Any, way: str) -> Any:
        return None if waiting and "AAAA" in query.question[0].to_text() else both(query, way)

    with ResolverProcess(front.folder), ScriptedNameServer(handle) as server:
        front.link.set_profile(ResolverProfile((server.address,)))
        parts, whole = front.begin(NAME, in_parts=True), front.begin(NAME)
        front.turn_until(lambda: parts)
        assert parts == [Resolved(("192.0.2.1",), more=True)]
        assert front.begin(NAME, in_parts=True) == parts
        assert whole == []
        waiting.clear()
        front.turn_until(lambda: len(parts) == 2 and whole)
        assert parts[1] == whole[0] == Resolved(("2001:db8::1", "192.0.2.1"))
