"""Pools of proxies of others, as they are: what one client's dead target does to the sessions of others.

Each program has its own way to say that a target can't be reached: tinyproxy responds 500, squid 503, dante replies 5
or 1, and others close the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.kit.closing_proxies import closing_http, closing_socks5
from tests.kit.curl import curl
from tests.kit.product import Product
from tests.kit.scripted_origins import Origin, Script, counted, responds
from tests.kit.upstreams import closed_port
from tests.product.e2e.foreign.entrances import Entrance, MakeEntrance
from tests.product.e2e.foreign.programs import dante, needs, pproxy, squid, tinyproxy

pytestmark = [pytest.mark.product, needs("curl")]

# The ports, and so the hashes, are new each time: this many fall on one of three upstreams once in 170,000 runs.
SESSIONS = range(1, 13)
Exits = tuple[str, list[int]]
"""A protocol, and the ports of three upstreams."""


def _tinyproxies(stack: ExitStack, _pair: tuple[str, str]) -> Exits:
    return "http", [stack.enter_context(tinyproxy()).ports["http"] for _ in range(3)]


def _squids(stack: ExitStack, pair: tuple[str, str]) -> Exits:
    return "http", [stack.enter_context(squid(*pair)).ports["http"] for _ in range(3)]


def _pproxies(protocol: str) -> Callable[[ExitStack, tuple[str, str]], Exits]:
    return lambda stack, _pair: (protocol, [stack.enter_context(pproxy()).ports[protocol] for _ in range(3)])


def _dantes(stack: ExitStack, _pair: tuple[str, str]) -> Exits:
    return "socks5", [stack.enter_context(dante()).ports["socks5"] for _ in range(3)]


def _scripted(protocol: str, script: Script) -> Callable[[ExitStack, tuple[str, str]], Exits]:
    return lambda stack, _pair: (protocol, [stack.enter_context(Origin(script)).port for _ in range(3)])


PROGRAMS = [
    pytest.param(_tinyproxies, id="tinyproxy", marks=needs("tinyproxy")),
    pytest.param(_squids, id="squid", marks=needs("squid")),
    pytest.param(_dantes, id="dante", marks=needs("danted")),
    pytest.param(_pproxies("http"), id="pproxy", marks=needs("pproxy")),
    pytest.param(_pproxies("socks5"), id="pproxy-socks5", marks=needs("pproxy")),
    pytest.param(_scripted("http", closing_http), id="closing"),
    pytest.param(_scripted("socks5", closing_socks5), id="closing-socks5"),
]


@contextmanager
def pool(product: Product, exits: Exits) -> Iterator[str]:
    """A pool of these upstreams, deleted behind the test."""
    protocol, ports = exits
    upstreams = [{"name": f"up{port}", "protocol": protocol, "host": "127.0.0.1", "port": port} for port in ports]
    name = f"others-{ports[0]}"
    product.data("POST", "/pools", {"name": name, "policy": "sticky", "upstreams": upstreams})
    yield name
    product.data("DELETE", f"/pools/{name}")


def ask(child: Entrance, user: str, url: str, *options: str) -> int:
    """The status that the client gets, of the proxy or the target."""
    return curl("-x", f"http://{user}:x@127.0.0.1:{child.port}", *options, url)[0]


def exits_of_sessions(child: Entrance, origin: Origin, records: int) -> list[str]:
    """The upstreams that the sessions of another client go through; there were so many records before."""
    users = [f"bob-session-{number}" for number in SESSIONS]
    assert [ask(child, user, f"http://{origin.authority}/") for user in users] == [200] * len(users)
    return [str(each["parent"]) for each in child.records(records + len(users))[records:]]


@pytest.mark.parametrize("program", PROGRAMS)
def test_one_client_with_a_dead_target_takes_no_upstream_and_moves_no_session(
    entrance: MakeEntrance, pair: tuple[str, str], program: Callable[[ExitStack, tuple[str, str]], Exits]
) -> None:
    with ExitStack() as stack:
        # An upstream may keep one connection for all of it.
        origin = stack.enter_context(Origin(responds(*[counted(b"one")] * 2 * len(SESSIONS))))
        exits = program(stack, pair)
        child = entrance("http", username_params={"enabled": True})
        name = stack.enter_context(pool(child.product, exits))
        child.product.data("PATCH", f"/proxies/{child.detail['id']}", {"pool": name})
        before = exits_of_sessions(child, origin, 0)
        assert len(set(before)) > 1, "sessions are spread"
        dead, asked = f"http://127.0.0.1:{closed_port()}/", len(SESSIONS)
        for user in ("eve", "eve-session-99"):
            for options in ((), ("-p",)):
                for _ in range(4):
                    ask(child, user, dead, *options)
                    asked += 1
                status = child.product.data("GET", f"/pools/{name}")["pool"]["status"]
                assert (status["down"], status["cooling_down"]) == (0, 0), status
        assert exits_of_sessions(child, origin, asked) == before
        child.product.data("PATCH", f"/proxies/{child.detail['id']}", {"pool": None})
