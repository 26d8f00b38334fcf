"""The patterns in the API's description say what the readers say: on texts made from them, and on texts near them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter, ValidationError

from api.http.query import network
from api.objects.proxies.access_operations import ExplainBody
from api.objects.proxies.proxy_operations import test_target as read_web_url
from api.security.users import Username as PersonName
from config.model import json_patterns, webhooks
from config.model.accounts import AccountName, Bandwidth
from config.model.fields import FilePath, Host, Name, Username
from config.model.fleet_accounts import Certificate
from config.model.nodes import NodeAddress, NodeName
from config.model.object_fields import HeaderValue, LabelName, ListName, ObjectName, Tag
from config.model.plans import EndOfWindow, TimeOfDay
from config.model.proxies import BindAddress
from config.model.shared_objects.policies import MatchAccounts, MatchMethods, MatchPaths, MatchProxies, Use
from config.model.shared_objects.upstreams import Host as UpstreamHost
from config.net.dns_servers import read_hosts_name, read_server
from config.net.entries import read_entry, read_network
from config.net.names import read_domain
from tests.kit.tables import table

HOSTILE = (
    *("127.1", "0177.0.0.1", "1.2.3.4", "1.2.3.04", "256.1.1.1", "0x7f.1", "a.0x", "a.1", "a.1b", "1.2.3.4:80"),
    *("1.2.3.4.", "256.1.1.1.", "0.", "a.1."),
    *("::", "::1", "1::2::3", "::ffff:1.2.3.4", "fe80::1%eth0", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8"),
    *("1:2:3:4:5:6:7:8:9",),
    *("1:2:3:4:5:6:1.2.3.4", "::1.2.3.4:5", "10.0.0.0/8", "10.0.0.0/255.0.0.0", "10.0.0.0/08", "::/128", "::/129"),
    *("::/", "[::1]", "[::1]:80", "[::/0]:1-2", "[1.2.3.4]", "[]", ":80", ":0", ":65535", ":65536", ":080", "a:80-90"),
    *("*.a", "**.a", "*.", "a..b", ".a", "a.", "-a", "a-", "a_b", "a" * 63, "a" * 64, "\u212a.com", "é.com"),
    *("xn--e1a.com",),
    *("http://a", "HTTPS://a/", "http://a:0", "http://a:080/", "http://[::1]:8/x?y#z", "http://u@a/", "http://a b"),
    *("ftp://a", "http://a/\n", "http://a/é", "http://", "http:/a", "a\n", "\n", " ", "\t", "\x85", "\u3000", "\u2028"),
    *("a\u202eb", "\u200fa", "a\x00b", "a:b", "a/b", ".", "..", "...", "/", "/a", "/\x7f", "a:", "*", "a" * 254),
    *(".".join(["a" * 63] * 4),),
    *("/a/../b", "/..", "/a/%2E./", "/a..b", "/%2f", "/a?b", "tag:", "tag:a", "CONNECT", "GET", "pool:a"),
    *("pool:", "deny"),
    *("list:a", "list:443", "list:99999", "list:a:443", "list:a.b-c:1-2", "list:", "list:a:b", "443", "4-5"),
    *("geo:a:asn=1", "geo:a:asn=0", "geo:a:country=DE:443", "geo:a:country=de", "geo:a", "geo:443", "geo:a:asn=x"),
    *(f"geo:a:asn={number}" for number in (9, 429496729, 999999999, 3999999999, 4294967295, 4294967296, 9999999999)),
    *("pool_0123456789abcdef", "pool:list_0123456789abcdef", "session", "country", "a-b", "_a", ".example.com"),
    *("*." + ".".join(["a" * 62] * 4), "0", "00.a", "a.00", "1.a", "_", "255.255.255.255", "1.2.3.4/32", "1.2.3.4/33"),
)


def reading(read: Callable[[str], Any]) -> Callable[[str], bool]:
    """Whether a reader takes a text."""

    def takes(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return takes


def typed(kind: Any) -> Callable[[str], bool]:
    return reading(TypeAdapter(kind).validate_python)


def first_of(kind: Any) -> Callable[[str], bool]:
    """Whether a list takes a text as its entry."""
    takes = typed(kind)
    return lambda text: takes([text])  # type: ignore[arg-type]


def described(kind: Any) -> Callable[[str], bool]:
    validator = Draft202012Validator(TypeAdapter(kind).json_schema())
    return lambda text: bool(validator.is_valid(text))


def matching(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.compile(pattern).fullmatch(text) is not None


def backwards(text: str) -> bool:
    """Whether ports stand the wrong way round, which no pattern can say."""
    found = re.search(r":([0-9]+)-([0-9]+)$", text)
    return found is not None and int(found[1]) > int(found[2])


PAIRS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "network": (json_patterns.NETWORK, reading(read_network)),
    "destination": (json_patterns.DESTINATION, reading(read_entry)),
    "host": (json_patterns.HOST, typed(Host)),
    "parent": (json_patterns.UPSTREAM_HOST, typed(UpstreamHost)),
    "target": (json_patterns.TARGET, lambda text: _explained(target=text)),
    "tls_name": (json_patterns.TLS_NAME, lambda text: _explained(tls_name=text)),
    "client": (json_patterns.ADDRESS, lambda text: _explained(client_ip=text)),
    "web": (json_patterns.WEB_URL, reading(read_web_url)),
    "name": (json_patterns.NAME, typed(Name)),
    "tag": (json_patterns.NAME, typed(Tag)),
    "user": (json_patterns.CLIENT_NAME, typed(Username)),
    "person": (json_patterns.USER_NAME, typed(PersonName)),
    "account": (json_patterns.ACCOUNT_NAME, typed(AccountName)),
    "certificate": (json_patterns.CERTIFICATE, typed(Certificate)),
    "file": (json_patterns.FILE_PATH, typed(FilePath)),
    "time": (json_patterns.TIME_OF_DAY, typed(TimeOfDay)),
    "end": (json_patterns.END_OF_WINDOW, typed(EndOfWindow)),
    "object": (json_patterns.OBJECT_NAME, typed(ObjectName)),
    "list": (json_patterns.LIST_NAME, typed(ListName)),
    "domain": (json_patterns.DOMAIN, reading(read_domain)),
    "label": (json_patterns.LABEL_NAME, typed(LabelName)),
    "accounts": (json_patterns.ACCOUNT_MATCH, first_of(MatchAccounts)),
    "proxies": (json_patterns.PROXY_MATCH, first_of(MatchProxies)),
    "method": (json_patterns.METHOD, first_of(MatchMethods)),
    "path": (json_patterns.PATH_PATTERN, first_of(MatchPaths)),
    "use": (json_patterns.USE, typed(Use)),
    "server": (json_patterns.NAME_SERVER, reading(read_server)),
    "hosts": (json_patterns.HOSTS_NAME, reading(read_hosts_name)),
    "node": (json_patterns.NODE_NAME, typed(NodeName)),
    "address of a node": (json_patterns.NODE_ADDRESS, typed(NodeAddress)),
    "value": (json_patterns.FIELD_VALUE, typed(HeaderValue)),
}
LONGEST = {"certificate": 300, "tag": 64, "person": 64, "name": 100, "user": 128, "account": 128}
LONGEST |= {"host": 253, "parent": 253}


def _explained(**fields: str) -> bool:
    return reading(lambda _: ExplainBody.model_validate({"client_ip": "::1", "target": "a", **fields}))("")


@table("name", PAIRS)
def test_hostile_texts_are_judged_alike(name: str) -> None:
    pattern, takes = PAIRS[name]
    matches = matching(pattern)
    for text in HOSTILE:
        if 0 < len(text) <= LONGEST.get(name, 1000) and not backwards(text):
            assert matches(text) == takes(text), text


@table("name", PAIRS)
@settings(max_examples=25)
@given(data=st.data())
def test_what_matches_is_taken_and_what_is_changed_is_judged_alike(name: str, data: st.DataObject) -> None:
    pattern, takes = PAIRS[name]
    longest = LONGEST.get(name, 2000)
    text = data.draw(st.from_regex(pattern, fullmatch=True))
    place = data.draw(st.integers(0, len(text)))
    changed = (
        text[:place]
        + data.draw(st.sampled_from(["", ".", ":", "/", "0", "]", "%", "\n", "*", "é"]))
        + text[place + 1 :]
    )
    for each in (text, changed):
        if 0 < len(each) <= longest and not backwards(each):
            assert matching(pattern)(each) == takes(each), each


@table(("rate", "good"), [(0, True), (1, False), (1023, False), (1024, True), (10**12 + 1, False)])
def test_a_bandwidth_is_nothing_or_not_tiny(rate: int, good: bool) -> None:
    assert typed(Bandwidth)(rate) is described(Bandwidth)(rate) is good  # type: ignore[arg-type]


@table("text", ["", "127.0.0.1", "::1", "localhost", "127.0.0.1:80", "fe80::1%lo", "127.1"])
def test_a_source_address_is_an_address_or_nothing(text: str) -> None:
    assert typed(BindAddress)(text) is described(BindAddress)(text)


def test_a_parameter_that_is_an_address_is_reported_as_one() -> None:
    assert network("").schema["pattern"] == json_patterns.NETWORK


@table("size", range(20, 70))
def test_a_signing_secret_is_described_exactly_by_its_number_of_bytes(size: int) -> None:
    secret = f"{webhooks.SECRET_PREFIX}{base64.b64encode(bytes(size)).decode()}"
    schema = TypeAdapter(webhooks.Secret).json_schema()
    described = re.search(schema["pattern"], secret) is not None
    try:
        taken = TypeAdapter(webhooks.Secret).validate_python(secret) == secret
    except ValidationError:
        taken = False
    assert described == taken == (24 <= size <= 64)
