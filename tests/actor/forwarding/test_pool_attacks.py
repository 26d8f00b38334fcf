"""What a client can't do to the upstreams that others use, though it has an origin of its own to respond as it likes.

Each upstream here stands for a proxy without `Via` together with such an origin: it passes on what that responds.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from actors.bus.messages.fleet_objects import PoolSpec
from actors.forwarding.fleet_objects import FleetObjects
from actors.forwarding.upstreams.pool_upstream_set import FORWARDED_WAIT_MAX
from actors.pools.slot import Slot
from actors.pools.state import identity, known_state
from tests.actor.forwarding.http_client import connect, read_response
from tests.kit.forwarding_rig import Rig
from tests.kit.scripted_origins import Origin, Script
from tests.kit.upstreams import upstream_entry, upstream_list
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


def slots_after(rig: Rig, *upstreams: Origin, times: int = 1) -> list[Slot]:
    """What all proxies know of the upstreams behind this many requests, each of which must have a response."""
    entries = upstream_list(*(upstream_entry(each.port) for each in upstreams), policy="failover")
    name = f"p{upstreams[0].port}"
    pool = PoolSpec(f"pool_{name}", name, 1, entries, cooldown=COOLDOWN, retry_statuses=(407, 429, 502, 503))
    rig.configure(FleetObjects(pools=(pool,)), pool=name)
    for _ in range(times):
        with connect(rig) as client:
            client.sendall(b"GET http://target.example/ HTTP/1.1\r\nHost: target.example\r\n\r\n")
            assert read_response(client)[0].startswith(b"HTTP/1.1 ")
    known = known_state(rig.run_dir.pools, pool.id, [identity(each) for each in entries.entries])
    return list(known.values())


def test_an_origin_that_asks_to_come_back_tomorrow_leaves_all_upstreams_in_use(rig: Rig) -> None:
    script = passes_on(503, A_DAY)
    with Origin(script) as one, Origin(script) as two:
        slots = slots_after(rig, one, two, times=3)
        assert (one.connections, two.connections) == (3, 3)
    assert [each.eligible(time.monotonic()) for each in slots] == [True, True]


def test_an_origin_can_t_have_the_credentials_for_an_upstream_taken_for_wrong(rig: Rig) -> None:
    with Origin(passes_on(401, FORGED, A_DAY)) as one:
        (slot,) = slots_after(rig, one, times=2)
        assert one.connections == 2
    assert slot.eligible(time.monotonic())
    assert not slot.is_down


@pytest.mark.parametrize("status", [429, 503])
def test_an_origin_that_seems_to_be_the_upstream_has_it_left_alone_for_minutes_not_for_a_day(
    rig: Rig, status: int
) -> None:
    with Origin(passes_on(status, FORGED, A_DAY)) as one:
        (slot,) = slots_after(rig, one)
        until = wait_until(lambda: slot.ready_at, "the upstream is left alone")
    assert time.monotonic() < until <= time.monotonic() + FORWARDED_WAIT_MAX
