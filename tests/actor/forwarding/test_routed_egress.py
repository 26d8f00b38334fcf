"""A proxy whose machine, a network namespace, has networks routed to it; an origin in another one says who has come."""

from __future__ import annotations

import socket
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from actors.bus.messages.specs import EgressSpec
from tests.actor.forwarding.account_client import account, credentials
from tests.actor.forwarding.http_client import connect, read_response
from tests.actor.forwarding.socks_client import address, ask, reply
from tests.kit.forwarding_rig import Rig, until
from tests.kit.routed_network import (
    HERE6,
    NOT_LOCAL,
    ROUTED,
    ROUTED6,
    THERE,
    THERE6,
    FarOrigin,
    run_in_namespaces,
    why_not,
)
from tests.kit.tables import table

ALLOWED = EgressSpec("public_only", (f"{THERE}/32", f"{THERE6}/128", "127.0.0.0/8"), ())
REQUESTS = 40


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    return run_in_namespaces(f"{__name__}:observe")


def observe(origin: FarOrigin) -> dict[str, Any]:
    """Within the namespaces: what the origin and the clients have seen."""
    with Rig(egress=ALLOWED) as rig, Rig(egress=ALLOWED, id="px2", protocol="socks5") as five:
        five.configure(egress=(ROUTED6,), bind_policy="session")
        return {**_over_http(rig, origin), **_over_socks(five, origin)}


def _over_http(rig: Rig, origin: FarOrigin) -> dict[str, Any]:
    rig.configure(egress=(ROUTED6,))
    found: dict[str, Any] = {"random": [_get(rig, origin)[1] for _ in range(REQUESTS)]}
    found["other family"], found["why"] = _get(rig, origin, THERE)
    found["record"] = rig.record(status_code=502)
    rig.configure(bind_policy="session")
    clients = ["127.0.0.5", "127.0.0.6"] * 3
    found["clients"] = [_get(rig, origin, client=each)[1] for each in clients]
    sessions = ["any-session-1", "any-session-2"] * 3
    found["sessions"] = [_get(rig, origin, fields=(credentials(each),))[1] for each in sessions]
    users = ["ada", "bob"] * 3
    rig.configure(bind_policy="account", accounts=(account("ada"), account("bob")), auth_required=True)
    found["accounts"] = [_get(rig, origin, fields=(credentials(each),))[1] for each in users]
    rig.configure(accounts=(), auth_required=False, bind_policy="random", egress=(HERE6, ROUTED))
    found["mixed"] = [_get(rig, origin, target)[1] for target in (THERE6, THERE, THERE)]
    rig.configure(egress=(NOT_LOCAL,))
    found["not local"], _body = _get(rig, origin, THERE)
    found["problem"] = until(lambda: rig.problems.get(("bind_address", "")), "the problem is reported")
    return found


def _over_socks(rig: Rig, origin: FarOrigin) -> dict[str, Any]:
    there = socket.inet_pton(socket.AF_INET6, THERE6)
    control, _code, relay = ask(rig, 3, address(bytes(4), 0))
    with control, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(15)
        client.sendto(b"\0\0\0" + address(there, origin.port) + b"who", relay)
        datagram = client.recv(1000)[22:].decode()
    sock, code, bound = ask(rig, 2, address(there, 0x1234))
    with sock:
        origin.tell(f"{bound[0]} {bound[1]}")
        return {"datagram": datagram, "bound": bound[0], "codes": [code, reply(sock)[0]]}


def _get(
    rig: Rig, origin: FarOrigin, target: str = THERE6, client: str = "127.0.0.1", fields: tuple[str, ...] = ()
) -> tuple[str, str]:
    """Status line and body of a response."""
    host = f"[{target}]" if ":" in target else target
    head = f"GET http://{host}:{origin.port}/ HTTP/1.1\r\nHost: {host}:{origin.port}\r\n"
    with connect(rig) if client == "127.0.0.1" else _connected(rig, client) as sock:
        sock.sendall((head + "".join(f"{each}\r\n" for each in fields) + "\r\n").encode())
        response, body = read_response(sock)
    return response.decode(), body.decode()


def _connected(rig: Rig, client: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", rig.port), 20, source_address=(client, 0))


def are_of(found: list[str], network: str) -> bool:
    return all(ip_address(each) in ip_network(network) for each in found)


def test_at_random_requests_come_from_all_over_the_network(seen: dict[str, Any]) -> None:
    assert are_of(seen["random"], ROUTED6)
    assert len(set(seen["random"])) == REQUESTS
    assert len({each.split(":")[3] for each in seen["random"]}) > REQUESTS // 2


@table("whose", ["clients", "sessions", "accounts"])
def test_each_has_one_address_and_another_one_another(whose: str, seen: dict[str, Any]) -> None:
    one, other, *again = seen[whose]
    assert one != other
    assert again == [one, other] * 2
    assert are_of([one, other], ROUTED6)


def test_a_family_that_has_no_address_is_502(seen: dict[str, Any]) -> None:
    assert seen["other family"].startswith("HTTP/1.1 502 ")
    assert "rule=no_source_address" in seen["other family"]
    assert "no source address" in seen["why"]
    assert seen["record"]["reason"] == "no_source_address"


def test_an_address_of_the_machine_and_a_network_of_the_other_family_go_together(seen: dict[str, Any]) -> None:
    six, *four = seen["mixed"]
    assert six == HERE6
    assert are_of(four, ROUTED)
    assert not {"198.51.100.0", "198.51.100.255"} & set(four)


def test_a_network_that_is_not_local_is_a_problem_of_the_proxy(seen: dict[str, Any]) -> None:
    assert seen["not local"].startswith("HTTP/1.1 503 ")
    assert "not routed to this machine" in seen["problem"]


def test_datagrams_leave_from_the_network_and_bind_listens_there(seen: dict[str, Any]) -> None:
    assert are_of([seen["datagram"], seen["bound"]], ROUTED6)
    assert seen["codes"] == [0, 0]
