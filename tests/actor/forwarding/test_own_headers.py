"""`headers` of a proxy on the wire: what origins and upstreams receive."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from actors.bus.messages.forwarding import Explain
from actors.bus.messages.specs import PolicySpec, RequestHeadersSpec, RuleSpec
from actors.forwarding.fleet_objects import FleetObjects
from tests.actor.forwarding.http_client import connect, get, read_response, tunnel
from tests.kit.forwarding_rig import Rig
from tests.kit.scripted_origins import Origin, counted, echoes, notes_heads, read_head
from tests.kit.upstreams import of_rig, upstream_entry, upstream_list

WANTED = RequestHeadersSpec("rfc7239", (("X-Team", "blue"),), ("Cookie", "Authorization"))
SECRETS = ("Cookie: c=1", "Authorization: Basic YTpi", "x_team: forged")


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig(request_headers=WANTED) as shared:
        yield shared


def fields_of(head: bytes) -> list[bytes]:
    """Those that a client of the tests doesn't send."""
    return head.removesuffix(b"\r\n\r\n").split(b"\r\n")[2:]


def element(origin: Origin, by: bytes = b"_proxyfleet-px1") -> bytes:
    return b'Forwarded: for=127.0.0.1;host="%b";proto=http;by=%b' % (origin.authority.encode(), by)


def test_origins_get_what_is_set_and_nothing_that_is_removed(rig: Rig) -> None:
    seen: list[bytes] = []
    rig.configure(request_headers=WANTED)
    with Origin(notes_heads(seen)) as origin, connect(rig) as client:
        for _ in range(2):  # the second head is a remembered one
            client.sendall(get(origin, "/", *SECRETS))
            read_response(client)
            client.sendall(get(origin))
            read_response(client)
        ours = [b"Via: 1.1 proxyfleet-px1", b"X-Team: blue", element(origin)]
        assert [fields_of(head) for head in seen] == [ours] * 4


def test_a_change_holds_for_the_next_request_of_an_open_connection(rig: Rig) -> None:
    seen: list[bytes] = []
    with Origin(notes_heads(seen)) as origin, connect(rig) as client:
        for wanted in (RequestHeadersSpec(), RequestHeadersSpec("x-forwarded-for"), RequestHeadersSpec()):
            rig.configure(request_headers=wanted, via="off")
            client.sendall(get(origin))
            read_response(client)
    rig.configure(via="pseudonym")
    assert [fields_of(head) for head in seen] == [[], [b"X-Forwarded-For: 127.0.0.1"], []]


def test_a_rule_of_a_policy_has_the_last_word(rig: Rig) -> None:
    seen: list[bytes] = []
    rule = RuleSpec("red", set_headers=(("X-Team", "red"),), remove_headers=("Forwarded",))
    rig.configure(
        FleetObjects(policies=(PolicySpec("policy_1", "office", (rule,)),)), request_headers=WANTED, policy="office"
    )
    with Origin(notes_heads(seen)) as origin, connect(rig) as client:
        client.sendall(get(origin, "/", *SECRETS))
        read_response(client)
        said = rig.ask(Explain("127.0.0.1", None, f"http://{origin.authority}/"))
    rig.configure(FleetObjects(), policy="")
    assert fields_of(seen[0]) == [b"Via: 1.1 proxyfleet-px1", b"X-Team: red"]
    assert said.headers.set == (("Via", "1.1 proxyfleet-px1"), ("X-Team", "red"))
    assert said.headers.remove == ("authorization", "cookie", "forwarded")


def test_explain_shows_what_would_be_sent_in_plain_requests_alone(rig: Rig) -> None:
    rig.configure(request_headers=WANTED)
    plain = rig.ask(Explain("2001:db8::7", None, "http://127.0.0.1:9/"))
    forwarded = 'for="[2001:db8::7]";host="127.0.0.1:9";proto=http;by=_proxyfleet-px1'
    assert dict(plain.headers.set) == {"Via": "1.1 proxyfleet-px1", "X-Team": "blue", "Forwarded": forwarded}
    assert plain.headers.remove == ("authorization", "cookie")
    for target in ("127.0.0.1:9", "https://127.0.0.1:9/", "http://10.0.0.1/"):
        said = rig.ask(Explain("192.0.2.7", None, target))
        assert (said.headers.set, said.headers.remove) == ((), ())


def test_tunnels_carry_what_the_client_sends(rig: Rig) -> None:
    rig.configure(request_headers=WANTED)
    with Origin(echoes) as origin, tunnel(rig, origin) as client:
        request = get(origin, "/", *SECRETS)
        client.sendall(request)
        assert read_head(client) == request


def test_an_upstream_gets_them_in_absolute_form_and_not_in_connect(rig: Rig) -> None:
    seen: list[bytes] = []
    with Origin(notes_heads(seen)) as upstream, connect(rig) as client:
        entry = upstream_entry(upstream.port, username="u", password="p")
        rig.configure(request_headers=WANTED, upstreams=upstream_list(entry))
        client.sendall(b"GET http://target.example/a HTTP/1.1\r\nHost: target.example\r\nCookie: c=1\r\n\r\n")
        read_response(client)
        client.sendall(b"CONNECT target.example:443 HTTP/1.1\r\nHost: target.example:443\r\n\r\n")
        assert read_head(client).startswith(b"HTTP/1.1 200 ")
    rig.configure(upstreams=upstream_list())
    plain, connected = seen
    assert plain.startswith(b"GET http://target.example/a HTTP/1.1\r\nProxy-Authorization: Basic dTpw\r\n")
    assert (
        b"\r\nX-Team: blue\r\nForwarded: for=127.0.0.1;host=target.example;proto=http;by=_proxyfleet-px1\r\n" in plain
    )
    assert b"Cookie" not in plain
    assert not any(each in connected for each in (b"X-Team", b"Forwarded"))


def test_a_chain_names_every_hop_in_order(rig: Rig) -> None:
    seen: list[bytes] = []
    with Origin(notes_heads(seen)) as origin, Rig(id="px2", request_headers=RequestHeadersSpec("rfc7239")) as last:
        rig.configure(request_headers=RequestHeadersSpec("rfc7239"), upstreams=upstream_list(of_rig(last)))
        with connect(rig) as client:
            client.sendall(get(origin, "/", "Forwarded: for=_forged"))
            read_response(client)
    rig.configure(upstreams=upstream_list())
    first, second = (
        element(origin, by).removeprefix(b"Forwarded: ") for by in (b"_proxyfleet-px1", b"_proxyfleet-px2")
    )
    assert fields_of(seen[0])[-1] == b"Forwarded: for=_forged, " + first + b", " + second


def test_a_loop_is_found_whatever_is_set_and_removed() -> None:
    wanted = RequestHeadersSpec("rfc7239", (("X-A", "1"),), ("Forwarded",))
    with Rig(id="px-one", request_headers=wanted) as one, Rig(id="px-two", request_headers=wanted, via="off") as two:
        one.configure(upstreams=upstream_list(of_rig(two)))
        two.configure(upstreams=upstream_list(of_rig(one)))
        with connect(one) as client:
            client.sendall(b"GET http://target.example/ HTTP/1.1\r\nHost: target.example\r\n\r\n")
            assert b"error=proxy_loop_detected" in read_response(client)[0]


def test_the_body_and_the_next_request_stay_what_they_are(rig: Rig) -> None:
    seen: list[bytes] = []

    def reads_all(sock: socket.socket) -> None:
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += sock.recv(65536)
        sock.sendall(counted(b"one"))
        seen.extend((data, read_head(sock)))
        sock.sendall(counted(b"two"))

    rig.configure(request_headers=RequestHeadersSpec("off", (("X-Team", "Content-Length: 99"),)))
    inner = b"GET /smuggled HTTP/1.1\r\nX-Team: a\r\n\r\n"
    with Origin(reads_all) as origin, connect(rig) as client:
        where = origin.authority.encode()
        client.sendall(
            b"POST http://%b/ HTTP/1.1\r\nHost: %b\r\nTransfer-Encoding: chunked\r\n"
            b"Connection: x-team\r\nX-Team: b\r\n\r\n"
            b"%x\r\n%b\r\n0\r\n\r\n" % (where, where, len(inner), inner)
        )
        assert read_response(client)[1] == b"one"
        client.sendall(get(origin))
        assert read_response(client)[1] == b"two"
    post, chunked = seen[0].split(b"\r\n\r\n", 1)
    added = [b"Via: 1.1 proxyfleet-px1", b"X-Team: Content-Length: 99"]
    assert post.split(b"\r\n")[2:] == [b"Transfer-Encoding: chunked", *added]
    assert chunked == b"%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner)
    assert fields_of(seen[1]) == added


def test_the_client_is_the_one_that_a_balancer_announces() -> None:
    seen: list[bytes] = []
    behind = Rig(request_headers=RequestHeadersSpec("rfc7239"), accept_proxy_protocol=True)
    with behind, Origin(notes_heads(seen)) as origin, connect(behind) as client:
        client.sendall(b"PROXY TCP6 2001:db8::7 2001:db8::1 56324 3128\r\n" + get(origin))
        read_response(client)
    assert b'Forwarded: for="[2001:db8::7]";host=' in seen[0]
