"""Names by real name servers: UDP and TCP, TLS and HTTPS, with certificates of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.net.resolver_protocol import FAILED, FOUND, NEGATIVE
from actors.resolver.stream import tls_context
from tests.actor.resolver.real_servers import dnsmasq, unbound
from tests.actor.resolver.resolving import Resolving
from tests.kit.certificates import make_pair

BOTH = ("2001:db8::1", "192.0.2.1")
MOST = 32


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    cert, key = make_pair(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", cert)
    tls_context.cache_clear()
    yield cert, key
    tls_context.cache_clear()


def check(resolving: Resolving, server: str) -> None:
    """Addresses, a long response, a name that doesn't exist, and many names at once."""
    profile = resolving.profile(server)
    assert resolving.resolve(profile, "www.example").content == BOTH
    assert len(resolving.resolve(profile, "many.example").content) == MOST
    assert resolving.resolve(profile, "other.example").status == NEGATIVE
    resolving.service.forget("")
    assert resolving.addresses(profile, ["www.example", "WWW.example".lower(), "www.example."]) == [BOTH] * 3


def test_dnsmasq_by_udp_and_by_tcp_where_the_response_is_long(resolving: Resolving) -> None:
    with dnsmasq() as server:
        check(resolving, server)


def test_unbound_by_udp_tls_and_https(resolving: Resolving, tmp_path: Path, pair: tuple[str, str]) -> None:
    with unbound(tmp_path, *pair) as servers:
        for server in servers:
            check(resolving, server)


def test_negative_results_are_kept_as_unbound_says(resolving: Resolving, tmp_path: Path, pair: tuple[str, str]) -> None:
    with unbound(tmp_path, *pair) as (plain, _tls, _https):
        reply = resolving.resolve(resolving.profile(plain), "other.example")
        assert 25 < reply.until - resolving.loop.now <= 30


@pytest.mark.parametrize("place", [1, 2])
def test_a_certificate_for_another_name_is_refused(
    resolving: Resolving, tmp_path: Path, pair: tuple[str, str], place: int
) -> None:
    with unbound(tmp_path, *pair) as servers:
        reply = resolving.resolve(resolving.profile(f"{servers[place]}#dns.example"), "www.example")
        assert reply.status == FAILED
        good = resolving.resolve(resolving.profile(f"{servers[place]}#localhost"), "www.example")
        assert (good.status, good.content) == (FOUND, BOTH)


@pytest.mark.parametrize("place", [1, 2])
def test_a_certificate_of_an_unknown_authority_is_refused(
    resolving: Resolving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    tls_context.cache_clear()
    with unbound(tmp_path, *make_pair(tmp_path)) as servers:
        assert resolving.resolve(resolving.profile(servers[place]), "www.example").status == FAILED
    tls_context.cache_clear()
