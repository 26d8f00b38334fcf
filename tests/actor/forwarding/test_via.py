"""What a proxy adds to `Via`, and the loops that it finds there."""

from __future__ import annotations

import socket

import pytest

from actors.forwarding.protocols.http.header_changes import extended_via, passed_here
from actors.forwarding.proxy_policy import via_entry
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.kit.forwarding_rig import Rig, spec
from tests.kit.http_conversation import GET, OK, Talk, exchange
from tests.kit.scripted_origins import Origin, notes_heads, read_head
from tests.kit.tables import table
from tests.kit.upstreams import of_rig, upstream_entry, upstream_list

OTHERS = b"Via: 1.0 before, 1.1 other (c)\r\n"
BEYOND = b"GET http://target.example/ HTTP/1.1\r\nHost: target.example\r\n\r\n"


def via_of(head: bytes) -> list[bytes]:
    return [line for line in head.split(b"\r\n") if line.lower().startswith(b"via:")]


@table(
    ("machine", "via", "entry"),
    [
        ("gw.example", "pseudonym", b"proxyfleet-56789abc"),
        ("gw.example", "on", b"gw.example:3128 (proxyfleet-56789abc)"),
        ("gw.example", "off", b""),
        ("two words", "on", b"proxyfleet-56789abc"),
        ("g\u00e4teway", "on", b"proxyfleet-56789abc"),
        ("", "on", b"proxyfleet-56789abc"),
    ],
)
def test_the_entry_is_what_the_setting_says(
    monkeypatch: pytest.MonkeyPatch, machine: str, via: str, entry: bytes
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: machine)
    assert via_entry(spec(3128, id="prx_0123456756789abc", via=via)) == entry


@table(
    ("before", "minor", "name", "value"),
    [
        (None, 1, b"us", b"1.1 us"),
        (None, 0, b"us", b"1.0 us"),
        (b"1.1 x", 1, b"us", b"1.1 x, 1.1 us"),
        (b"1.1 x", 1, b"", b"1.1 x"),
        (None, 1, b"", b""),
    ],
)
def test_an_entry_comes_behind_those_of_others(before: bytes | None, minor: int, name: bytes, value: bytes) -> None:
    assert extended_via(before, minor, name) == value


@table(
    ("via", "ours"),
    [
        (b"1.1 us", True),
        (b"1.1 x, 1.0 us (c)", True),
        (b"1.1 gw:3128 (us)", True),
        (b"1.1 gw:3128 (us), 1.1 x", True),
        (b"1.1 us2", False),
        (b"1.1 gw:3128 (us2)", False),
        (b"1.1 gw:3128", False),
        (b"us", False),
        (b"", False),
        (None, False),
    ],
)
def test_a_loop_is_known_by_the_pseudonym_as_a_name_or_a_comment(via: bytes | None, ours: bool) -> None:
    assert passed_here(via, b"us") is ours


def test_without_an_entry_of_its_own_there_is_no_field_in_either_direction() -> None:
    talk = exchange(via=b"")
    assert talk.to_origin == b"GET /x HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n\r\n"
    assert talk.to_client == OK


def test_without_an_entry_of_its_own_those_of_others_pass_unchanged() -> None:
    response = OK.replace(b"\r\n\r\n", b"\r\n" + OTHERS + b"\r\n")
    talk = exchange(GET.replace(b"Accept", OTHERS + b"Accept"), response, via=b"")
    assert (via_of(talk.to_origin), via_of(talk.to_client)) == ([OTHERS.strip()], [OTHERS.strip()])


def test_without_an_entry_of_its_own_a_mark_that_is_there_is_a_loop_all_the_same() -> None:
    talk = Talk(via=b"").client(GET.replace(b"Accept", b"Via: 1.1 us\r\nAccept"))
    assert talk.report.reason == "proxy_loop_detected"


def test_a_change_holds_for_the_next_request_of_an_open_connection() -> None:
    seen: list[bytes] = []
    machine = socket.gethostname().encode()
    with Origin(notes_heads(seen)) as origin, Rig() as rig, connect(rig) as client:
        received = []
        for via in ("pseudonym", "off", "on", "pseudonym"):
            rig.configure(via=via)
            client.sendall(get(origin))
            received.append(via_of(read_response(client)[0]))
        ours = b"Via: 1.1 proxyfleet-px1"
        named = b"Via: 1.1 %b:%d (proxyfleet-px1)" % (machine, rig.port)
        assert received == [[ours], [], [named], [ours]]
        assert [via_of(head) for head in seen] == received


@table(("via", "sent"), [("pseudonym", [b"Via: 1.1 proxyfleet-px1"]), ("off", [])])
def test_a_connect_to_an_upstream_has_the_entry_or_none(via: str, sent: list[bytes]) -> None:
    seen: list[bytes] = []
    with Origin(notes_heads(seen)) as upstream, Rig(via=via) as rig, connect(rig) as client:
        rig.configure(upstreams=upstream_list(upstream_entry(upstream.port)))
        client.sendall(b"CONNECT target.example:443 HTTP/1.1\r\nHost: target.example:443\r\n\r\n")
        assert read_head(client).startswith(b"HTTP/1.1 200 ")
        assert via_of(seen[0]) == sent


@table("other", ["pseudonym", "on"])
def test_a_circle_with_a_silent_proxy_is_found_by_the_other(other: str) -> None:
    with Rig(id="px-one", via="off") as one, Rig(id="px-two", via=other) as two:
        one.configure(upstreams=upstream_list(of_rig(two)))
        two.configure(upstreams=upstream_list(of_rig(one)))
        with connect(one) as client:
            client.sendall(BEYOND)
            assert b"error=proxy_loop_detected" in read_response(client)[0]


def test_a_circle_of_silent_proxies_ends_with_the_limit_of_connections() -> None:
    with Rig(id="px-one", via="off", max_connections=8) as one, Rig(id="px-two", via="off", max_connections=8) as two:
        one.configure(upstreams=upstream_list(of_rig(two)))
        two.configure(upstreams=upstream_list(of_rig(one)))
        with connect(one) as client:
            client.sendall(BEYOND)
            head = read_response(client)[0]
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"error=connection_limit_reached" in head
