"""Header fields that proxies and rules set, remove and add, on bytes."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.bus.messages.specs import PolicySpec, RequestHeadersSpec, RuleSpec
from actors.forwarding.policies.compiled import compile_policy
from actors.forwarding.policies.judge import Applied, PolicyVerdict
from actors.forwarding.protocols.http.header_changes import OwnHeaders, element, node, quoted
from actors.forwarding.proxy_policy import own_headers
from tests.kit.forwarding_rig import spec
from tests.kit.http_conversation import GET, Talk
from tests.kit.tables import table
from tests.unit.actors.forwarding.policies.plain_model import NO_LISTS

HEAD = b"GET / HTTP/1.1\r\nHost: a.example\r\nX-A: client\r\nx-a: twice\r\nReferer: r\r\n\r\n"
CLIENT, HOST = "192.0.2.7", b"a.example"


def own(**given: object) -> OwnHeaders:
    made = own_headers(spec(3128, request_headers=RequestHeadersSpec(**given)))  # type: ignore[arg-type]
    assert made is not None
    return made


def applied(headers: OwnHeaders, *lines: bytes, client: str = CLIENT) -> list[bytes]:
    """The fields that are sent, but for Host."""
    head = b"\r\n".join((b"GET / HTTP/1.1", b"Host: a.example", *lines)) + b"\r\n\r\n"
    sent = headers.apply(head, client, HOST)
    first, host, *fields = sent.removesuffix(b"\r\n\r\n").split(b"\r\n")
    assert (first, host) == (b"GET / HTTP/1.1", b"Host: a.example")
    assert sent.count(b"\r\n\r\n") == 1
    return fields


def compiled(*rules: RuleSpec) -> PolicyVerdict:
    policy = compile_policy(PolicySpec("p", "p", rules), NO_LISTS)
    return PolicyVerdict(tuple(Applied("p", rule) for rule in policy.rules))


# --- set and remove ---


def test_fields_are_set_in_place_of_the_clients_and_removed() -> None:
    first = RuleSpec(set_headers=(("X-A", "1"),), remove_headers=("referer",))
    changes = compiled(first, RuleSpec(set_headers=(("x-a", "2"), ("X-B", "b")))).header_changes
    assert changes is not None
    assert changes.apply(HEAD) == b"GET / HTTP/1.1\r\nHost: a.example\r\nX-A: 1\r\nX-B: b\r\n\r\n"
    assert compiled(RuleSpec(), RuleSpec()).header_changes is None


def test_a_proxy_without_changes_has_none() -> None:
    assert own_headers(spec(3128)) is None


def test_a_proxy_changes_as_a_rule_does() -> None:
    headers = own(set=(("X-A", "1"),), remove=("Referer", "cookie"))
    assert applied(headers, b"x-A: 9", b"REFERER: r", b"Cookie: c", b"Accept: */*") == [b"Accept: */*", b"X-A: 1"]


def test_the_other_spelling_of_a_name_is_the_same_field() -> None:
    headers = own(set=(("X-User", "proxy"),), remove=("X_Team",))
    assert applied(headers, b"X_User: forged", b"x-team: a", b"X_TEAM: b") == [b"X-User: proxy"]


FORBIDDEN = (
    "Host", "Content-Length", "transfer-encoding", "TE", "Via", "Connection", "Upgrade", "Expect", "Max-Forwards",
    "Keep-Alive", "Trailer", "Proxy-Authorization", "Proxy-Connection", "Content_Length", "Transfer_Encoding",
)  # fmt: skip


@table("name", [*FORBIDDEN, "", "X A", "X:", "X\r\nY", "X\r\n\r\nGET / HTTP/1.1", "\u00c4", "\uff28ost"])
def test_framing_routing_and_injected_names_are_refused(name: str) -> None:
    for changed in ({"set": ((name, "1"),)}, {"remove": (name,)}):
        with pytest.raises(ValueError, match="neither set nor removed"):
            own(**changed)
    for rule in (RuleSpec(set_headers=((name, "1"),)), RuleSpec(remove_headers=(name,))):
        with pytest.raises(ValueError, match="neither set nor removed"):
            compiled(rule)


@table("value", ["", "a\r\nY: 1", "a\n", "a\rb", "a\0", " a", "a ", "\x7f", "\u00e4", "\u010d\u010a"])
def test_a_value_that_is_more_than_one_line_of_visible_ascii_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="is not one of"):
        own(set=(("X", value),))
    with pytest.raises(ValueError, match="is not one of"):
        compiled(RuleSpec(set_headers=(("X", value),)))


# --- the client's address ---


@pytest.mark.parametrize(
    ("address", "written"),
    [
        ("192.0.2.43", b"192.0.2.43"),
        ("2001:db8:cafe::17", b'"[2001:db8:cafe::17]"'),
        ("fe80::1%eth0", b'"[fe80::1]"'),
        ("", b"unknown"),
    ],
)
def test_an_address_is_a_node_of_rfc_7239(address: str, written: bytes) -> None:
    assert node(address) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (b"a.example", b"a.example"),
        (b"a.example:8080", b'"a.example:8080"'),
        (b"[2001:db8::1]:1234", b'"[2001:db8::1]:1234"'),
        (b'a"\\', b'"a\\"\\\\"'),
    ],
)
def test_what_is_no_token_is_quoted(value: bytes, written: bytes) -> None:
    assert quoted(value) == written


def test_an_element_has_client_host_protocol_and_proxy() -> None:
    assert element("2001:db8::7", b"a.example:81", b"_us") == (
        b'for="[2001:db8::7]";host="a.example:81";proto=http;by=_us'
    )
    assert element(CLIENT, HOST, b"") == b"for=192.0.2.7;host=a.example;proto=http"


def test_the_proxy_names_itself_where_it_does_in_via() -> None:
    wanted = RequestHeadersSpec("rfc7239")
    for via, by in (("pseudonym", b"_proxyfleet-px1"), ("on", b"_proxyfleet-px1"), ("off", b"")):
        made = own_headers(spec(3128, id="px1", via=via, request_headers=wanted))
        assert made is not None
        assert made.by == by


OURS = b"for=192.0.2.7;host=a.example;proto=http;by=_proxyfleet-px1"


@table(
    ("lines", "sent"),
    [
        ((), OURS),
        ((b"Forwarded: for=10.0.0.1",), b"for=10.0.0.1, " + OURS),
        ((b"forwarded:for=a ;by=b", b"FORWARDED: for=c"), b"for=a ;by=b, for=c, " + OURS),
        ((b'Forwarded: for="[2001:db8::1]:80";host="a\\"b"',), b'for="[2001:db8::1]:80";host="a\\"b", ' + OURS),
        ((b"Forwarded: ",), OURS),
        ((b'Forwarded: for="10.0.0.1',), OURS),  # the element would be a part of the open quotation
        ((b'Forwarded: for="a', b'Forwarded: b"'), b'for="a, b", ' + OURS),  # one value, however it was sent
        ((b'Forwarded: for=a, "',), OURS),
        ((b"Forwarded: for=10.0.0.1 admin",), OURS),
        ((b"Forwarded: for=\xe4",), OURS),
        ((b"Forwarded_: x", b"For_warded: for=x"), OURS),
    ],
)
def test_the_element_is_last_and_can_not_be_taken_for_a_part_of_another(lines: tuple[bytes, ...], sent: bytes) -> None:
    fields = applied(own(forwarded="rfc7239"), *lines)
    assert fields[-1] == b"Forwarded: " + sent
    assert sum(line.lower().startswith(b"forwarded:") for line in fields) == 1


@table(
    ("lines", "sent"),
    [
        ((), b"192.0.2.7"),
        ((b"X-Forwarded-For: 10.0.0.1, unknown",), b"10.0.0.1, unknown, 192.0.2.7"),
        ((b"x-forwarded-for: 1", b"X-FORWARDED-FOR:2001:db8::1"), b"1, 2001:db8::1, 192.0.2.7"),
        ((b'X-Forwarded-For: "',), b"192.0.2.7"),
        ((b"X-Forwarded-For: 10.0.0.1 (c)",), b"192.0.2.7"),
        ((b"X_Forwarded_For: 10.0.0.1",), b"192.0.2.7"),
    ],
)
def test_x_forwarded_for_ends_with_the_client(lines: tuple[bytes, ...], sent: bytes) -> None:
    assert applied(own(forwarded="x-forwarded-for"), *lines) == [b"X-Forwarded-For: " + sent]


def test_with_remove_the_clients_own_is_replaced() -> None:
    for mode, name in (("rfc7239", b"Forwarded"), ("x-forwarded-for", b"X-Forwarded-For")):
        headers = own(forwarded=mode, remove=(name.decode(),))
        assert applied(headers, name + b": 10.0.0.1") == applied(own(forwarded=mode))


def test_ipv6_clients_are_bare_in_x_forwarded_for() -> None:
    assert applied(own(forwarded="x-forwarded-for"), client="2001:db8::7") == [b"X-Forwarded-For: 2001:db8::7"]


@pytest.mark.parametrize("mode", ["rfc7239", "x-forwarded-for"])
def test_a_long_value_costs_time_in_proportion_to_its_length(mode: str) -> None:
    for text in (b"a=b;" * 2000 + b'"', b'a="' + b"\\" * 7000, b"," * 8000 + b"\x01", b"a \t" * 2600):
        assert len(applied(own(forwarded=mode), b"Forwarded: " + text, b"X-Forwarded-For: " + text)) == 2


# --- within a session ---


def sent_by(request: bytes, *changes: OwnHeaders) -> bytes:
    talk = Talk().client(request)
    for each in changes:
        talk.session.change_head(each.change(CLIENT, HOST))
    return talk.opened().to_origin


def test_what_connection_names_is_gone_and_what_is_set_stays() -> None:
    request = GET.replace(
        b"Accept", b"X-A: client\r\nX-B: b\r\nForwarded: for=x\r\nConnection: x-a, x-b, forwarded\r\nAccept"
    )
    head = sent_by(request, own(forwarded="rfc7239", set=(("X-A", "proxy"),)))
    assert b"\r\nX-A: proxy\r\n" in head
    assert b"\r\nForwarded: " + OURS + b"\r\n" in head
    assert not any(each in head for each in (b"client", b"X-B", b"for=x", b"Connection"))


def test_the_later_change_sees_what_the_earlier_has_made() -> None:
    head = sent_by(GET, own(set=(("X-A", "proxy"),), forwarded="x-forwarded-for"), own(set=(("X-A", "rule"),)))
    assert head.endswith(b"\r\nX-Forwarded-For: 192.0.2.7\r\nX-A: rule\r\n\r\n")
    assert b"X-A: proxy" not in head


def test_a_trace_would_show_the_client_what_is_set() -> None:
    talk = Talk().client(GET.replace(b"GET", b"TRACE"))
    talk.session.change_head(own(set=(("Authorization", "Bearer secret"),)).change(CLIENT, HOST))
    talk.opened()
    assert talk.to_client.startswith(b"HTTP/1.1 405 ")
    assert b"secret" not in talk.to_client + talk.to_origin


def test_framing_stays_whatever_is_set() -> None:
    request = (
        b"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n"
        b"X-Pad: Content-Length: 5\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    )
    head, _, body = sent_by(request, own(set=(("X-Pad", "Content-Length: 3"),))).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert [line for line in lines if line.lower().startswith((b"content-length", b"transfer-encoding"))] == [
        b"Transfer-Encoding: chunked"
    ]
    assert b"X-Pad: Content-Length: 3" in lines
    assert body == b"3\r\nabc\r\n0\r\n\r\n"


NAMES = (
    "X-A",
    "x_a",
    "X-Other",
    "Cookie",
    "Forwarded",
    "forwarded",
    "For_warded",
    "X-Forwarded-For",
    "Connection",
    "Via",
    "TE",
)
VALUES = (
    "x-a, cookie",
    "close, forwarded, x_a",
    'for="',
    "for=a",
    "1.1 z",
    "a:b",
    "Content-Length: 9",
    "\t",
    "",
    "\xe4",
    '", b="',
)
BODIES = ((b"", b""), (b"Content-Length: 3\r\n", b"abc"), (b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n"))
WANTED = {"set": (("X-A", "proxy"),), "remove": ("Cookie",)}


@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=6),
    st.sampled_from(BODIES),
    st.sampled_from(("off", "rfc7239", "x-forwarded-for")),
)
def test_another_parser_finds_one_request_with_the_same_body_and_each_field_once(
    fields: list[tuple[str, str]], body: tuple[bytes, bytes], mode: str
) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields).encode("latin-1")
    request = b"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n" + lines + body[0] + b"\r\n" + body[1]
    sent = sent_by(request, own(forwarded=mode, **WANTED))
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(sent)
    head = reader.next_event()
    assert isinstance(head, h11.Request)
    content = b""
    while isinstance(event := reader.next_event(), h11.Data):
        content += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert (content, reader.trailing_data[0]) == (b"abc" if body[1] else b"", b"")
    found = [(name.replace(b"_", b"-"), value) for name, value in head.headers]
    assert [value for name, value in found if name == b"x-a"] == [b"proxy"]
    assert b"cookie" not in dict(found)
    added = {"rfc7239": (b"forwarded", OURS), "x-forwarded-for": (b"x-forwarded-for", b"192.0.2.7")}.get(mode)
    if added is not None:
        assert [value.endswith(added[1]) for name, value in found if name == added[0]] == [True]
