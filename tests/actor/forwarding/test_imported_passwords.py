"""Accounts whose hash is from elsewhere: replaced at the first right password, and nothing that is open notices."""

from __future__ import annotations

from collections.abc import Iterator

import bcrypt
import pytest

from actors.accounts.records import AccountRecord
from config.passwords import check_password, fingerprint, foreign_hash, hash_password, renewal
from tests.actor.forwarding.account_client import WORD, credentials, echo
from tests.actor.forwarding.connection_pages import is_cut
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.actor.forwarding.in_process_actor import Inside
from tests.actor.forwarding.shared_accounts import AccountsTable, fetch, password_tunnel
from tests.actor.forwarding.socks_client import LOOPBACK, address, reply, signed_in
from tests.kit.forwarding_rig import until
from tests.kit.scripted_origins import Origin, counted, echoes, responds

PREVIOUS = foreign_hash(bcrypt.hashpw(WORD.encode(), bcrypt.gensalt(4)).decode())
RENEWED = hash_password(WORD, 4)

Sent = list[tuple[str, bytes, bytes]]


@pytest.fixture
def rig() -> Iterator[Inside]:
    """It is in this process, whose other tests count connections: it leaves none behind."""
    with Inside(auth_required=True, proxy={"max_idle_connections": 0}) as rig:
        yield rig
        until(lambda: rig.inspect(lambda shared: not (shared.connections or shared.lingering)), "all have ended")


@pytest.fixture
def table(rig: Inside) -> Iterator[AccountsTable]:
    table = AccountsTable(rig)
    yield table
    table.close()


@pytest.fixture
def sent(rig: Inside) -> Sent:
    """What the actor would send to the API."""
    found: Sent = []

    def note(*renewed: str | bytes) -> None:
        found.append(renewed)  # type: ignore[arg-type]

    rig.inspect(lambda shared: setattr(shared.authenticator, "on_renewed", note))
    return found


def renew(table: AccountsTable, account: AccountRecord) -> AccountRecord:
    """As the API does."""
    link = renewal(fingerprint(account.password_hash or ""), RENEWED)
    return table.change(account, password_hash=RENEWED, renewal=link)


def test_the_first_right_password_sends_a_hash_of_our_own(rig: Inside, table: AccountsTable, sent: Sent) -> None:
    ada = table.account("ada", password_hash=PREVIOUS)
    table.account("own")
    with Origin(responds(*[counted(b"yes")] * 9)) as origin:
        assert fetch(rig, origin, credentials("ada", "wrong-word"))[0] == 407
        assert fetch(rig, origin, credentials("own"))[0] == 200
        assert not sent
        assert fetch(rig, origin, credentials("ada"))[0] == 200
        ((account_id, previous, renewed),) = until(lambda: sent, "a hash is sent")
        assert (account_id, previous.decode()) == (ada.id, PREVIOUS)
        assert check_password(WORD, renewed.decode())


def test_what_was_opened_with_the_former_hash_goes_on_until_the_password_changes(
    rig: Inside, table: AccountsTable, sent: Sent
) -> None:
    ada = table.account("ada", password_hash=PREVIOUS)
    with Origin(echoes) as origin, password_tunnel(rig, origin, "ada") as sock:
        ada = renew(table, ada)
        assert fetch(rig, origin, credentials("ada", "wrong-word"))[0] == 407
        echo(sock, b"goes on")
        table.change(ada, password_hash=hash_password("other-word", 4))  # what is said of the previous hash stays
        assert is_cut(sock)
    assert rig.record(reason="account_password_changed")["user"] == "ada"


def test_a_request_on_its_way_is_authenticated_by_either_hash(rig: Inside, table: AccountsTable, sent: Sent) -> None:
    ada = table.account("ada", password_hash=PREVIOUS)
    rig.configure(protocol="socks5")
    with Origin(echoes) as origin, signed_in(rig, "ada", WORD) as sock:
        renew(table, ada)
        sock.sendall(b"\x05\x01\x00" + address(LOOPBACK, origin.port))
        assert reply(sock)[0] == 0


def test_a_kept_connection_costs_no_second_check(rig: Inside, table: AccountsTable, sent: Sent) -> None:
    ada = table.account("ada", password_hash=PREVIOUS)
    with Origin(responds(*[counted(b"yes")] * 9)) as origin, connect(rig) as sock:
        for _ in range(2):
            sock.sendall(get(origin, "/", credentials("ada")))
            assert b" 200 " in read_response(sock)[0]
            renew(table, ada)
        until(lambda: sent, "a hash is sent")
        assert len(sent) == 1
