"""Requests that leave from one of several addresses, between real sockets. All of 127.0.0.0/8 is local to a machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from actors.bus.messages.forwarding import Explain, SourceExplanation
from actors.bus.messages.specs import PolicySpec, PoolSpec, QueryUpstreams, RuleSpec, UpstreamsSpec, UsernameParamsSpec
from actors.forwarding.fleet_objects import FleetObjects
from tests.actor.forwarding.account_client import WORD, account, credentials
from tests.actor.forwarding.connection_pages import page
from tests.actor.forwarding.http_client import connect, get, read_response, tunnel
from tests.actor.forwarding.socks_client import LOOPBACK, address, ask, reply, signed_in
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, Script, counted, echoes, read_head
from tests.kit.upstreams import of_rig, upstream_list

NETWORK = "127.7.0.0/16"
PLAN, RULE = "127.8.0.0/24", "127.9.0.0/24"
THERE6 = bytes(15) + b"\x01"


@pytest.fixture(scope="module")
def http() -> Iterator[Rig]:
    with Rig() as rig:
        yield rig


@pytest.fixture
def rig(http: Rig) -> Rig:
    """Without what the test before has configured."""
    configure(http)
    http.records.clear()
    return http


@pytest.fixture(scope="module")
def five() -> Iterator[Rig]:
    with Rig(protocol="socks5") as rig:
        configure(rig, egress=(NETWORK,), bind_policy="session")
        yield rig


def configure(rig: Rig, *rules: RuleSpec, **changes: Any) -> None:
    plain: dict[str, Any] = {
        "bind_address": "",
        "egress": (),
        "bind_policy": "random",
        "policy": "",
        "accounts": (),
        "auth_required": False,
        "upstreams": UpstreamsSpec(),
        "username_params": None,
    }
    if rules:
        plain["policy"] = "office"
    policies = (PolicySpec("policy_1", "office", rules),) if rules else ()
    rig.configure(FleetObjects(policies=policies), **{**plain, **changes})


class Peers:
    """Where connections and requests of an origin come from."""

    def __init__(self) -> None:
        self.connections: list[str] = []
        self.requests: list[str] = []

    @property
    def script(self) -> Script:
        def respond(sock: socket.socket) -> None:
            self.connections.append(sock.getpeername()[0])
            while read_head(sock):
                self.requests.append(sock.getpeername()[0])
                sock.sendall(counted(b"seen"))

        return respond


def request(client: socket.socket, origin: Origin, *fields: str) -> None:
    client.sendall(get(origin, "/", *fields))
    head, body = read_response(client)
    assert body == b"seen", head


def is_of(address: str, network: str) -> bool:
    return ip_address(address) in ip_network(network)


# --- by what it is chosen ---


def test_at_random_each_request_has_an_address_of_its_own(rig: Rig) -> None:
    configure(rig, egress=(NETWORK,))
    peers = Peers()
    with Origin(peers.script) as origin, connect(rig) as client:
        for _ in range(20):
            request(client, origin)
    assert len(set(peers.requests)) > 10
    assert len(peers.connections) == 20
    assert all(is_of(each, NETWORK) for each in peers.requests)
    until(lambda: len(rig.records) >= 20, "all are recorded")
    assert sorted(each["source_address"] for each in rig.records) == sorted(peers.requests)


def test_a_client_without_a_session_has_one_address_and_its_connections_are_used_again(rig: Rig) -> None:
    configure(rig, egress=(NETWORK,), bind_policy="session")
    peers = Peers()
    with Origin(peers.script) as origin:
        for _ in range(3):
            with connect(rig) as client:
                request(client, origin)
                request(client, origin)
    assert len(set(peers.requests)) == 1
    assert len(peers.connections) == 1


@pytest.mark.parametrize("params", [None, UsernameParamsSpec()])
def test_a_session_of_the_user_name_has_one_address(rig: Rig, params: UsernameParamsSpec | None) -> None:
    accounts = (account("ada"), account("bob"))
    sessions = {"bind_policy": "session", "username_params": params}
    configure(rig, egress=(NETWORK,), accounts=accounts, auth_required=True, **sessions)
    peers = Peers()
    with Origin(peers.script) as origin, connect(rig) as client:
        for user in ("ada-session-1", "ada-session-2", "bob-session-1", "ada", "ada-session-1", "bob"):
            request(client, origin, credentials(user))
    one, two, others, without, again, also_without = peers.requests
    assert len({one, two, others, without}) == 4
    assert (again, also_without) == (one, without)
    said = rig.ask(Explain("127.0.0.1", "ada-session-2", "127.0.0.1:80")).source
    assert (said.policy, said.ipv4) == ("session", two)


def test_on_an_open_proxy_the_user_name_has_a_session_too(rig: Rig) -> None:
    configure(rig, egress=(NETWORK,), bind_policy="session")
    peers = Peers()
    with Origin(peers.script) as origin, connect(rig) as client:
        for user in ("any-session-1", "any-session-2", "any-session-1"):
            request(client, origin, credentials(user))
    assert len(set(peers.requests)) == 2
    assert peers.requests[0] == peers.requests[2]


def test_who_wants_another_address_each_time_says_so(rig: Rig) -> None:
    configure(rig, egress=(NETWORK,), bind_policy="session", username_params=UsernameParamsSpec())
    peers = Peers()
    with Origin(peers.script) as origin, connect(rig) as client:
        for _ in range(10):
            request(client, origin, credentials("any-session-1-rotate"))
    assert len(set(peers.requests)) > 5


def test_each_account_has_its_own_address_and_no_connection_of_another(rig: Rig) -> None:
    accounts = (account("ada"), account("bob"))
    configure(rig, egress=(NETWORK,), bind_policy="account", accounts=accounts, auth_required=True)
    peers = Peers()
    with Origin(peers.script) as origin, connect(rig) as client:
        for user in ("ada", "bob", "ada", "bob"):
            request(client, origin, credentials(user))
    ada, bob, *again = peers.requests
    assert ada != bob
    assert again == [ada, bob]
    assert len(peers.connections) == 2


def test_one_address_in_a_list_is_like_that_address_alone(rig: Rig) -> None:
    configure(rig, egress=("127.0.0.9",))
    peers = Peers()
    with Origin(peers.script) as origin, connect(rig) as client:
        request(client, origin)
        request(client, origin)
    assert (peers.requests, peers.connections) == (["127.0.0.9"] * 2, ["127.0.0.9"])


# --- who says it ---


def test_a_rule_comes_before_the_plan_and_that_before_the_proxy(rig: Rig) -> None:
    accounts = (account("ada", egress=(PLAN,)), account("bob"))
    rule = RuleSpec("elsewhere", paths=("/rule",), egress=(RULE,))
    settings = {"egress": (NETWORK,), "accounts": accounts, "auth_required": True, "bind_policy": "account"}
    configure(rig, rule, **settings)
    peers = Peers()
    with Origin(peers.script) as origin, connect(rig) as client:
        for path, user in (("/", "bob"), ("/", "ada"), ("/rule", "ada"), ("/", "ada")):
            client.sendall(get(origin, path, credentials(user)))
            assert read_response(client)[1] == b"seen"
    assert [is_of(each, of) for each, of in zip(peers.requests, (NETWORK, PLAN, RULE, PLAN), strict=True)] == [True] * 4
    assert peers.requests[1] == peers.requests[3]


def test_of_two_rules_the_one_of_the_plan_says_it(rig: Rig) -> None:
    rules = (RuleSpec("proxy's", egress=(NETWORK,)),)
    objects = FleetObjects(
        policies=(PolicySpec("policy_1", "office", rules), PolicySpec("policy_2", "plan", (RuleSpec(egress=(RULE,)),)))
    )
    rig.configure(objects, policy="office", accounts=(account("ada", policies=("plan",)),), auth_required=True)
    peers = Peers()
    with Origin(peers.script) as origin, connect(rig) as client:
        request(client, origin, credentials("ada"))
    assert is_of(peers.requests[0], RULE)


def test_without_a_list_what_a_plan_says_holds_for_its_accounts_alone(rig: Rig) -> None:
    accounts = (account("ada", egress=(PLAN,)), account("bob"))
    configure(rig, bind_address="127.0.0.9", accounts=accounts, auth_required=True)
    peers = Peers()
    with Origin(peers.script) as origin, connect(rig) as client:
        for user in ("bob", "ada", "bob"):
            request(client, origin, credentials(user))
    assert peers.requests[0] == peers.requests[2] == "127.0.0.9"
    assert is_of(peers.requests[1], PLAN)
    assert len(peers.connections) == 2


def test_addresses_of_a_name_that_rules_send_elsewhere_are_left_out(rig: Rig) -> None:
    """`localhost` is two addresses; the rule about one of them says where that one is left from."""
    rule = RuleSpec("four", destinations=("127.0.0.0/8",), egress=(RULE,))
    configure(rig, rule, RuleSpec("six", destinations=("::1",), egress=("::1",)))
    peers = Peers()
    with Origin(peers.script) as origin, connect(rig) as client:
        client.sendall(f"GET http://localhost:{origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head, _body = read_response(client)
    assert all(is_of(each, RULE) for each in peers.requests)
    assert peers.requests or head.startswith(b"HTTP/1.1 502 ")


# --- a family that has no address ---


def test_a_family_without_an_address_is_502_and_says_by_what(rig: Rig) -> None:
    configure(rig, egress=(NETWORK,))
    with connect(rig) as client:
        client.sendall(b"GET http://[::1]:9/ HTTP/1.1\r\nHost: x\r\n\r\n")
        head, body = read_response(client)
    assert head.startswith(b"HTTP/1.1 502 ")
    assert b"error=destination_ip_unroutable" in head
    assert b"rule=no_source_address" in head
    assert b"no source address" in body
    record = rig.record(status_code=502)
    assert (record["reason"], record["rule"], record["source_address"]) == ("no_source_address", "bind_address", "")


def test_socks_says_that_the_network_is_unreachable(five: Rig) -> None:
    for command in (1, 2):
        sock, code, _bound = ask(five, command, address(THERE6, 9))
        sock.close()
        assert code == 3


def test_an_upstream_of_a_family_without_an_address_is_not_down_for_that(rig: Rig) -> None:
    with Rig(id="px-upstream") as upstream:
        upstreams = upstream_list(of_rig(upstream))
        configure(rig, RuleSpec("six", paths=("/six",), egress=("::1",)), upstreams=upstreams)
        peers = Peers()
        with Origin(peers.script) as origin, connect(rig) as client:
            client.sendall(get(origin, "/six"))
            head, _body = read_response(client)
            assert head.startswith(b"HTTP/1.1 502 ")
            assert b"rule=no_source_address" in head
            [state] = rig.ask(QueryUpstreams()).states
            assert (state.state, state.failures) == ("unknown", 0)
            request(client, origin)


def test_a_rule_may_say_both_the_pool_and_where_its_connections_leave_from(rig: Rig) -> None:
    with Rig(id="px-upstream") as upstream:
        pool = PoolSpec("pool_1", "paris", 1, upstream_list(of_rig(upstream)))
        rules = (RuleSpec("all", use="pool:paris", egress=(RULE,)),)
        rig.configure(FleetObjects(policies=(PolicySpec("policy_1", "office", rules),), pools=(pool,)), policy="office")
        peers = Peers()
        with Origin(peers.script) as origin, connect(rig) as client:
            request(client, origin)
        source = rig.record(parent=f"http-{upstream.port}")["source_address"]
        assert is_of(source, RULE)
        assert upstream.record(status_code=200)["client_ip"] == source


def test_connections_to_upstreams_leave_from_it_too(rig: Rig) -> None:
    with Rig(id="px-upstream") as upstream:
        configure(rig, egress=(NETWORK,), bind_policy="session", upstreams=upstream_list(of_rig(upstream)))
        peers = Peers()
        with Origin(peers.script) as origin, connect(rig) as client:
            request(client, origin)
        source = rig.record(parent=f"http-{upstream.port}")["source_address"]
        assert is_of(source, NETWORK)
        assert upstream.record(status_code=200)["client_ip"] == source


# --- what cannot be used ---


def test_a_network_that_is_not_routed_here_is_a_problem_of_the_proxy(rig: Rig) -> None:
    configure(rig, egress=("198.51.100.0/24",))
    with Origin(Peers().script) as origin, connect(rig) as client:
        client.sendall(get(origin))
        head, _body = read_response(client)
    assert head.startswith(b"HTTP/1.1 503 ")
    detail = until(lambda: rig.problems.get(("bind_address", "")), "the problem is reported")
    assert "198.51.100." in detail
    assert "not routed to this machine" in detail


# --- tunnels, SOCKS ---


def test_a_live_tunnel_says_where_it_leaves_from_and_why(rig: Rig) -> None:
    configure(rig, egress=(NETWORK,))
    with Origin(echoes) as origin, tunnel(rig, origin):
        [live] = [each for each in page(rig).connections if each.state == "tunnel"]
        assert is_of(live.source_address, NETWORK)
        assert live.source_rule == "bind_address"
    assert rig.record(method="CONNECT")["source_address"] == live.source_address


def test_without_any_of_it_nothing_is_said(rig: Rig) -> None:
    with Origin(echoes) as origin, tunnel(rig, origin):
        [live] = [each for each in page(rig).connections if each.state == "tunnel"]
        assert (live.source_address, live.source_rule) == ("", "")
    assert rig.record(method="CONNECT")["source_address"] == ""


def test_bind_listens_at_it(five: Rig) -> None:
    sock, code, bound = ask(five, 2, address(LOOPBACK, 0x1234))
    with sock:
        assert code == 0
        assert is_of(bound[0], NETWORK)
        with socket.create_connection(bound, 15):
            assert reply(sock)[0] == 0


def test_datagrams_of_one_association_leave_from_one_address(five: Rig) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(15)
        target = address(LOOPBACK, peer.getsockname()[1])
        control, _code, relay = ask(five, 3, address(bytes(4), 0))
        with control, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(15)
            sources = []
            for _ in range(3):
                client.sendto(b"\0\0\0" + target + b"hello", relay)
                sources.append(peer.recvfrom(100)[1])
            assert is_of(sources[0][0], NETWORK)
            assert len(set(sources)) == 1
            peer.sendto(b"back", sources[0])
            assert client.recv(100).endswith(b"back")
            live = next(each for each in page(five).connections if each.state == "datagrams")
            assert (live.source_address, live.source_rule) == (sources[0][0], "bind_address")
    assert five.record(method="UDP")["source_address"] == sources[0][0]


def test_datagrams_follow_the_rule_about_their_target() -> None:
    rule = RuleSpec("elsewhere", destinations=("127.0.0.1",), egress=(RULE,))
    accounts = (account("ada", egress=(PLAN,)),)
    with (
        Rig(protocol="socks5", accounts=accounts, auth_required=True) as rig,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        rig.configure(FleetObjects(policies=(PolicySpec("policy_1", "office", (rule,)),)), policy="office")
        peer.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.2", 0))
        with signed_in(rig, "ada", WORD) as control:
            control.sendall(b"\x05\x03\x00" + address(bytes(4), 0))
            _code, relay = reply(control)
            for sock, network in ((peer, RULE), (other, PLAN)):
                sock.settimeout(15)
                host, port = sock.getsockname()
                client.sendto(b"\0\0\0" + address(socket.inet_aton(host), port) + b"hello", relay)
                assert is_of(sock.recvfrom(100)[1][0], network)


# --- explain ---


def test_an_explanation_says_where_from_and_by_what(rig: Rig) -> None:
    accounts = (account("ada", egress=(PLAN,)), account("bob"))
    rule = RuleSpec("elsewhere", destinations=("127.0.0.3",), egress=(RULE, "::1"))
    configure(rig, rule, egress=(NETWORK,), bind_policy="account", accounts=accounts, auth_required=True)
    peers = Peers()
    with Origin(peers.script) as origin, connect(rig) as client:
        request(client, origin, credentials("ada"))
        request(client, origin, credentials("bob"))
    for user, source, by in zip(("ada", "bob"), peers.requests, ("egress of the plan", "bind_address"), strict=True):
        said = rig.ask(Explain("127.0.0.1", user, "127.0.0.1:80")).source
        assert (said.rule, said.policy, said.ipv4, said.ipv6) == (by, "account", source, "")
    said = rig.ask(Explain("127.0.0.1", "ada", "127.0.0.3:80")).source
    assert (said.rule, said.entries, said.ipv6) == ("policy office[0] elsewhere", (RULE, "::1"), "::1")


def test_an_explanation_refuses_a_family_without_an_address(rig: Rig) -> None:
    configure(rig, egress=(NETWORK,))
    said = rig.ask(Explain("127.0.0.1", None, "[::1]:80"))
    assert (said.decision, said.reason, said.stage) == ("deny", "no_source_address", "source")
    assert said.source == SourceExplanation("bind_address", "random", (NETWORK,))
    configure(rig)
    assert rig.ask(Explain("127.0.0.1", None, "127.0.0.1:80")).source is None
