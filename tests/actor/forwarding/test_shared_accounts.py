"""Accounts and credentials of the table that all proxies share: who gets in at a real actor, and by what."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from actors.accounts.records import InheritedRules
from actors.bus.messages.forwarding import ConnectionFilter, Explain, QueryConnections
from config.passwords import hash_password
from tests.actor.forwarding.account_client import WORD, account, credentials, states
from tests.actor.forwarding.connection_pages import is_cut
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.actor.forwarding.shared_accounts import (
    AccountsTable,
    bearer,
    fetch,
    password_tunnel,
    socks4_code,
    socks5_status,
    tunnel,
)
from tests.actor.forwarding.tls_client import connect as connect_tls
from tests.kit.certificates import make_pair
from tests.kit.forwarding_rig import PROXY_ID, Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, responds

YES = responds(*[counted(b"yes")] * 99)


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Its own accounts and tags are those of each test."""
    with Rig(auth_required=True) as rig:
        yield rig


@pytest.fixture
def table(rig: Rig, written: AccountsTable) -> AccountsTable:
    rig.configure(accounts=(), tags=(), protocol="http", auth_username=None, auth_hash=None)
    written.clear()
    rig.records.clear()
    return written


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin(YES) as origin:
        yield origin


# --- passwords ---


def test_an_account_gets_in_as_soon_as_it_is_in_the_table_and_not_when_it_is_gone(
    rig: Rig, table: AccountsTable, origin: Origin
) -> None:
    assert fetch(rig, origin, credentials("ada"))[0] == 407
    ada = table.account("ada")
    assert fetch(rig, origin, credentials("ada"))[0] == 200
    assert fetch(rig, origin, credentials("ada", "wrong-word"))[0] == 407
    table.remove(ada)
    assert fetch(rig, origin, credentials("ada"))[0] == 407
    assert rig.record(status_code=200)["user"] == "ada"


def test_passwords_are_asked_for_on_https_and_socks5(
    rig: Rig, table: AccountsTable, origin: Origin, tmp_path: Path
) -> None:
    table.account("ada")
    rig.configure(protocol="socks5")
    assert [socks5_status(rig, "ada", word) for word in (WORD, "wrong-word")] == [0, 1]
    pair = make_pair(tmp_path)
    with Rig(protocol="https", tls=pair, auth_required=True) as secure:
        other = AccountsTable(secure)
        other.account("bob")
        with connect_tls(secure, pair[0]) as client:
            client.sendall(get(origin, "/", credentials("bob")))
            assert b" 200 " in read_response(client)[0]
        other.close()


def test_an_account_is_one_of_the_proxies_that_it_names_by_id_or_tag(
    rig: Rig, table: AccountsTable, origin: Origin
) -> None:
    table.account("elsewhere", all_proxies=False, proxy_ids=("px_other",))
    table.account("by-id", all_proxies=False, proxy_ids=(PROXY_ID,))
    table.account("by-tag", all_proxies=False, proxy_tags=("eu",))
    found = [fetch(rig, origin, credentials(name))[0] for name in ("elsewhere", "by-id", "by-tag")]
    assert found == [407, 200, 407]
    rig.configure(tags=("eu", "fast"))
    assert fetch(rig, origin, credentials("by-tag"))[0] == 200


def test_an_account_of_the_proxy_itself_and_the_user_of_auth_come_first(
    rig: Rig, table: AccountsTable, origin: Origin
) -> None:
    plain = bcrypt.hashpw(b"table-word", bcrypt.gensalt(4)).decode()
    table.account("ada", password_hash=f"plain:{plain}")
    assert fetch(rig, origin, credentials("ada", "table-word"))[0] == 200
    rig.configure(accounts=(account("ada"),))
    assert fetch(rig, origin, credentials("ada", "table-word"))[0] == 407
    assert fetch(rig, origin, credentials("ada"))[0] == 200


@pytest.mark.parametrize("password", ["p\u00e4ssword", "long " * 30])
def test_a_plain_bcrypt_hash_of_another_program_is_good(
    rig: Rig, table: AccountsTable, origin: Origin, password: str
) -> None:
    hashed = bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(4)).decode()
    table.account("ada", password_hash=f"plain:{hashed}")
    assert fetch(rig, origin, credentials("ada", password))[0] == 200
    assert fetch(rig, origin, credentials("ada", "x" + password))[0] == 407
    table.account("ada", password_hash=f"plain:{hash_password(password, 4)}")  # as an export has it
    assert fetch(rig, origin, credentials("ada", password))[0] == 200


def test_an_account_without_a_password_has_none_that_is_right(rig: Rig, table: AccountsTable, origin: Origin) -> None:
    ada = table.account("ada", password_hash=None)
    for word in ("", "x", "None"):
        assert fetch(rig, origin, credentials("ada", word))[0] == 407
    assert fetch(rig, origin, credentials("ada", table.mint(ada)[1]))[0] == 200


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"enabled": False}, "account_disabled"),
        ({"expires_at": 1.0}, "account_expired"),
        ({"allow_clients": ("192.0.2.0/24",)}, "account_network_not_allowed"),
        ({"rules": InheritedRules(quota=(1, "total"))}, "account_quota_reached"),
    ],
)
def test_what_holds_for_an_account_holds_for_its_password_and_its_credentials(
    rig: Rig, table: AccountsTable, origin: Origin, fields: dict[str, Any], reason: str
) -> None:
    ada = table.account("ada", **fields)
    _record, secret = table.mint(ada)
    if "rules" in fields:
        fetch(rig, origin, bearer(secret))  # what is used up is known when it has been used
    for field in (credentials("ada"), bearer(secret)):
        status, head = fetch(rig, origin, field)
        assert (status in (403, 429), f"rule={reason}".encode() in head) == (True, True), head
    assert rig.ask(Explain("127.0.0.1", "ada", "127.0.0.1:80")).reason == reason


def test_what_an_account_does_not_say_its_plan_does(rig: Rig, table: AccountsTable, origin: Origin) -> None:
    plan = table.plan("small", requests_per_minute=1)
    table.account("ada", plan=plan.id)
    table.account("bob", plan=plan.id, rules=InheritedRules(requests_per_minute=0))
    assert [fetch(rig, origin, credentials("ada"))[0] for _ in range(2)] == [200, 429]
    assert [fetch(rig, origin, credentials("bob"))[0] for _ in range(2)] == [200, 200]


# --- credentials ---


def test_a_secret_is_good_as_password_and_as_bearer_and_with_no_other_name(
    rig: Rig, table: AccountsTable, origin: Origin
) -> None:
    ada = table.account("minter")
    table.account("bob")
    _record, secret = table.mint(ada)
    tried = [bearer(secret), credentials("minter", secret), credentials("", secret), credentials("bob", secret)]
    assert [fetch(rig, origin, field)[0] for field in tried] == [200, 200, 200, 407]
    assert fetch(rig, origin, bearer(secret[:-1] + "!"))[0] == 407
    assert fetch(rig, origin, bearer("pfc_" + "x" * 40))[0] == 407
    until(lambda: len([each for each in rig.records if each["user"] == "minter"]) == 3, "three records")
    rig.configure(protocol="socks5")
    assert [socks5_status(rig, user, secret) for user in ("minter", "", "bob")] == [0, 0, 1]


def test_on_socks4_a_secret_gets_in_and_a_name_only_where_that_is_said(
    rig: Rig, table: AccountsTable, origin: Origin
) -> None:
    ada = table.account("ada")
    table.account("bob", socks4_by_name=True)
    _record, secret = table.mint(ada)
    rig.configure(protocol="socks4", accounts=(account("own", password_hash=None),))
    tried = [secret, "ada", "bob", "own", "pfc_" + "x" * 40]
    assert [socks4_code(rig, origin, user) for user in tried] == [90, 91, 90, 90, 91]
    rig.record(user="ada", status_code=407)
    assert rig.record(user="pfc_xxxxxxx…")["status_code"] == 407  # of a secret the beginning, also of a wrong one
    assert not any(secret in str(each) for each in rig.records)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"ttl": -1.0}, "credential_expired"),
        ({"allow_clients": ("192.0.2.0/24",)}, "credential_network_not_allowed"),
    ],
)
def test_a_credential_narrows_and_its_account_stays_as_it_is(
    rig: Rig, table: AccountsTable, origin: Origin, fields: dict[str, Any], reason: str
) -> None:
    ada = table.account("ada")
    status, head = fetch(rig, origin, bearer(table.mint(ada, **fields)[1]))
    assert (status, f"rule={reason}".encode() in head) == (403, True)
    assert rig.record(reason=reason)["user"] == "ada"
    assert fetch(rig, origin, credentials("ada"))[0] == 200


def test_the_connections_of_a_credential_are_counted_by_themselves(rig: Rig, table: AccountsTable) -> None:
    ada = table.account("ada", rules=InheritedRules(connections=3))
    (_one, secret), (_other, free) = table.mint(ada, max_connections=1), table.mint(ada)
    with Origin(echoes) as origin, tunnel(rig, origin, bearer(secret)):
        status, head = fetch(rig, origin, bearer(secret))
        assert (status, b"rule=credential_connection_limit" in head) == (429, True)
        with tunnel(rig, origin, bearer(free)), password_tunnel(rig, origin, "ada"):
            assert b"rule=account_connection_limit" in fetch(rig, origin, bearer(free))[1]


def test_the_quota_of_a_credential_is_its_own(rig: Rig, table: AccountsTable) -> None:
    ada = table.account("ada")
    _record, secret = table.mint(ada, quota=1000)
    with Origin(responds(*[counted(b"x" * 2000)] * 9)) as origin:
        assert fetch(rig, origin, bearer(secret))[0] == 200
        status, head = fetch(rig, origin, bearer(secret))
        assert (status, b"rule=credential_quota_reached" in head) == (429, True)
        assert fetch(rig, origin, credentials("ada"))[0] == 200


def test_wrong_secrets_are_guesses_after_which_passwords_are_not_checked_and_right_secrets_pass(
    rig: Rig, table: AccountsTable, origin: Origin
) -> None:
    guessed = table.account("guessed")
    _record, secret = table.mint(guessed)
    for number in range(10):
        assert fetch(rig, origin, credentials("guessed", f"pfc_{number:040}"))[0] == 407
    assert fetch(rig, origin, credentials("guessed"))[0] == 407
    assert fetch(rig, origin, credentials("guessed", secret))[0] == 200


def test_every_byte_of_the_connection_is_billed_from_the_first_on(
    rig: Rig, table: AccountsTable, origin: Origin
) -> None:
    """Also those before the account was known, on the first connection that an account of the table has here."""
    ada = table.account("ada")
    record, only = table.mint(ada, quota=10**9)
    _other, secret = table.mint(ada, quota=10**9)
    moved_in = moved_out = 0
    with connect(rig) as client:
        for field in ("X-Nothing: 1", credentials("ada"), bearer(secret)):
            request = get(origin, "/", field)
            client.sendall(request)
            head, body = read_response(client)
            moved_in += len(request)
            moved_out += len(head) + 4 + len(body)
    assert used(rig, ada.id) == (moved_in, moved_out)
    request = get(origin, "/", bearer(only))
    with connect(rig) as client:
        client.sendall(request)
        head, body = read_response(client)
    assert used(rig, record.id) == (len(request), len(head) + 4 + len(body))


def used(rig: Rig, identifier: str) -> tuple[int, int]:
    usage = states(rig)[identifier].usage
    return usage.bytes_in, usage.bytes_out


# --- the table ---


def test_the_table_is_opened_where_credentials_are_wanted_that_are_not_the_proxys_own() -> None:
    with Rig(auth_required=True) as rig, Origin(YES) as origin:
        assert fetch(rig, origin, credentials("ada"))[0] == 407
        assert not _maps_table(rig)
        table = AccountsTable(rig)
        table.account("ada")
        rig.configure(auth_required=False)
        assert fetch(rig, origin, credentials("ada"))[0] == 200
        assert not _maps_table(rig)
        rig.configure(auth_required=True, accounts=(account("own"),))
        assert fetch(rig, origin, credentials("own"))[0] == 200
        assert not _maps_table(rig)
        assert fetch(rig, origin, credentials("ada"))[0] == 200
        assert _maps_table(rig)
        table.close()


def _maps_table(rig: Rig) -> bool:
    return "fleet.sqlite-shm" in Path(f"/proc/{rig.process.pid}/maps").read_text()


def test_a_damaged_file_is_a_problem_that_ends_when_it_can_be_read_again() -> None:
    with Rig(auth_required=True, accounts=(account("own"),)) as rig, Origin(YES) as origin:
        table = AccountsTable(rig)
        table.account("ada")
        table.close()
        whole = table.path.read_bytes()
        table.path.unlink()
        table.path.write_bytes(b"no database" * 4096)
        assert fetch(rig, origin, credentials("ada"))[0] == 503
        until(lambda: ("accounts_table", "") in rig.problems, "the problem is reported")
        assert fetch(rig, origin, credentials("own"))[0] == 200
        table.path.unlink()
        table.path.write_bytes(whole)
        until(lambda: any(each[0] == "accounts_table" for each in rig.over), "the problem is over")
        assert fetch(rig, origin, credentials("ada"))[0] == 200


def _statuses(rig: Rig, reason: str) -> list[int]:
    return [each["status_code"] for each in list(rig.records) if each["reason"] == reason]


def test_while_the_table_can_not_be_read_it_is_not_said_that_credentials_are_wrong() -> None:
    with Rig(auth_required=True, accounts=(account("own"),)) as rig, Origin(YES) as origin:
        table = AccountsTable(rig)
        ada = table.account("ada", socks4_by_name=True)
        _record, secret = table.mint(ada)
        with connect(rig) as kept:
            kept.sendall(get(origin, "/", credentials("ada")))
            assert b" 200 " in read_response(kept)[0]
            table.close()
            whole = table.path.read_bytes()
            os.truncate(table.path, len(whole) // 2)
            until(lambda: ("accounts_table", "") in rig.problems, "the problem is reported")
            kept.sendall(get(origin, "/", credentials("ada")))
            assert b" 503 " in read_response(kept)[0]
        for field in (credentials("ada"), credentials("ada", secret), bearer(secret), credentials("eve", "any-word")):
            status, head = fetch(rig, origin, field)
            assert (status, b"rule=accounts_unavailable" in head, b"Retry-After: 1" in head) == (503, True, True)
        assert fetch(rig, origin, credentials("own"))[0] == 200
        assert fetch(rig, origin, credentials("own", "wrong-word"))[0] == 407
        assert fetch(rig, origin, "X-None: 1")[0] == 407
        assert rig.ask(Explain("127.0.0.1", "own", "127.0.0.1:80")).stage == "address"
        assert "can't be read" in rig.ask(Explain("127.0.0.1", "ada", "127.0.0.1:80")).error
        rig.configure(protocol="socks5")
        tried = [("ada", WORD), ("", secret), ("own", WORD)]
        assert [socks5_status(rig, user, word) for user, word in tried] == [1, 1, 0]
        rig.configure(protocol="socks4")
        assert [socks4_code(rig, origin, user) for user in ("ada", secret, "own")] == [91, 91, 90]
        refused = [503] * (1 + 4 + 2 + 2)
        until(lambda: refused == _statuses(rig, "accounts_unavailable"), "all refusals are recorded, and as such")
        table.path.unlink()
        table.path.write_bytes(whole)
        rig.configure(protocol="http")
        until(lambda: fetch(rig, origin, credentials("ada"))[0] == 200, "the table can be read again")


def test_a_removed_file_is_read_as_it_was_until_there_is_another() -> None:
    with Rig(auth_required=True) as rig, Origin(YES) as origin:
        table = AccountsTable(rig)
        table.account("ada")
        assert fetch(rig, origin, credentials("ada"))[0] == 200
        table.close()
        table.path.unlink()
        until(lambda: fetch(rig, origin, credentials("eve"))[0] == 407, "another is asked for")
        assert fetch(rig, origin, credentials("ada"))[0] == 200
        assert not rig.problems


def test_a_file_that_took_the_place_of_another_is_read_and_ends_what_it_has_no_more() -> None:
    with Rig(auth_required=True) as rig, Origin(YES) as origin:
        before = AccountsTable(rig)
        before.account("ada")
        opened = password_tunnel(rig, origin, "ada")
        before.close()
        for each in before.path.parent.glob("fleet.sqlite*"):
            each.unlink()
        after = AccountsTable(rig)
        after.account("bob")
        with opened:
            assert is_cut(opened)
        until(lambda: fetch(rig, origin, credentials("bob"))[0] == 200, "the new table is read")
        assert fetch(rig, origin, credentials("ada"))[0] == 407
        after.close()


# --- what is seen of them ---


def test_live_connections_and_records_name_the_account_and_the_credential(rig: Rig, table: AccountsTable) -> None:
    ada = table.account("seen")
    record, secret = table.mint(ada)
    query = QueryConnections(ConnectionFilter(), "age", 10, 0)
    with Origin(echoes) as origin:
        with tunnel(rig, origin, bearer(secret)), password_tunnel(rig, origin, "seen"):
            live = rig.ask(query).connections
            assert sorted((each.user, each.credential) for each in live) == [("seen", ""), ("seen", record.id)]
        until(lambda: len(seen(rig)) == 2, "both records")
        assert sorted(seen(rig)) == ["", record.id]
    with Origin(YES) as origin:
        fetch(rig, origin, bearer(secret))
    assert rig.record(method="GET", user="seen")["credential"] == record.id


def seen(rig: Rig) -> list[str]:
    return [each["credential"] for each in list(rig.records) if each["user"] == "seen"]


def test_an_explanation_goes_by_account_plan_and_credential(rig: Rig, table: AccountsTable) -> None:
    plan = table.plan("loopback", allow_destinations=("127.0.0.0/8",))
    ada = table.account("ada", plan=plan.id)
    bob = table.account("bob")
    narrow, _secret = table.mint(ada, allow_destinations=("127.0.0.1:443",))
    expired, _secret = table.mint(bob, ttl=-1.0)

    def explained(user: str | None, credential: str | None, target: str) -> tuple[str, str, str, str]:
        found = rig.ask(Explain("127.0.0.1", user, target, credential))
        return found.stage, found.reason, found.account, found.credential

    refused = ("user", "http_request_denied", "", "")
    assert explained("ada", None, "127.0.0.1:80") == ("address", "", ada.id, "")
    assert explained("ada", None, "192.0.2.1:80") == ("egress_guard", "destination_ip_prohibited", ada.id, "")
    assert explained(None, narrow.id, "127.0.0.1:443") == ("address", "", ada.id, narrow.id)
    word = "credential_destination_not_allowed"
    assert explained("ada", narrow.id, "127.0.0.1:80") == ("address", word, ada.id, narrow.id)
    assert explained("bob", None, "127.0.0.1:80") == ("address", "", bob.id, "")
    assert explained("bob", expired.id, "127.0.0.1:80") == ("credential", "credential_expired", bob.id, expired.id)
    assert explained("bob", narrow.id, "127.0.0.1:80") == refused
    assert explained(None, "crd_none", "127.0.0.1:80") == refused
    assert explained("eve", None, "127.0.0.1:80") == refused
    table.change(bob, enabled=False)
    assert explained("bob", None, "127.0.0.1:80")[:2] == ("account", "account_disabled")
    rig.configure(protocol="socks4")
    assert explained("ada", None, "127.0.0.1:80")[0] == "user"
    assert explained(None, narrow.id, "127.0.0.1:443")[0] == "address"
