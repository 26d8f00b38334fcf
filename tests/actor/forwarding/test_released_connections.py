"""What has ended is released at once: no table of the actor holds a connection that is over.

Nor does it wait for a collection of garbage, since an actor with much in memory takes what is there out of these.
"""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from actors.bus.messages.specs import LimitsSpec
from actors.counters import CONNECTIONS
from actors.forwarding.connections.client_connection import ClientConnection
from actors.forwarding.connections.first_bytes import ProxyHeaderReader
from actors.forwarding.connections.tunnel import TunnelConnection
from actors.forwarding.connections.udp_association import UdpAssociation
from actors.forwarding.context import ForwardingContext
from actors.forwarding.limits.client_limits import PERIOD
from actors.forwarding.limits.meter import Meter
from actors.forwarding.limits.token_bucket import Throttle
from actors.forwarding.net.connection_pool import OriginConnection
from actors.forwarding.net.dialer import Dial
from actors.forwarding.net.lingering_close import _Lingering
from actors.forwarding.protocols.http.session import HttpSession
from actors.forwarding.protocols.socks.v5 import Socks5Session
from actors.forwarding.upstreams.attempt import Attempt
from actors.forwarding.upstreams.route import UpstreamRoute
from actors.net.proxy_protocol import build_v2
from actors.net.tls_stream import TlsStream
from actors.state.counts import COUNTED
from tests.actor.forwarding.account_client import account, credentials
from tests.actor.forwarding.http_client import connect, get, read_response, tunnel
from tests.actor.forwarding.in_process_actor import Inside
from tests.actor.forwarding.socks_client import LOOPBACK, address, ask
from tests.actor.forwarding.tls_client import connect as connect_by_tls
from tests.kit.certificates import make_pair
from tests.kit.forwarding_rig import until
from tests.kit.scripted_origins import Origin, counted, echoes, read_all, responds
from tests.kit.upstreams import closed_port, upstream_entry, upstream_list

MANY = 20
KINDS = (
    ProxyHeaderReader,
    UdpAssociation,
    ClientConnection,
    Throttle,
    HttpSession,
    Meter,
    OriginConnection,
    Socks5Session,
    TunnelConnection,
    Dial,
    UpstreamRoute,
    Attempt,
    TlsStream,
    _Lingering,
)
NO_POOL = {"max_idle_connections": 0}

Use = Callable[[Inside], None]


def tables(shared: ForwardingContext) -> list[int]:
    """How many entries each table has that grows with connections."""
    limits = shared.limits
    of_accounts = sum(len(each.meters) for each in limits.accounts.values())
    return [len(shared.timers), shared.pool.count, len(limits._counted), len(limits._counts), of_accounts]


def nothing_is_referenced(rig: Inside, came: int) -> None:
    """All of `came` connections have been accepted, have ended, and are nowhere any more."""

    def ended(shared: ForwardingContext) -> list[int] | None:
        over = shared.stats.values[CONNECTIONS] >= came and not shared.connections and not shared.lingering
        return tables(shared) if over else None

    left = until(lambda: rig.inspect(ended), "all have come and gone")
    assert not any(left)
    until(lambda: not rig.referenced(*KINDS), "they are released")


def ended_by_client(rig: Inside) -> None:
    with Origin(responds(counted(b"x"))) as origin, connect(rig) as client:
        client.sendall(get(origin))
        assert read_response(client)[1] == b"x"


def ended_by_proxy(rig: Inside) -> None:
    with Origin(responds(counted(b"x"))) as origin, connect(rig) as client:
        client.sendall(get(origin, "/", "Connection: close"))
        assert read_all(client).endswith(b"x")


def refused(rig: Inside) -> None:
    with connect(rig) as client:
        client.sendall(b"nonsense\r\n\r\n")
        assert read_all(client).startswith(b"HTTP/1.1 400 ")


def silent(rig: Inside) -> None:
    connect(rig).close()


def tunnelled(rig: Inside) -> None:
    with Origin(echoes) as origin, tunnel(rig, origin) as client:
        client.sendall(b"hello")
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"hello"


def upgraded_on_a_kept_connection(rig: Inside) -> None:
    """The origin's connection was idle in the pool before it became a tunnel's."""
    switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
    with Origin(responds(counted(b"x"), switched, then_close=True)) as origin, connect(rig) as client:
        client.sendall(get(origin))
        assert read_response(client)[1] == b"x"
        client.sendall(get(origin, "/", "Connection: upgrade", "Upgrade: x"))
        assert read_all(client).startswith(b"HTTP/1.1 101 ")


def unreachable(rig: Inside) -> None:
    port = closed_port()
    with connect(rig) as client:
        client.sendall(b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % port)
        assert read_all(client).startswith(b"HTTP/1.1 502 ")


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="module")
def rig() -> Iterator[Inside]:
    with Inside(proxy=NO_POOL) as one:
        yield one


@pytest.mark.parametrize("use", [ended_by_client, ended_by_proxy, refused, silent, tunnelled, unreachable])
def test_connections_that_are_over_are_referenced_by_nothing(rig: Inside, use: Use) -> None:
    for _ in range(MANY):
        use(rig)
    nothing_is_referenced(rig, MANY)


def test_nor_is_what_was_kept_for_another_request_and_became_a_tunnel() -> None:
    with Inside(proxy={"max_idle_connections": 100}) as rig:
        for _ in range(MANY):
            upgraded_on_a_kept_connection(rig)
        nothing_is_referenced(rig, MANY)


def test_nor_are_those_of_socks_with_their_datagrams() -> None:
    with Inside(proxy=NO_POOL, protocol="socks5") as rig, Origin(echoes) as origin:
        for command in (1, 3) * (MANY // 2):
            sock, code, _bound = ask(rig, command, address(LOOPBACK, origin.port))
            assert code == 0
            sock.close()
        nothing_is_referenced(rig, MANY)


def test_nor_are_those_that_a_balancer_announces_or_does_not() -> None:
    with Inside(proxy=NO_POOL, accept_proxy_protocol=True) as rig, Origin(responds(*[counted(b"x")] * MANY)) as origin:
        for _ in range(MANY):
            with connect(rig) as good, connect(rig) as bad, connect(rig) as silent:
                good.sendall(build_v2(("192.0.2.7", 5), ("192.0.2.1", 80)) + get(origin, "/", "Connection: close"))
                assert read_all(good).endswith(b"x")
                bad.sendall(b"no header\r\n\r\n")
                silent.shutdown(socket.SHUT_WR)
        nothing_is_referenced(rig, MANY)


def test_nor_are_those_that_are_counted_and_wait_for_bandwidth_when_they_end() -> None:
    limits = LimitsSpec(connections=1000, requests_per_minute=100, bandwidth_out=1000)
    body, ada = counted(b"x" * 100_000), account("ada", limits=LimitsSpec(clients=2))
    with (
        Inside(proxy=NO_POOL, limits=limits, accounts=(ada,), auth_required=True) as rig,
        ExitStack() as stack,
    ):
        for _ in range(MANY):
            origin = stack.enter_context(Origin(responds(body)))
            with connect(rig) as client:
                client.sendall(get(origin, "/", credentials("ada")))
                assert client.recv(1)
        nothing_is_referenced(rig, MANY)
        assert rig.inspect(lambda shared: len(shared.limits._clients)) == 1
        rig.actor.loop._clock = lambda: time.monotonic() + COUNTED + PERIOD + 1
        until(lambda: rig.inspect(lambda shared: len(shared.limits._clients)) == 0, "no client counts any more")


def test_nor_are_those_that_went_through_an_upstream() -> None:
    upstreams = upstream_list(upstream_entry(1), upstream_entry(2))
    with Inside(proxy=NO_POOL, upstreams=upstreams) as rig, Origin(responds(counted(b"x"))) as origin:
        for _ in range(MANY):
            with connect(rig) as client:
                client.sendall(get(origin))
                assert read_response(client)[0].startswith(b"HTTP/1.1 50")
        nothing_is_referenced(rig, MANY)


def test_nor_are_tunnels_through_an_upstream() -> None:
    """The upstream is a proxy of its own, in this process, too."""
    with (
        Inside(proxy=NO_POOL, id="px-upstream") as upstream,
        Origin(echoes) as origin,
        Inside(proxy=NO_POOL, upstreams=upstream_list(upstream_entry(upstream.port))) as rig,
    ):
        for _ in range(MANY):
            with tunnel(rig, origin) as client:
                client.sendall(b"hello")
                client.shutdown(socket.SHUT_WR)
                assert read_all(client) == b"hello"
        nothing_is_referenced(rig, MANY)
        nothing_is_referenced(upstream, MANY)


def test_nor_are_those_with_tls(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    with Inside(proxy=NO_POOL, protocol="https", tls=pair) as rig, Origin(responds(*[counted(b"x")] * MANY)) as origin:
        for number in range(MANY):
            with connect_by_tls(rig, pair[0]) as client:
                client.sendall(get(origin, "/", *["Connection: close"] * (number % 2)))
                assert read_response(client)[1] == b"x"
        nothing_is_referenced(rig, MANY)


def test_nor_are_clients_that_break_a_handshake(tmp_path: Path) -> None:
    with Inside(proxy=NO_POOL, protocol="https", tls=make_pair(tmp_path)) as rig:
        for number in range(MANY):
            with connect(rig) as client, suppress(ConnectionError):
                if number % 2:
                    client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc")
                else:
                    client.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    read_all(client)
        nothing_is_referenced(rig, MANY)


def test_nor_are_clients_that_may_not_have_one_more_connection() -> None:
    with Inside(proxy=NO_POOL, limits=LimitsSpec(connections=1), protocol="mixed") as rig:
        with connect(rig) as first:
            first.sendall(b"GET ")
            until(lambda: rig.inspect(lambda shared: len(shared.connections)) == 1, "it is counted")
            for _ in range(MANY):
                with connect(rig) as client, suppress(ConnectionError):
                    client.sendall(b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n")
                    assert read_all(client)[:13] in (b"HTTP/1.1 429 ", b"")
        nothing_is_referenced(rig, 1)
