"""Changes of shared accounts, plans and credentials: what becomes of connections that are open."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from actors.accounts.records import InheritedRules
from actors.forwarding.context import ForwardingContext
from actors.forwarding.limits import accounts_in_use
from tests.actor.forwarding.account_client import OTHER_HASH, credentials, echo
from tests.actor.forwarding.connection_pages import is_cut
from tests.actor.forwarding.in_process_actor import Inside
from tests.actor.forwarding.shared_accounts import AccountsTable, bearer, fetch, password_tunnel, tunnel
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, responds


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig(auth_required=True) as rig:
        yield rig


@pytest.fixture
def table(rig: Rig, written: AccountsTable) -> AccountsTable:
    rig.configure(accounts=(), tags=("eu",), auth_required=True)
    written.clear()
    rig.records.clear()
    return written


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin(echoes) as origin:
        yield origin


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"enabled": False}, "account_disabled"),
        ({"expires_at": 1.0}, "account_expired"),
        ({"allow_clients": ("192.0.2.0/24",)}, "account_network_not_allowed"),
        ({"username": "lovelace"}, "account_removed"),
        ({"all_proxies": False, "proxy_tags": ("us",)}, "account_removed"),
        ({"rules": InheritedRules(quota=(1, "total"))}, "account_quota_reached"),
    ],
)
def test_an_account_that_may_no_longer_ends_all_its_connections(
    rig: Rig, table: AccountsTable, origin: Origin, change: dict[str, Any], reason: str
) -> None:
    ada = table.account("ada")
    _record, secret = table.mint(ada)
    with password_tunnel(rig, origin, "ada") as one, tunnel(rig, origin, bearer(secret)) as other:
        table.change(ada, **change)
        assert is_cut(one)
        assert is_cut(other)
    assert rig.record(reason=reason)["user"] == "ada"


def test_a_deleted_account_ends_all_its_connections_and_no_other(
    rig: Rig, table: AccountsTable, origin: Origin
) -> None:
    ada, _bob = table.account("ada"), table.account("bob")
    with password_tunnel(rig, origin, "ada") as sock, password_tunnel(rig, origin, "bob") as other:
        table.remove(ada)
        assert is_cut(sock)
        echo(other, b"goes on")


def test_a_changed_password_ends_what_was_opened_with_it_and_leaves_credentials(
    rig: Rig, table: AccountsTable, origin: Origin
) -> None:
    ada = table.account("ada")
    _record, secret = table.mint(ada)
    with password_tunnel(rig, origin, "ada") as one, tunnel(rig, origin, bearer(secret)) as other:
        table.change(ada, password_hash=OTHER_HASH)
        assert is_cut(one)
        echo(other, b"goes on")
        assert fetch(rig, origin, credentials("ada"))[0] == 407
        with password_tunnel(rig, origin, "ada", "other-word") as again:
            echo(again, b"the new one")
    assert rig.record(reason="account_password_changed")["user"] == "ada"


def test_a_revoked_credential_ends_its_connections_alone(rig: Rig, table: AccountsTable, origin: Origin) -> None:
    ada = table.account("ada")
    (gone, secret), (_stays, other_secret) = table.mint(ada), table.mint(ada)
    with tunnel(rig, origin, bearer(secret)) as sock, tunnel(rig, origin, bearer(other_secret)) as other:
        table.remove(gone)
        assert fetch(rig, origin, bearer(secret))[0] == 407
        assert is_cut(sock)
        echo(other, b"goes on")
    assert rig.record(reason="credential_revoked")["user"] == "ada"


def test_a_credential_that_expires_ends_its_connections(rig: Rig, table: AccountsTable, origin: Origin) -> None:
    ada = table.account("ada")
    record, secret = table.mint(ada, ttl=4.0)
    with tunnel(rig, origin, bearer(secret)) as sock:
        echo(sock, b"not yet")
        assert is_cut(sock)
        assert rig.record(reason="credential_expired")["timestamp"] >= record.expires_at
    assert b"rule=credential_expired" in fetch(rig, origin, bearer(secret))[1]


def test_a_changed_plan_holds_at_once_for_all_its_accounts(rig: Rig, table: AccountsTable, origin: Origin) -> None:
    plan = table.plan("paid")
    table.account("ada", plan=plan.id)
    table.account("bob", plan=plan.id, rules=InheritedRules(quota=(0, "total")))
    with password_tunnel(rig, origin, "ada") as ada, password_tunnel(rig, origin, "bob") as bob:
        echo(ada, b"x" * 1000)
        table.plan("paid", quota=(1000, "total"))
        assert is_cut(ada)
        echo(bob, b"its own quota is none")


def test_tags_of_the_proxy_that_no_longer_match_end_connections(rig: Rig, table: AccountsTable, origin: Origin) -> None:
    table.account("ada", all_proxies=False, proxy_tags=("eu",))
    with password_tunnel(rig, origin, "ada") as sock:
        rig.configure(tags=("eu", "more"))
        echo(sock, b"still one of its proxies")
        rig.configure(tags=("us",))
        assert is_cut(sock)
        assert fetch(rig, origin, credentials("ada"))[0] == 407


def test_an_inline_account_takes_over_a_name_and_other_changes_of_the_proxy_end_nothing(
    rig: Rig, table: AccountsTable, origin: Origin
) -> None:
    table.account("ada")
    with password_tunnel(rig, origin, "ada") as sock:
        rig.configure(timeout=20.0)
        echo(sock, b"goes on")
        rig.configure(auth_required=False)
        echo(sock, b"no account is needed any more")
        rig.configure(auth_required=True)
        echo(sock, b"it is still the account's")
        rig.configure(auth_username="ada", auth_hash=OTHER_HASH)
        assert is_cut(sock)
    rig.configure(auth_username=None, auth_hash=None)


def test_accounts_are_brought_up_to_date_while_the_proxy_wants_no_credentials(
    rig: Rig, table: AccountsTable, origin: Origin
) -> None:
    ada = table.account("ada")
    with password_tunnel(rig, origin, "ada") as sock:
        rig.configure(auth_required=False)
        echo(sock, b"no account is needed any more")
        table.change(ada, enabled=False)
        assert is_cut(sock)


def test_an_account_is_held_while_it_is_in_use_and_then_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts_in_use, "IDLE", 0.5)
    monkeypatch.setattr(accounts_in_use, "SWEEP", 0.1)
    with Inside(auth_required=True) as rig, Origin(echoes) as origin:
        table = AccountsTable(rig)
        ada = table.account("ada", enabled=False)
        _record, secret = table.mint(ada)
        assert fetch(rig, origin, bearer(secret))[0] == 403
        assert fetch(rig, origin, credentials("ada"))[0] == 403
        until(lambda: rig.inspect(_in_use) == [], "none is in use")
        assert rig.inspect(lambda shared: dict(shared.limits.accounts)) == {}
        table.close()


def _in_use(shared: ForwardingContext) -> list[str]:
    return [each.spec.id for each in shared.limits.in_use]


def test_a_connection_that_changes_its_user_is_each_accounts_in_turn(rig: Rig, table: AccountsTable) -> None:
    ada = table.account("ada")
    bob = table.account("bob")
    _record, secret = table.mint(bob)
    with Origin(responds(*[counted(b"yes")] * 9)) as origin, _kept(rig, origin, credentials("ada")) as sock:
        sock.sendall(_request(origin, bearer(secret)))
        assert b" 200 " in sock.recv(4096)
        table.change(ada, enabled=False)
        assert fetch(rig, origin, credentials("ada"))[0] == 403
        sock.sendall(_request(origin, bearer(secret)))
        assert b" 200 " in sock.recv(4096)
        table.change(bob, enabled=False)
        assert is_cut(sock)


def _request(origin: Origin, field: str) -> bytes:
    return f"GET http://{origin.authority}/ HTTP/1.1\r\nHost: x\r\n{field}\r\n\r\n".encode()


def _kept(rig: Rig, origin: Origin, field: str) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", rig.port), 20)
    sock.sendall(_request(origin, field))
    assert b" 200 " in sock.recv(4096)
    return sock
