"""Upstreams that fail, lie or are slow: which is chosen then, what clients receive, and what operators see of it."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import bcrypt
import pytest

from actors.bus.messages.forwarding import ConnectionFilter, Explain, QueryConnections
from actors.bus.messages.specs import AccessSpec, EgressSpec, QueryUpstreams, UpstreamSpec, UpstreamState
from actors.forwarding.access.authenticator import prehash
from actors.forwarding.upstreams.route import ATTEMPTS_MAX
from actors.net.proxy_protocol import LOCAL_V2, build_v2, read_header
from tests.actor.forwarding.http_client import connect, get, read_response, tunnel
from tests.kit.certificates import make_pair
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, Script, counted, echoes, read_all, read_head, responds
from tests.kit.tables import table
from tests.kit.upstreams import closed_port, of_rig, upstream_entry, upstream_list

TARGET = "target.example:443"
REFUSED_TO_US = b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=theirs\r\nContent-Length: 2\r\n\r\nno"


ENDS = ("2001:db8::7", 56324), ("2001:db8::1", 443)


@pytest.fixture(scope="module")
def child() -> Iterator[Rig]:
    with Rig() as shared:
        yield shared


@pytest.fixture(scope="module")
def good() -> Iterator[Rig]:
    """An upstream that works."""
    with Rig(id="px-good") as shared:
        yield shared


def states(rig: Rig) -> dict[str, UpstreamState]:
    return {state.name: state for state in rig.ask(QueryUpstreams()).states}


def ask_connect(rig: Rig, target: str = TARGET, *fields: str) -> bytes:
    """The response to CONNECT."""
    with connect(rig) as client:
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", *fields]
        client.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        return read_head(client)


def says(reply: bytes) -> Script:
    """Whatever comes, say this and close."""

    def script(sock: socket.socket) -> None:
        sock.recv(65536)
        sock.sendall(reply)
        sock.close()

    return script


def scripted(origin: Origin, protocol: str = "http", **changes: object) -> UpstreamSpec:
    return upstream_entry(origin.port, protocol, **changes)


HOSTILE = [
    ("http", b"HTTP/1.1 200"),
    ("http", b"HTTP/1.1 200 OK\r\nX: y\r\n"),
    ("http", b"\x00" * 100),
    ("http", b"HTTP/1.1 200 OK\nX: y\n\n"),
    ("http", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 30_000),
    ("http", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    ("http", REFUSED_TO_US),
    ("socks4", b"\x00"),
    ("socks4", b"\xff" * 8),
    ("socks5", b"\x05"),
    ("socks5", b"\x05\x09"),
    ("socks5", b"\x05\xff"),
    ("socks5", b"HTTP/1.1 400 Bad\r\n\r\n"),
    ("socks5", b"\x05\x00\x05\x00\x00\x03"),
    ("socks5", b"\x05\x00\x05\x00\x00\x07\x00\x00"),
    ("https", b"HTTP/1.1 400 no TLS here\r\n\r\n"),
    ("https", b"\x16\x03\x03\x00\x02\x00\x00"),
]


CUT = {HOSTILE[0], HOSTILE[1], ("socks4", b"\x00"), ("socks5", b"\x05\x00\x05\x00\x00\x03")}
"""These end behind the target, which may be the cause: two more targets decide."""


@table(("protocol", "reply"), HOSTILE)
def test_an_upstream_that_does_not_speak_its_protocol_is_502_marked_down_and_passed_over(
    child: Rig, good: Rig, protocol: str, reply: bytes
) -> None:
    with Origin(says(reply)) as bad, Origin(echoes) as target:
        spec = scripted(bad, protocol)
        child.configure(upstreams=upstream_list(spec))
        response = ask_connect(child)
        assert response.startswith(b"HTTP/1.1 502 ")
        assert str(bad.port).encode() not in response, "clients do not learn where the upstreams are"
        assert b"theirs" not in response
        assert states(child)[spec.name].state == ("unknown" if (protocol, reply) in CUT else "down")
        child.configure(upstreams=upstream_list(spec, of_rig(good)))
        with tunnel(child, target) as client:
            client.sendall(b"hello")
            assert client.recv(10) == b"hello"


def test_a_407_of_the_only_upstream_is_not_handed_to_the_client(child: Rig) -> None:
    with Origin(responds(*[REFUSED_TO_US] * 9)) as bad, Origin(responds(counted(b"one"))) as origin:
        spec = scripted(bad, username="u", password="wrong")
        child.configure(upstreams=upstream_list(spec))
        with connect(child) as client:
            client.sendall(get(origin))
            head, _body = read_response(client)
            assert head.startswith(b"HTTP/1.1 502 ")
            assert b"error=proxy_configuration_error" in head
            assert b"Proxy-Authenticate" not in head
            until(lambda: states(child)[spec.name].state == "down", "a request of the proxy itself has shown it")


@table("credentials", [{"username": "alice", "password": "secret"}, {}])
def test_a_407_of_an_origin_brings_no_upstream_down(child: Rig, good: Rig, credentials: dict[str, str]) -> None:
    hashed = bcrypt.hashpw(prehash(b"secret"), bcrypt.gensalt(4)).decode()
    wanted = {"auth_username": "alice", "auth_hash": hashed} if credentials else {}
    with Rig(id="px-above", **wanted) as above, Origin(responds(*[REFUSED_TO_US] * 9)) as origin:
        specs = of_rig(above, **credentials), of_rig(good)
        child.configure(upstreams=upstream_list(*specs))
        for _ in range(3):
            with connect(child) as client:
                client.sendall(get(origin))
                assert read_response(client)[0].startswith(b"HTTP/1.1 502 ")
            until(lambda: above.record(method="OPTIONS"), "the proxy has asked the upstream itself")
        with Origin(responds(counted(b"one"))) as other, connect(child) as client:
            client.sendall(get(other))
            assert read_response(client)[1] == b"one"
        until(lambda: {state.state for state in states(child).values()} == {"up"}, "they are up")
        assert [state.failures for state in states(child).values()] == [0, 0]
        assert "upstream_down" not in {each[0] for each in child.problems}


def test_a_trace_that_the_proxy_answers_itself_says_nothing_of_the_upstream(child: Rig) -> None:
    with Origin(responds(*[REFUSED_TO_US] * 9)) as bad, Origin(responds(counted(b"one"))) as origin:
        spec = scripted(bad, username="u", password="wrong")
        child.configure(upstreams=upstream_list(spec))
        for request, status in ((get(origin), b"502"), (get(origin).replace(b"GET", b"TRACE", 1), b"405")):
            with connect(child) as client:
                client.sendall(request)
                assert read_response(client)[0].split()[1] == status
            until(lambda: states(child)[spec.name].state == "down", "a request of the proxy itself has shown it")


def test_of_two_upstreams_the_one_that_takes_our_credentials_gets_a_request_without_a_body(
    child: Rig, good: Rig
) -> None:
    with Origin(responds(REFUSED_TO_US)) as bad, Origin(responds(*[counted(b"one")] * 2)) as origin:
        spec = scripted(bad, username="u", password="wrong")
        child.configure(upstreams=upstream_list(spec, of_rig(good)))
        with connect(child) as client:
            client.sendall(get(origin))
            assert read_response(client)[1] == b"one"
            until(lambda: states(child)[spec.name].state == "down", "a request of the proxy itself has shown it")


def test_a_request_with_a_body_is_not_sent_to_a_second_upstream(child: Rig, good: Rig) -> None:
    with Origin(responds(REFUSED_TO_US)) as bad, Origin(responds(counted(b"one"))) as origin:
        spec = scripted(bad, username="u", password="wrong")
        child.configure(upstreams=upstream_list(spec, of_rig(good)))
        with connect(child) as client:
            url = f"http://{origin.authority}/"
            client.sendall(f"POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab".encode())
            assert read_response(client)[0].startswith(b"HTTP/1.1 502 ")


def test_what_a_request_carries_to_an_upstream(child: Rig) -> None:
    heads: list[bytes] = []

    def listen(sock: socket.socket) -> None:
        while head := read_head(sock):
            heads.append(head)
            sock.sendall(counted(b"one"))

    with Origin(listen) as above:
        child.configure(upstreams=upstream_list(scripted(above, username="us", password="ours")))
        with connect(child) as client:
            client.sendall(
                b"GET http://Target.example/a?b HTTP/1.1\r\nHost: other.example\r\n"
                b"Proxy-Authorization: Basic Y2xpZW50OnRoZWlycw==\r\nX: y\r\n\r\n"
            )
            assert read_response(client)[1] == b"one"
            client.sendall(b"GET http://target.example:8080 HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read_response(client)[1] == b"one"
        assert above.connections == 1, "one connection to the upstream serves for both targets"
    ours = base64.b64encode(b"us:ours")
    assert heads[0].startswith(b"GET http://target.example/a?b HTTP/1.1\r\n")
    assert heads[1].startswith(b"GET http://target.example:8080/ HTTP/1.1\r\n")
    for head in heads:
        assert head.count(b"Proxy-Authorization") == 1
        assert b"Proxy-Authorization: Basic " + ours in head
    assert b"\r\nHost: target.example\r\n" in heads[0]
    assert b"\r\nX: y\r\n" in heads[0]


def test_a_target_that_the_upstream_can_not_reach_says_nothing_against_the_upstream(child: Rig, good: Rig) -> None:
    child.configure(upstreams=upstream_list(of_rig(good), upstream_entry(closed_port())))
    response = ask_connect(child, f"127.0.0.1:{closed_port()}")
    assert response.startswith(b"HTTP/1.1 502 ")
    assert b"error=connection_refused" in response
    sent = states(child)
    assert [state.state for state in sent.values()] == ["up", "unknown"]


def test_for_one_request_so_many_upstreams_are_tried_and_no_more(child: Rig) -> None:
    child.configure(upstreams=upstream_list(*(upstream_entry(closed_port()) for _ in range(ATTEMPTS_MAX + 2))))
    assert ask_connect(child).startswith(b"HTTP/1.1 502 ")
    assert [each.failures for each in states(child).values()] == [1] * ATTEMPTS_MAX + [0, 0]


def test_with_all_upstreams_down_the_one_that_failed_longest_ago_is_tried_first(child: Rig) -> None:
    one, other = upstream_entry(closed_port()), upstream_entry(closed_port())
    child.configure(upstreams=upstream_list(one, other))
    for target in ("first.example:443", "second.example:443"):
        assert ask_connect(child, target).startswith(b"HTTP/1.1 502 ")
    tried = child.record(target_url="second.example:443")["detail"]
    assert 0 < tried.index(one.name) < tried.index(other.name)


def test_an_https_upstream_whose_certificate_is_not_trusted_is_not_used(child: Rig, tmp_path: Path) -> None:
    with Rig(protocol="https", tls=make_pair(tmp_path), id="px-above") as above, Origin(echoes) as target:
        child.configure(upstreams=upstream_list(of_rig(above)))
        assert b"error=tls_certificate_error" in ask_connect(child, target.authority)
        assert target.connections == 0
        child.configure(upstreams=upstream_list(of_rig(above, verify=False)))
        tunnel(child, target).close()


def test_with_all_upstreams_down_the_answer_comes_at_once_and_the_report_names_each_until_one_is_back() -> None:
    port = closed_port()
    with Rig() as rig:
        back, dead = upstream_entry(port), upstream_entry(closed_port())
        rig.configure(upstreams=upstream_list(back, dead))
        until(lambda: rig.reports, "a first report")
        assert rig.problems == {}
        for _ in range(3):
            assert ask_connect(rig).startswith(b"HTTP/1.1 502 ")
        none = ("upstreams_unreachable", "")
        until(lambda: none in rig.problems, "none can be reached")
        assert rig.problems.keys() == {("upstream_down", back.name), ("upstream_down", dead.name), none}
        assert rig.problems[none].startswith("no upstream can be reached (2 in all); the last: ")
        assert str(port) in rig.problems["upstream_down", back.name]
        assert [each.serves for each in rig.reports[-1].problems] == [True, True, False]
        with socket.create_server(("127.0.0.1", port)):
            rig.configure(upstreams=upstream_list(back, dead, check_enabled=True, check_interval=1))
            until(lambda: len(rig.over) == 2, "one is back")
            assert rig.problems.keys() == {("upstream_down", dead.name)}
            assert {each[:2] for each in rig.over} == {none, ("upstream_down", back.name)}


def test_a_new_list_of_upstreams_that_works_ends_all_problems_of_the_one_before(good: Rig) -> None:
    with Rig() as rig, Origin(echoes) as target:
        gone = upstream_entry(closed_port())
        rig.configure(upstreams=upstream_list(gone))
        assert ask_connect(rig).startswith(b"HTTP/1.1 502 ")
        rig.configure(upstreams=upstream_list(of_rig(good)))
        with tunnel(rig, target):
            until(lambda: rig.reports and rig.problems == {} and len(rig.over) == 2, "all is over")
        assert {each[:2] for each in rig.over} == {("upstream_down", gone.name), ("upstreams_unreachable", "")}


@table("left", [0, 1])
def test_an_upstream_that_is_removed_while_it_is_down_is_no_problem_any_more(left: int) -> None:
    kept, gone = upstream_entry(closed_port()), upstream_entry(closed_port())
    with Rig() as rig:
        rig.configure(upstreams=upstream_list(kept, gone))
        assert ask_connect(rig).startswith(b"HTTP/1.1 502 ")
        until(lambda: len(rig.problems) == 3, "both are down, and none reachable")
        rig.configure(upstreams=upstream_list(*[kept][:left]))
        until(lambda: len(rig.problems) == 2 * left, "what concerned it is over")
    removed = {
        ("upstream_down", each.name, f"the upstream {each.name} was removed")
        for each in ([gone] if left else [kept, gone])
    }
    nothing_left = set() if left else {("upstreams_unreachable", "", "there are no upstreams any more")}
    assert set(rig.over) == removed | nothing_left


def test_checks_find_a_dead_upstream_before_a_client_does(child: Rig, good: Rig) -> None:
    dead = upstream_entry(closed_port(), "socks5")
    child.configure(upstreams=upstream_list(dead, of_rig(good), check_enabled=True))
    until(lambda: [state.state for state in states(child).values()] == ["down", "up"], "both are known")
    failures = states(child)[dead.name].failures
    with Origin(echoes) as target, tunnel(child, target):
        assert states(child)[dead.name].failures == failures, "the client was not sent there"


def test_checks_know_a_socks5_upstream_that_does_not_accept_the_password(child: Rig) -> None:
    with Origin(says(b"\x05\xff")) as bad:
        child.configure(
            upstreams=upstream_list(scripted(bad, "socks5", username="u", password="p"), check_enabled=True)
        )
        state = until(lambda: next((s for s in states(child).values() if s.state == "down"), None), "it is down")
        assert "accepts none" in state.last_error


@table("protocol", ["http", "https"])
def test_checks_know_an_http_upstream_that_does_not_accept_the_password_and_that_it_does_again(
    child: Rig, tmp_path: Path, protocol: str
) -> None:
    hashed = bcrypt.hashpw(prehash(b"secret"), bcrypt.gensalt(4)).decode()
    pair = make_pair(tmp_path) if protocol == "https" else None
    with Rig(protocol=protocol, tls=pair, auth_username="alice", auth_hash=hashed) as above:
        wrong = of_rig(above, username="alice", password="wrong", verify=False)
        child.configure(upstreams=upstream_list(wrong, check_enabled=True))
        state = until(lambda: next((s for s in states(child).values() if s.state == "down"), None), "it is down")
        assert state.last_error == "it responds 407: it wants other credentials"
        above.configure(auth_hash=bcrypt.hashpw(prehash(b"wrong"), bcrypt.gensalt(4)).decode())
        until(lambda: [s.state for s in states(child).values()] == ["up"], "a check finds that it was mended")
        assert above.record(method="OPTIONS", status_code=200)["user"] == "alice"


@table(
    "reply",
    [b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 500 No\r\n\r\n", b"220 not HTTP\r\n\r\n", b""],
)
def test_checks_think_nothing_of_an_upstream_that_takes_no_options(child: Rig, reply: bytes) -> None:
    with Origin(says(reply)) as above:
        child.configure(upstreams=upstream_list(scripted(above, username="u", password="p"), check_enabled=True))
        until(lambda: [s.state for s in states(child).values()] == ["up"], "it is up")
        assert [s.failures for s in states(child).values()] == [0]


def test_an_upstream_that_is_silent_to_options_counts_as_reached(child: Rig) -> None:
    with Origin(lambda sock: read_all(sock) and None) as above:
        spec = scripted(above, username="u", password="p")
        child.configure(upstreams=upstream_list(spec, check_enabled=True, check_timeout=0.2))
        until(lambda: [s.state for s in states(child).values()] == ["up"], "it is up")


def test_an_upstream_without_credentials_is_only_connected_to(child: Rig) -> None:
    received: list[bytes] = []
    with Origin(lambda sock: received.append(read_all(sock))) as above:
        child.configure(upstreams=upstream_list(scripted(above), check_enabled=True))
        until(lambda: [s.state for s in states(child).values()] == ["up"], "it is up")
        until(lambda: received, "the check is over")
    assert received == [b""]


def test_an_upstream_that_hangs_in_its_handshake_is_left_for_the_next(child: Rig, good: Rig) -> None:
    with Origin(lambda sock: read_all(sock) and None) as hung, Origin(echoes) as target:
        spec = scripted(hung, "socks5")
        child.configure(upstreams=upstream_list(spec, of_rig(good), check_timeout=3.0))
        with tunnel(child, target) as client:
            client.sendall(b"hello")
            assert client.recv(10) == b"hello"
        state = states(child)[spec.name]
        assert (state.state, "within 3 s" in (state.last_error or "")) == ("down", True)


def test_round_robin_and_counters() -> None:
    with Rig(id="px-a") as one, Rig(id="px-b") as two, Rig() as rig, Origin(echoes) as target:
        rig.configure(upstreams=upstream_list(of_rig(one, weight=2), of_rig(two), policy="round_robin"))
        opened = [tunnel(rig, target) for _ in range(6)]
        sent = list(states(rig).values())
        assert [(state.connections, state.active) for state in sent] == [(4, 4), (2, 2)]
        page = rig.ask(QueryConnections(ConnectionFilter(), "age", 10, 0))
        assert {each.parent for each in page.connections} == {state.name for state in sent}
        for client in opened:
            client.sendall(b"hello")
            assert client.recv(10) == b"hello"
            client.close()
        until(lambda: all(state.active == 0 for state in states(rig).values()), "all uses are over")
        assert [state.bytes_out > 0 for state in states(rig).values()] == [True, True]


def authorization(user: str, password: str) -> str:
    return "Proxy-Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_a_session_word_in_the_user_name_chooses_the_upstream_and_is_no_part_of_the_account() -> None:
    hashed = bcrypt.hashpw(prehash(b"secret"), bcrypt.gensalt(4)).decode()
    scripts = [Origin(says(b"HTTP/1.1 403 %d\r\n\r\n" % number)) for number in range(4)]
    above = upstream_list(*map(scripted, scripts), policy="sticky")
    with Rig(auth_username="alice", auth_hash=hashed, upstreams=above) as rig:

        def used(user: str, password: str = "secret") -> tuple[int, ...]:
            before = [script.connections for script in scripts]
            assert ask_connect(rig, TARGET, authorization(user, password)).startswith(b"HTTP/1.1 403 ")
            return tuple(now.connections - was for now, was in zip(scripts, before, strict=True))

        by_word = {word: used(f"alice-session-{word}") for word in range(20)}
        assert len(set(by_word.values())) > 1
        assert all(used(f"alice-session-{word}") == choice for word, choice in by_word.items())
        assert rig.record(user="alice")["status_code"] == 403
        for user, password in (("alice-session-1", "wrong"), ("bob-session-1", "secret"), ("-session-1", "secret")):
            response = ask_connect(rig, TARGET, authorization(user, password))
            assert response.startswith(b"HTTP/1.1 407 "), user
    for script in scripts:
        script.__exit__()


def test_without_accounts_a_user_name_may_still_bring_a_session_word() -> None:
    scripts = [Origin(says(b"\x05\x00\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00")) for _ in range(3)]
    above = upstream_list(*(scripted(each, "socks5") for each in scripts), policy="sticky")
    with Rig(protocol="socks5", upstreams=above) as rig:
        for word in range(16):
            user = f"x-session-{word}".encode()
            for _ in range(2):
                with connect(rig) as client:
                    client.sendall(b"\x05\x01\x02")
                    assert client.recv(2) == b"\x05\x02"
                    client.sendall(b"\x01" + bytes((len(user),)) + user + b"\x01p")
                    assert client.recv(2) == b"\x01\x00"
                    client.sendall(b"\x05\x01\x00\x03\x0etarget.example\x00\x50")
                    client.recv(64)
        counts = [each.connections for each in scripts]
    assert all(count % 2 == 0 for count in counts)
    assert sum(count > 0 for count in counts) > 1
    for script in scripts:
        script.__exit__()


@table("version", ["v1", "v2"])
def test_an_upstream_learns_of_the_client_and_its_connection_is_no_other_clients(child: Rig, version: str) -> None:
    received: list[object] = []

    def announced(sock: socket.socket) -> None:
        data = read_head(sock)
        header = read_header(data)
        assert header is not None
        received.append(header.source)
        sock.sendall(counted(b"one"))
        sock.recv(1)

    with Origin(announced) as above:
        child.configure(upstreams=upstream_list(scripted(above, proxy_protocol=version)))
        ends = []
        for _ in range(2):
            with connect(child) as client:
                ends.append(client.getsockname())
                client.sendall(b"GET http://target.example/ HTTP/1.1\r\nHost: target.example\r\n\r\n")
                assert read_response(client)[1] == b"one"
        assert above.connections == 2
    assert received == ends


@table("version", ["v1", "v2"])
@table("sent", [build_v2(*ENDS), LOCAL_V2], ids=["a client", "none"])
def test_an_upstream_receives_both_addresses_of_a_client_that_a_balancer_has_announced(
    child: Rig, version: str, sent: bytes
) -> None:
    received: list[object] = []

    def announced(sock: socket.socket) -> None:
        header = read_header(read_head(sock))
        assert header is not None
        received.append(header.ends)
        sock.sendall(counted(b"one"))

    try:
        with Origin(announced) as above:
            child.configure(
                upstreams=upstream_list(scripted(above, proxy_protocol=version)), accept_proxy_protocol=True
            )
            with connect(child) as client:
                own = client.getsockname(), client.getpeername()
                client.sendall(sent + b"GET http://target.example/ HTTP/1.1\r\nHost: target.example\r\n\r\n")
                assert read_response(client)[1] == b"one"
    finally:
        child.configure(accept_proxy_protocol=False)
    assert received == [ENDS if sent != LOCAL_V2 else own]


@table("target", ["127.0.0.1:80", "[::1]:80", "localhost:80", "x.LOCALHOST.:80", "10.1.2.3:80"])
def test_the_guard_holds_for_what_can_be_judged_without_resolving_though_upstreams_are_excepted(target: str) -> None:
    with Origin(says(b"")) as above, Rig(EgressSpec("public_only", (), (), upstreams_allow=("127.0.0.1",))) as rig:
        rig.configure(upstreams=upstream_list(scripted(above)))
        assert b"error=destination_ip_prohibited" in ask_connect(rig, target)
        assert above.connections == 0
        assert ask_connect(rig, "public.example:80").startswith(b"HTTP/1.1 502 ")
        assert above.connections == 1


def test_an_upstream_that_the_guard_refuses_is_never_connected_to_by_clients_or_checks() -> None:
    with Origin(says(b"")) as inside, Rig(EgressSpec("public_only", (), ())) as rig:
        checked = {"check_enabled": True, "check_interval": 1.0}
        rig.configure(
            upstreams=upstream_list(
                upstream_entry(inside.port), replace(upstream_entry(inside.port), host="localhost"), **checked
            )
        )
        assert ask_connect(rig, TARGET).startswith(b"HTTP/1.1 503 ")

        def states() -> list[UpstreamState]:
            return list(rig.ask(QueryUpstreams()).states)

        until(lambda: all(each.failures for each in states()), "both were tried")
        assert {each.state for each in states()} == {"down"}
        assert all("proxy.upstreams_allow" in str(each.last_error) for each in states())
        assert inside.connections == 0


def test_an_upstream_may_be_a_proxy_of_this_service_and_nothing_else_of_it(good: Rig) -> None:
    own, loopback = (("127.0.0.1", good.port),), ("127.0.0.0/8",)
    with Origin(responds(counted(b"yes"))) as origin, Rig(EgressSpec("public_only", loopback, own, (), ())) as rig:
        rig.configure(upstreams=upstream_list(of_rig(good)))
        with connect(rig) as client:
            client.sendall(get(origin))
            assert read_response(client)[1] == b"yes"
        rig.egress = EgressSpec("public_only", loopback, own, own)
        rig.configure()
        assert ask_connect(rig, origin.authority).startswith(b"HTTP/1.1 503 ")


def test_rules_with_names_decide_and_explain_says_so_without_resolving(child: Rig, good: Rig) -> None:
    access = AccessSpec(allow_destinations=("*.example", "192.0.2.0/24"))
    child.configure(upstreams=upstream_list(of_rig(good)), access=access)
    try:
        assert child.ask(Explain("127.0.0.1", None, "a.example:80")).decision == "allow"
        assert child.ask(Explain("127.0.0.1", None, "a.test:80")).reason == "destination_not_allowed"
        assert b"rule=destination_not_allowed" in ask_connect(child, "a.test:80")
    finally:
        child.configure(access=AccessSpec())


@table("command", [2, 3])
def test_upstreams_are_only_asked_to_connect(good: Rig, command: int) -> None:
    with Rig(protocol="socks5", upstreams=upstream_list(of_rig(good))) as rig, connect(rig) as client:
        client.sendall(b"\x05\x01\x00" + bytes((5, command, 0, 1, 0, 0, 0, 0, 0, 0)))
        assert client.recv(2) == b"\x05\x00"
        assert client.recv(2) == b"\x05\x07"


def test_a_chain_in_a_circle_is_found_by_via() -> None:
    with Rig(id="px-one") as one, Rig(id="px-two") as two:
        one.configure(upstreams=upstream_list(of_rig(two)))
        two.configure(upstreams=upstream_list(of_rig(one)))
        response = ask_connect(one)
        assert response.startswith(b"HTTP/1.1 502 ")
        assert b"error=proxy_loop_detected" in response
        with connect(one) as client:
            client.sendall(b"GET http://target.example/ HTTP/1.1\r\nHost: target.example\r\n\r\n")
            assert b"proxy_loop_detected" in read_response(client)[0]


def behind_upstreams(rig: Rig) -> list[bool]:
    """Of each connection, the oldest first."""
    page = rig.ask(QueryConnections(ConnectionFilter(), "-age", 10, 0)).connections
    return [bool(each.parent) for each in page]


def test_a_change_of_upstreams_drops_no_tunnel_and_holds_for_the_next(child: Rig, good: Rig) -> None:
    child.configure(upstreams=upstream_list(of_rig(good)))
    with Origin(echoes) as target, tunnel(child, target) as before:
        child.configure(upstreams=upstream_list())
        before.sendall(b"still")
        assert before.recv(10) == b"still"
        with tunnel(child, target):
            until(lambda: behind_upstreams(child) == [True, False], "only these are open")


def test_an_upstream_that_never_answers_is_504_and_down_after_three_targets() -> None:
    with Origin(lambda sock: read_all(sock) and None) as hung, Rig(timeout=1.0) as rig:
        spec = scripted(hung)
        rig.configure(upstreams=upstream_list(spec))
        for hosts, known in ((("a.example",) * 4, ("unknown", 4)), (("b.example", "c.example"), ("down", 6))):
            clients = [connect(rig) for _ in hosts]
            for host, client in zip(hosts, clients, strict=True):
                client.sendall(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert {read_head(client)[:13] for client in clients} == {b"HTTP/1.1 504 "}
            state = states(rig)[spec.name]
            assert (state.state, state.failures) == known
            for client in clients:
                client.close()


def _has_connections(origin: Origin, count: int) -> bool:
    return origin.connections == count


def test_a_client_that_goes_away_says_nothing_against_the_upstream(child: Rig) -> None:
    with Origin(lambda sock: read_all(sock) and None) as hung:
        spec = scripted(hung)
        child.configure(upstreams=upstream_list(spec))
        for _ in range(4):
            with connect(child) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                connected = hung.connections + 1
                client.sendall(f"CONNECT {TARGET} HTTP/1.1\r\nHost: {TARGET}\r\n\r\n".encode())
                until(partial(_has_connections, hung, connected), "the upstream is connected to")
        assert states(child)[spec.name].failures == 0


def test_an_upstream_that_closes_at_each_connect_is_down_after_three_targets(child: Rig) -> None:
    with Origin(says(b"")) as bad:
        spec = scripted(bad)
        child.configure(upstreams=upstream_list(spec))
        for host, state in (("a.example", "unknown"),) * 4 + (("b.example", "unknown"), ("c.example", "down")):
            assert ask_connect(child, f"{host}:443").startswith(b"HTTP/1.1 502 ")
            assert states(child)[spec.name].state == state


def test_what_two_upstreams_fail_to_reach_says_nothing_against_either(child: Rig) -> None:
    with Origin(says(b"")) as one, Origin(says(b"")) as other:
        child.configure(upstreams=upstream_list(upstream_entry(one.port), upstream_entry(other.port)))
        assert ask_connect(child).startswith(b"HTTP/1.1 502 ")
        assert (one.connections, other.connections) == (1, 1)
        assert [each.failures for each in states(child).values()] == [0, 0]


def test_an_upstream_that_takes_requests_and_answers_none_is_down_after_three_targets(child: Rig, good: Rig) -> None:
    with Origin(says(b"")) as bad, Origin(responds(counted(b"one"))) as origin:
        spec = scripted(bad)
        child.configure(upstreams=upstream_list(spec, of_rig(good)))
        with connect(child) as client:
            for host in ("a.example",) * 4 + ("b.example", "c.example"):
                assert states(child)[spec.name].state == "unknown"
                client.sendall(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                assert read_response(client)[0].startswith(b"HTTP/1.1 502 ")
            until(lambda: states(child)[spec.name].state == "down", "it doesn't respond to the proxy itself either")
            client.sendall(get(origin))
            assert read_response(client)[1] == b"one"


def test_clients_that_break_off_their_requests_say_nothing_against_the_upstream(child: Rig) -> None:
    with Origin(lambda sock: read_all(sock) and None) as slow:
        spec = scripted(slow)
        child.configure(upstreams=upstream_list(spec))
        for count in range(1, 6):
            with connect(child) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                client.sendall(b"GET http://target.example/ HTTP/1.1\r\nHost: target.example\r\n\r\n")
                until(partial(_has_connections, slow, count), "the upstream is connected to")
        until(lambda: states(child)[spec.name].active == 0, "all uses are over")
        assert states(child)[spec.name].failures == 0


def test_least_connections_counts_those_that_a_slow_upstream_has_not_made_yet(child: Rig) -> None:
    released = threading.Event()

    def slow(sock: socket.socket) -> None:
        read_head(sock)
        released.wait(20)
        sock.close()

    with Origin(slow) as one, Origin(slow) as other, ExitStack() as stack:
        child.configure(upstreams=upstream_list(scripted(one), scripted(other), policy="least_connections"))
        for _ in range(6):
            client = stack.enter_context(connect(child))
            client.sendall(f"CONNECT {TARGET} HTTP/1.1\r\nHost: {TARGET}\r\n\r\n".encode())
        until(lambda: one.connections + other.connections == 6, "all are under way")
        assert one.connections == other.connections == 3
        released.set()


def test_explain_names_the_reason_that_a_request_through_upstreams_meets(child: Rig) -> None:
    everything = AccessSpec(deny_destinations=("*",))
    child.configure(upstreams=upstream_list(upstream_entry(closed_port())), access=everything)
    explained = child.ask(Explain("127.0.0.1", None, "10.0.0.1:80"))
    assert explained.reason == "destination_ip_prohibited"
    assert f"error={explained.reason}".encode() in ask_connect(child, "10.0.0.1:80")
    child.configure(access=AccessSpec())
