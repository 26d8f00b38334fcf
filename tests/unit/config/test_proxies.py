"""What credentials go with which protocol, in the records of proxies."""

from __future__ import annotations

from typing import Any

import pytest

from config.model.fields import InvalidProxy
from config.model.proxies import ProxyCreate, ProxyRecord, ProxyUpdate, apply, new_record


def made(protocol: str, **auth: Any) -> ProxyRecord:
    body = {"name": "p", "port": 1080, "protocol": protocol, **({"auth": auth} if auth else {})}
    return new_record(ProxyCreate.model_validate(body), "prx_1", 1.0, 30)


def changed(record: ProxyRecord, **fields: Any) -> ProxyRecord:
    return apply(record, ProxyUpdate.model_validate(fields), 2.0)


def test_socks4_takes_a_user_name_alone() -> None:
    record = made("socks4", enabled=True, username="ada")
    assert (record.auth.enabled, record.auth.username, record.auth.password_hash) == (True, "ada", None)
    assert changed(record, tags=["x"]).auth == record.auth


@pytest.mark.parametrize("enabled", [True, False])
def test_socks4_with_a_password_is_refused_naming_it(enabled: bool) -> None:
    with pytest.raises(InvalidProxy) as refused:
        made("socks4", enabled=enabled, username="ada", password="secret-word")
    assert refused.value.field == "auth.password"
    with pytest.raises(InvalidProxy) as refused:
        changed(made("socks4"), auth={"password": "secret-word"})
    assert refused.value.field == "auth.password"


def test_a_proxy_with_a_password_becomes_socks4_only_without_auth() -> None:
    record = made("http", enabled=True, username="ada", password="secret-word")
    with pytest.raises(InvalidProxy) as refused:
        changed(record, protocol="socks4")
    assert refused.value.field == "auth.password"
    after = changed(record, protocol="socks4", auth={"enabled": False})
    assert after.auth.password_hash is None


def test_a_socks4_proxy_with_auth_needs_a_password_to_become_another() -> None:
    record = made("socks4", enabled=True, username="ada")
    with pytest.raises(InvalidProxy) as refused:
        changed(record, protocol="socks5")
    assert refused.value.field == "auth.password"
    assert changed(record, protocol="socks5", auth={"password": "secret-word"}).auth.password_hash


@pytest.mark.parametrize("protocol", ["socks5", "mixed"])
@pytest.mark.parametrize("field", ["username", "password"])
def test_socks5_counts_names_and_passwords_in_one_octet(field: str, protocol: str) -> None:
    auth = {"enabled": True, "username": "ada", "password": "secret-word", field: "é" * 128}
    assert made("http", **auth).auth.enabled
    with pytest.raises(InvalidProxy) as refused:
        made(protocol, **auth)
    assert refused.value.field == f"auth.{field}"
    assert made("socks5", **{**auth, field: "é" * 127}).auth.enabled


def test_mixed_speaks_tls_only_where_it_is_configured_and_can_require_no_certificate() -> None:
    record = made("mixed")
    assert not record.speaks_tls
    record = changed(record, tls={"client_ca": "/ca.pem"})
    assert record.speaks_tls
    assert record.tls is not None
    assert record.tls.client_auth == "optional"
    with pytest.raises(InvalidProxy) as refused:
        changed(record, tls={"client_auth": "require"})
    assert refused.value.field == "tls.client_auth"
    with pytest.raises(InvalidProxy) as refused:
        changed(changed(record, protocol="https", tls={"client_auth": "require"}), protocol="mixed")
    assert refused.value.field == "tls.client_auth"
