"""Certificates of clients at a real actor: who is which account by one, and which are refused in the handshake."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from actors.bus.messages.forwarding import ConnectionFilter, QueryConnections
from actors.bus.messages.specs import ClientTlsSpec
from tests.actor.forwarding.account_client import account, credentials
from tests.actor.forwarding.http_client import get, read_response
from tests.actor.forwarding.shared_accounts import AccountsTable
from tests.kit.certificates import make_pair
from tests.kit.client_certificates import Authority, fingerprint
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, read_head_alone, responds

YES = responds(*[counted(b"yes")] * 99)
Pair = tuple[str, str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("server"))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "clients")


@pytest.fixture
def rig(server: Pair, authority: Authority) -> Iterator[Rig]:
    asks = ClientTlsSpec(str(authority.ca), str(authority.crl))
    with Rig(protocol="https", tls=server, client_tls=asks, auth_required=True) as rig:
        yield rig


@pytest.fixture
def table(rig: Rig) -> Iterator[AccountsTable]:
    table = AccountsTable(rig)
    yield table
    table.close()


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin(YES) as origin:
        yield origin


def context_of(rig: Rig, pair: Pair | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    assert rig.spec.tls is not None
    context = ssl.create_default_context(cafile=rig.spec.tls[0])
    context.maximum_version = version
    if pair is not None:
        context.load_cert_chain(*pair)
    return context


def connect(rig: Rig, pair: Pair | None) -> ssl.SSLSocket:
    sock = socket.create_connection(("127.0.0.1", rig.port), timeout=60)
    return context_of(rig, pair).wrap_socket(sock, server_hostname="localhost")


def status(rig: Rig, origin: Origin, pair: Pair | None, *fields: str) -> int:
    with connect(rig, pair) as client:
        client.sendall(get(origin, "/", *fields))
        return int(read_response(client)[0].split()[1])


def test_a_certificate_is_not_called_unknown_while_the_accounts_can_not_be_read(
    rig: Rig, table: AccountsTable, origin: Origin, authority: Authority
) -> None:
    table.account("builder", password_hash=None, certificates=("CN=build-7",))
    pair = authority.issue("build-7")
    assert status(rig, origin, pair) == 200
    table.close()
    os.truncate(table.path, 8192)
    until(lambda: ("accounts_table", "") in rig.problems, "the problem is reported")
    assert status(rig, origin, pair) == 503


def refused(rig: Rig, pair: Pair | None, word: str) -> None:
    """The handshake fails, with a record and in the counter of its reason."""
    rig.records.clear()
    with suppress(OSError), connect(rig, pair) as client:
        client.sendall(b"GET http://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.recv(1) == b""
    record = rig.record(reason=word)
    assert (record["status_code"], record["method"]) == (400, "")
    until(lambda: rig.counters and rig.counters.refusals.get(word), "it is counted")


# --- who is which account ---


@pytest.mark.parametrize("entry", ["CN=build-7", "DNS:build-7.example", "URI:spiffe://example/build", "SHA256"])
def test_a_matching_certificate_is_the_account_without_a_password(
    rig: Rig, table: AccountsTable, origin: Origin, authority: Authority, entry: str
) -> None:
    pair = authority.issue("build-7", ["other.example", "BUILD-7.example"], ["spiffe://example/build"])
    if entry == "SHA256":
        entry = f"SHA256:{fingerprint(pair[0]).replace(':', '').lower()}"
    table.account("builder", password_hash=None, certificates=(entry,))
    assert status(rig, origin, pair) == 200
    assert rig.record(status_code=200)["user"] == "builder"


def test_credentials_that_are_sent_win_over_the_certificate(
    rig: Rig, table: AccountsTable, origin: Origin, authority: Authority
) -> None:
    pair = authority.issue("build-7")
    table.account("builder", certificates=("CN=build-7",))
    table.account("ada")
    assert status(rig, origin, pair, credentials("ada")) == 200
    assert rig.record(status_code=200)["user"] == "ada"
    assert status(rig, origin, pair, credentials("ada", "wrong-word")) == 407


def test_a_certificate_of_no_account_is_refused_with_a_reason(
    rig: Rig, table: AccountsTable, origin: Origin, authority: Authority
) -> None:
    table.account("builder", certificates=("CN=build-7",))
    table.account("elsewhere", certificates=("CN=build-8",), all_proxies=False, proxy_ids=("px_other",))
    table.account("ada")
    pair = authority.issue("build-8")
    assert status(rig, origin, pair) == 407
    record = rig.record(reason="client_certificate_unmatched")
    assert "CN=build-8" in record["detail"]
    assert status(rig, origin, pair, credentials("ada")) == 200


def test_an_account_of_the_proxy_is_no_other_account_s_certificate(
    rig: Rig, table: AccountsTable, origin: Origin, authority: Authority
) -> None:
    table.account("builder", certificates=("CN=build-7",))
    pair = authority.issue("build-7")
    assert status(rig, origin, pair) == 200
    rig.configure(accounts=(account("builder"),))
    assert status(rig, origin, pair) == 407


def test_a_certificate_that_matches_several_accounts_is_none_of_them(
    rig: Rig, table: AccountsTable, origin: Origin, authority: Authority
) -> None:
    table.account("builder", certificates=("CN=build-7",))
    table.account("tester", certificates=("DNS:build-7.example",))
    assert status(rig, origin, authority.issue("build-7", ["build-7.example"])) == 407
    assert "several accounts: builder, tester" in rig.record(reason="client_certificate_unmatched")["detail"]


def test_an_optional_certificate_may_be_missing_or_unknown(
    rig: Rig, table: AccountsTable, origin: Origin, authority: Authority
) -> None:
    asks = rig.spec.client_tls
    assert asks is not None
    rig.configure(client_tls=ClientTlsSpec(asks.ca, asks.crl, required=False))
    table.account("builder", certificates=("CN=build-7",))
    table.account("ada")
    for pair in (None, authority.issue("build-8")):
        assert status(rig, origin, pair) == 407
        assert status(rig, origin, pair, credentials("ada")) == 200
    assert status(rig, origin, authority.issue("build-7")) == 200
    assert not [each for each in rig.records if each["reason"] == "client_certificate_unmatched"]


def test_what_the_account_may_do_holds_for_its_certificate(
    rig: Rig, table: AccountsTable, origin: Origin, authority: Authority
) -> None:
    pair = authority.issue("build-7")
    account = table.account("builder", certificates=("CN=build-7",), enabled=False)
    assert status(rig, origin, pair) == 403
    rig.record(reason="account_disabled", user="builder")
    table.change(account, enabled=True, allow_clients=("192.0.2.0/24",))
    assert status(rig, origin, pair) == 403
    table.change(account, enabled=True)
    assert status(rig, origin, pair) == 200


def test_a_removed_entry_ends_the_connections_by_it_and_no_others(
    rig: Rig, table: AccountsTable, authority: Authority
) -> None:
    account = table.account("builder", certificates=("CN=build-7", "CN=build-8"))
    with Origin(echoes) as origin:

        def tunnel(pair: Pair, *fields: str) -> ssl.SSLSocket:
            sock = connect(rig, pair)
            lines = "".join(f"{each}\r\n" for each in fields)
            sock.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode())
            assert read_head_alone(sock).startswith(b"HTTP/1.1 200 ")
            return sock

        build_7, build_8 = authority.issue("build-7"), authority.issue("build-8")
        with tunnel(build_7) as ended, tunnel(build_8) as stays, tunnel(build_7, credentials("builder")) as by_word:
            shown = rig.ask(QueryConnections(ConnectionFilter(), "age", 10, 0)).connections
            assert [each.user for each in shown] == ["builder"] * 3
            table.change(account, certificates=("CN=build-8",))
            with suppress(ConnectionResetError, ssl.SSLEOFError):
                assert ended.recv(1) == b""
            assert rig.record(reason="account_certificate_removed")["user"] == "builder"
            for sock in (stays, by_word):
                sock.sendall(b"x")
                assert sock.recv(1) == b"x"


# --- handshakes ---


def test_certificates_that_are_no_good_are_refused_in_the_handshake(
    rig: Rig, authority: Authority, tmp_path: Path
) -> None:
    refused(rig, None, "client_certificate_missing")
    refused(rig, authority.issue("late", left=-timedelta(hours=1)), "client_certificate_expired")
    refused(rig, Authority(tmp_path / "others", "others").issue("build-7"), "client_certificate_unknown_ca")
    gone = authority.issue("gone")
    authority.revoke(gone[0])
    until(lambda: _is_refused(rig, gone), "the changed list is used")
    refused(rig, gone, "client_certificate_revoked")


def _is_refused(rig: Rig, pair: Pair) -> bool:
    try:
        with connect(rig, pair) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            return client.recv(1) == b""
    except OSError:
        return True


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_is_resumed(
    rig: Rig, table: AccountsTable, origin: Origin, authority: Authority, version: ssl.TLSVersion
) -> None:
    table.account("builder", certificates=("CN=build-7",))
    context, session = context_of(rig, authority.issue("build-7"), version), None
    for _ in range(2):
        sock = socket.create_connection(("127.0.0.1", rig.port), timeout=60)
        with context.wrap_socket(sock, server_hostname="localhost", session=session) as client:
            client.sendall(get(origin))
            assert b" 200 " in read_response(client)[0]
            assert not client.session_reused
            session = client.session


def test_a_changed_authority_holds_for_new_clients_and_a_bad_file_keeps_the_old(
    rig: Rig, table: AccountsTable, origin: Origin, authority: Authority, tmp_path: Path
) -> None:
    table.account("builder", certificates=("CN=build-7",))
    pair, others = authority.issue("build-7"), Authority(tmp_path / "others", "others")
    good = authority.ca.read_bytes()
    authority.ca.write_bytes(b"nothing")
    until(lambda: status(rig, origin, pair) == 200 and rig.problems.get(("certificate", "")), "the problem is reported")
    assert "the changed files for clients are not used" in rig.problems["certificate", ""]
    authority.ca.write_bytes(good + others.ca.read_bytes())
    authority.crl.write_bytes(authority.crl.read_bytes() + others.crl.read_bytes())
    until(lambda: not _is_refused(rig, others.issue("build-7")), "the added authority is trusted")
    assert status(rig, origin, others.issue("build-7")) == 200
    os.replace(others.ca, authority.ca)
    until(lambda: _is_refused(rig, pair), "the removed authority is trusted no more")
    until(lambda: not rig.problems.get(("certificate", "")), "the problem is over")
