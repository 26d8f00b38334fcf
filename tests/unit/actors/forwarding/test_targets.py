"""Targets are read in one way, and no odd spelling of an address gets to a resolver."""

from __future__ import annotations

import pytest

from actors.forwarding.protocols.failures import Refused
from actors.forwarding.protocols.http.targets import parse_absolute, parse_authority
from tests.kit.tables import table


@table(
    ("target", "host", "port", "text", "path"),
    [
        (b"http://a.example/x?y", "a.example", 80, b"a.example", b"/x?y"),
        (b"HTTP://A.Example:8080", "a.example", 8080, b"a.example:8080", b""),
        (b"http://a.example:80/", "a.example", 80, b"a.example", b"/"),
        (b"http://a.example?q", "a.example", 80, b"a.example", b"/?q"),
        (b"http://127.0.0.1:1/", "127.0.0.1", 1, b"127.0.0.1:1", b"/"),
        (b"http://[2001:DB8::1]:81/", "2001:db8::1", 81, b"[2001:db8::1]:81", b"/"),
        (b"http://under_score.example./", "under_score.example.", 80, b"under_score.example.", b"/"),
        (b"http://a.example//evil.example/", "a.example", 80, b"a.example", b"//evil.example/"),
    ],
)
def test_absolute_form(target: bytes, host: str, port: int, text: bytes, path: bytes) -> None:
    authority, origin_form = parse_absolute(target)
    assert (authority.host, authority.port, authority.text, origin_form) == (host, port, text, path)


@table(
    "target",
    [
        b"/origin-form",
        b"*",
        b"https://a.example/",
        b"ftp://a.example/",
        b"http://user@a.example/",
        b"http://user:pw@a.example/",
        b"http:///x",
        b"http://a.example:/",
        b"http://a.example:0/",
        b"http://a.example:65536/",
        b"http://a.example:+80/",
        b"http://a.example:80:80/",
        b"http://a.example/x#fragment",
        b"http://a.example/x#",
        b"http://a..example/",
        b"http://.example/",
        b"http://a%2eexample/",
        b"http://a\\b/",
        b"http://[::1/",
        b"http://[::1%25eth0]/",
        b"http://[::g]/",
        b"http://127.1/",
        b"http://2130706433/",
        b"http://0x7f.1/",
        b"http://0x7f000001/",
        b"http://0177.0.0.1/",
        b"http://127.0.0.1./",
        b"http://1.2.3.4.5/",
        b"http://a.0x/",
        b"http://" + b"a" * 64 + b".example/",
    ],
)
def test_a_target_that_could_be_read_differently_is_400(target: bytes) -> None:
    with pytest.raises(Refused) as caught:
        parse_absolute(target)
    assert caught.value.failure.status == 400


def test_connect_wants_a_port() -> None:
    assert parse_authority(b"a.example:443", None).port == 443
    for target in (b"a.example", b"a.example:", b":443", b"a.example:443/", b"user@a.example:443"):
        with pytest.raises(Refused):
            parse_authority(target, None)
