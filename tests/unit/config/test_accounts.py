"""What may be said of accounts and limits, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from config.model.accounts import NEW_PASSWORDS_MAX
from config.model.fields import InvalidProxy
from config.model.proxies import ProxyCreate, ProxyRecord, ProxyUpdate, apply, new_record
from config.passwords import check_password
from tests.kit.tables import table

NOW = 1_900_000_000.0
PAST, FUTURE = "2001-01-01T00:00:00Z", "2090-01-31T12:00:00+01:00"


def made(protocol: str = "http", **fields: Any) -> ProxyRecord:
    body = {"name": "p", "port": 1080, "protocol": protocol, **fields}
    return new_record(ProxyCreate.model_validate(body), "prx_1", NOW, 30)


def changed(record: ProxyRecord, **fields: Any) -> ProxyRecord:
    return apply(record, ProxyUpdate.model_validate(fields), NOW + 1)


def entry(name: str = "ada", **fields: Any) -> dict[str, Any]:
    return {"username": name, "password": "secret-word", **fields}


def test_an_account_with_everything() -> None:
    limits = {"bandwidth_in": 1024, "bandwidth_out": 0, "connections": 3, "requests_per_minute": 60}
    limits |= {"clients": 2, "clients_window": 3600}
    one = entry(
        limits=limits,
        quota={"bytes": 10**9, "period": "month"},
        expires_at=FUTURE,
        allow_clients=["192.0.2.7", "2001:db8::1/32"],
        enabled=False,
    )
    [account] = made(accounts=[one]).accounts
    assert account.limits.model_dump() == limits
    assert (account.quota.bytes, account.quota.period) == (10**9, "month")
    assert account.expires_at == 3_789_457_200 + 0.0 or account.expires_at > NOW
    assert account.allow_clients == ["192.0.2.7/32", "2001:db8::/32"]
    assert not account.enabled
    assert check_password("secret-word", account.password_hash or "")


@table(
    ("fields", "where"),
    [
        ({"username": "a:b"}, ("accounts", 0, "username")),
        ({"username": "a/b"}, ("accounts", 0, "username")),
        ({"username": ".."}, ("accounts", 0, "username")),
        ({"username": ""}, ("accounts", 0, "username")),
        ({"enabled": 1}, ("accounts", 0, "enabled")),
        ({"limits": {"connections": -1}}, ("accounts", 0, "limits", "connections")),
        ({"limits": {"connections_per_client": 1}}, ("accounts", 0, "limits", "connections_per_client")),
        ({"limits": {"bandwidth_in": 100}}, ("accounts", 0, "limits", "bandwidth_in")),
        ({"limits": {"clients": 10_001}}, ("accounts", 0, "limits", "clients")),
        ({"limits": {"clients_window": 0}}, ("accounts", 0, "limits", "clients_window")),
        ({"quota": {"period": "year"}}, ("accounts", 0, "quota", "period")),
        ({"quota": {"bytes": 1.5}}, ("accounts", 0, "quota", "bytes")),
        ({"expires_at": "tomorrow"}, ("accounts", 0, "expires_at")),
        ({"expires_at": 5}, ("accounts", 0, "expires_at")),
        ({"allow_clients": ["here"]}, ("accounts", 0, "allow_clients", 0)),
        ({"passwords": "x"}, ("accounts", 0, "passwords")),
        ({"password": None}, ("accounts", 0, "password")),
    ],
)
def test_what_is_wrong_with_an_account_is_named(fields: dict[str, Any], where: tuple[Any, ...]) -> None:
    with pytest.raises(ValidationError) as refused:
        ProxyUpdate.model_validate({"accounts": [{**entry(), **fields}]})
    assert refused.value.errors()[0]["loc"] == where


@pytest.mark.parametrize("field", ["bandwidth_in", "bandwidth_out", "connections_per_client", "requests_per_minute"])
def test_limits_of_a_proxy_merge_and_0_is_none(field: str) -> None:
    record = changed(made(), limits={field: 2048})
    assert record.limits.model_dump()[field] == 2048
    assert changed(record, limits={}).limits == record.limits
    assert changed(record, tags=["x"]).limits == record.limits
    assert changed(record, limits={field: 0}).limits == made().limits


@pytest.mark.parametrize(
    ("accounts", "field"),
    [
        ([entry(), entry("bob"), entry()], "accounts[2].username"),
        ([entry("root")], "accounts[0].username"),
        ([{"username": "ada"}], "accounts[0].password"),
        ([entry(), entry("bob", expires_at=PAST)], "accounts[1].expires_at"),
    ],
)
def test_what_does_not_go_together_is_named(accounts: list[Any], field: str) -> None:
    record = made(auth={"enabled": True, "username": "root", "password": "secret-word"})
    with pytest.raises(InvalidProxy) as refused:
        changed(record, accounts=accounts)
    assert refused.value.field == field


def test_a_new_auth_username_must_not_be_that_of_an_account() -> None:
    with pytest.raises(InvalidProxy):
        changed(made(accounts=[entry()]), auth={"username": "ada", "password": "secret-word"})


def test_the_list_replaces_the_old_one_but_a_known_name_keeps_its_password_and_its_id() -> None:
    before = made(accounts=[entry(quota={"bytes": 5}), entry("bob")])
    after = changed(before, accounts=[{"username": "bob"}, {"username": "ada", "enabled": False}, entry("eve")])
    assert [account.username for account in after.accounts] == ["bob", "ada", "eve"]
    bob, ada, eve = after.accounts
    assert (ada.id, ada.password_hash) == (before.accounts[0].id, before.accounts[0].password_hash)
    assert (ada.quota.bytes, ada.enabled, bob.id) == (0, False, before.accounts[1].id)
    assert eve.id not in {account.id for account in before.accounts}


def test_an_account_that_went_and_comes_again_is_another() -> None:
    before = made(accounts=[entry(), entry("bob")])
    again = changed(changed(before, accounts=[{"username": "bob"}]), accounts=[entry()])
    assert again.accounts[0].id != before.accounts[0].id


def test_an_end_that_has_passed_may_stay_as_it_is() -> None:
    record = made(accounts=[entry(expires_at=FUTURE)])
    late = record.accounts[0].model_copy(update={"expires_at": NOW - 5})
    record = record.model_copy(update={"accounts": [late]})
    again = changed(record, accounts=[{"username": "ada", "expires_at": "2030-03-17T17:46:35Z"}])
    assert again.accounts[0].expires_at == NOW - 5
    assert changed(record, accounts=[{"username": "ada", "expires_at": None}]).accounts[0].expires_at is None


# --- auth beside accounts ---


def test_the_first_account_turns_auth_on_unless_it_is_said_otherwise() -> None:
    assert made(accounts=[entry()]).auth.enabled
    assert changed(made(), accounts=[entry()]).auth.enabled
    assert not made(accounts=[entry()], auth={"enabled": False}).auth.enabled
    off = changed(made(accounts=[entry()]), auth={"enabled": False})
    assert not changed(off, accounts=[entry(), entry("bob")]).auth.enabled


def test_auth_needs_no_user_name_and_no_accounts() -> None:
    assert made(auth={"enabled": True}, accounts=[entry()]).auth.username is None
    closed = made(auth={"enabled": True}).auth
    assert (closed.enabled, closed.username, closed.password_hash) == (True, None, None)
    with pytest.raises(InvalidProxy) as refused:
        made(auth={"enabled": True, "password": "secret-word"})
    assert refused.value.field == "auth.username"


def test_when_the_last_account_goes_access_stays_closed() -> None:
    record = changed(made(accounts=[entry()]), accounts=[])
    assert (record.auth.enabled, record.accounts) == (True, [])
    assert changed(record, tags=["x"]).auth.enabled
    assert not changed(record, auth={"enabled": False}).auth.enabled


# --- protocols ---


def test_socks4_accounts_have_no_passwords() -> None:
    assert made("socks4", accounts=[{"username": "ada"}]).accounts[0].password_hash is None
    with pytest.raises(InvalidProxy) as refused:
        made("socks4", accounts=[entry()])
    assert refused.value.field == "accounts[0].password"


def test_a_change_of_protocol_must_suit_the_accounts() -> None:
    http, four = made(accounts=[entry()]), made("socks4", accounts=[{"username": "ada"}])
    with pytest.raises(InvalidProxy) as refused:
        changed(http, protocol="socks4")
    assert refused.value.field == "accounts[0].password"
    assert changed(http, protocol="socks4", accounts=[{"username": "ada"}]).accounts[0].password_hash is None
    with pytest.raises(InvalidProxy) as refused:
        changed(four, protocol="http")
    assert refused.value.field == "accounts[0].password"


@pytest.mark.parametrize("field", ["username", "password"])
def test_socks5_counts_in_one_octet(field: str) -> None:
    with pytest.raises(InvalidProxy) as refused:
        made("socks5", accounts=[{**entry(), field: "é" * 128}])
    assert refused.value.field == f"accounts[0].{field}"


# --- bounds ---


def test_there_are_bounds() -> None:
    with pytest.raises(InvalidProxy) as refused:
        made(accounts=[entry(f"a{number}") for number in range(NEW_PASSWORDS_MAX + 1)])
    assert refused.value.field == "accounts"


def test_the_same_password_given_again_changes_nothing_and_so_ends_no_connection() -> None:
    before = made(accounts=[entry()])
    again = changed(before, accounts=[entry()]).accounts[0]
    other = changed(before, accounts=[entry(password="other-word")]).accounts[0]
    assert again.password_hash == before.accounts[0].password_hash != other.password_hash
