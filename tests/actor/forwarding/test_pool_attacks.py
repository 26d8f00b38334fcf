"""What a client can't do to the upstreams that others use, though it has an origin of its own to respond as it likes.

Each upstream here stands for a proxy without `Via` together with such an origin: it passes on what that responds.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from actors.bus.messages.specs import PoolSpec, UpstreamSpec
from actors.forwarding.fleet_objects import FleetObjects
from actors.pools.slot import UpstreamSlot
from actors.pools.state import identity, known_state
from tests.actor.forwarding.http_client import connect, read_response
from tests.kit.forwarding_rig import Rig
from tests.kit.scripted_origins import Origin, Script, counted, responds
from tests.kit.tables import table
from tests.kit.upstreams import of_rig, upstream_entry, upstream_list
from tests.kit.wait import wait_until

COOLDOWN = (("connect", 1.0, 60.0), ("407", 60.0, 600.0), ("429", 30.0, 300.0), ("5xx", 5.0, 60.0))
FORGED = "Proxy-Status: up; error=proxy_internal_error"
A_DAY = "Retry-After: 86400"


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig() as shared:
        yield shared


def passes_on(status: int, *fields: str) -> Script:
    """The origin's response of this status, whatever comes."""
    lines = "".join(f"{field}\r\n" for field in fields)

    def script(sock: socket.socket) -> None:
        sock.recv(65536)
        sock.sendall(f"HTTP/1.1 {status} No\r\n{lines}Content-Length: 0\r\n\r\n".encode())
        sock.close()

    return script


def speaks_for_the_upstream(sock: socket.socket) -> None:
    """An origin that responds 429 in the name of the proxy that has asked it."""
    name = sock.recv(65536).partition(b"\r\nVia: ")[2].partition(b"\r\n")[0].split()[-1]
    status = b"Proxy-Status: %b; error=proxy_internal_error" % name
    sock.sendall(b"HTTP/1.1 429 No\r\n%b\r\n%b\r\nContent-Length: 0\r\n\r\n" % (status, A_DAY.encode()))
    sock.close()


def use(rig: Rig, *upstreams: UpstreamSpec) -> list[UpstreamSlot]:
    """The proxy has a pool of these upstreams; what all proxies know of them."""
    entries = upstream_list(*upstreams, policy="failover")
    name = f"p{upstreams[0].port}"
    pool = PoolSpec(f"pool_{name}", name, 1, entries, cooldown=COOLDOWN, retry_statuses=(407, 429, 502, 503))
    rig.configure(FleetObjects(pools=(pool,)), pool=name)
    assert ask(rig, "target.invalid") is not None
    return list(known_state(rig.run_dir.pools, pool.id, [identity(each) for each in entries.entries]).values())


def ask(rig: Rig, target: str) -> bytes:
    """The head of the response to a GET of this target."""
    with connect(rig) as client:
        client.sendall(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        return read_response(client)[0]


def usable(slots: list[UpstreamSlot]) -> bool:
    return all(each.eligible(time.monotonic()) and not each.is_down for each in slots)


@table(("status", "fields"), [(503, (A_DAY,)), (503, (FORGED, A_DAY)), (429, (FORGED, A_DAY)), (401, (FORGED, A_DAY))])
def test_what_comes_of_one_target_leaves_all_upstreams_in_use(rig: Rig, status: int, fields: tuple[str, ...]) -> None:
    script = passes_on(status, *fields)
    with Origin(script) as one, Origin(script) as two:
        slots = use(rig, upstream_entry(one.port), upstream_entry(two.port))
        for _ in range(5):
            assert ask(rig, "target.example").startswith(b"HTTP/1.1 %d " % status)
        assert one.connections == 6
        assert usable(slots)


@table(("own", "cooldown"), [(429, "429"), (204, "")])
def test_behind_three_targets_the_upstream_itself_is_asked_and_believed(rig: Rig, own: int, cooldown: str) -> None:
    """Its own response to OPTIONS decides, and how long it wants to be left alone."""
    asked: list[bytes] = []

    def upstream(sock: socket.socket) -> None:
        method = sock.recv(65536).split()[0]
        asked.append(method)
        status, wait = (own, 500) if method == b"OPTIONS" else (429, 86_400)
        fields = f"{FORGED}\r\nRetry-After: {wait}\r\nContent-Length: 0"
        sock.sendall(f"HTTP/1.1 {status} No\r\n{fields}\r\n\r\n".encode())
        sock.close()

    with Origin(upstream) as one:
        (slot,) = use(rig, upstream_entry(one.port))
        for host in ("a.example", "a.example", "www.a.example", "b.example"):
            assert b"OPTIONS" not in asked
            ask(rig, host)
        wait_until(lambda: b"OPTIONS" in asked and slot.health(0.0).failures != 2, "it was asked")
        wait_until(lambda: slot.health(time.monotonic()).cooldown == cooldown, "its own response has decided")
        health = slot.health(time.monotonic())
        assert health.cooldown_until <= time.monotonic() + 500


def test_an_origin_behind_upstreams_that_speaks_in_their_name_takes_none_from_others(rig: Rig) -> None:
    with Rig(id="px-one") as one, Rig(id="px-two") as two:
        slots = use(rig, of_rig(one), of_rig(two))
        with Origin(speaks_for_the_upstream) as evil:
            for host in ("127.0.0.1", "a.localhost", "b.localhost", "c.localhost", "d.localhost") * 3:
                assert ask(rig, f"{host}:{evil.port}").startswith(b"HTTP/1.1 429 ")
                with Origin(responds(counted(b"one"))) as other:
                    assert ask(rig, other.authority).startswith(b"HTTP/1.1 200 ")
            assert evil.connections >= 15
        wait_until(lambda: usable(slots), "the upstreams have said that it wasn't them")
