"""Origins that authenticate the connection (NTLM, RFC 4559): what one client has signed in serves no other."""

from __future__ import annotations

import base64
import socket
import struct
from collections.abc import Iterator

import pytest

from tests.actor.forwarding.http_client import connect, get, read_response
from tests.kit.forwarding_rig import Rig
from tests.kit.scripted_origins import Origin, counted, read_head, responds
from tests.kit.upstreams import of_rig, upstream_entry, upstream_list

UNKNOWN = (
    b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Negotiate\r\nWWW-Authenticate: NTLM\r\nContent-Length: 0\r\n\r\n"
)
CHALLENGE = base64.b64encode(
    struct.pack("<8sIHHII8s8sHHI", b"NTLMSSP\0", 2, 0, 0, 48, 0x201, b"12345678", b"", 0, 0, 48)
)


def signs_in(sock: socket.socket) -> None:
    """Speaks NTLM with each client: one that has completed the handshake is known for the connection's life."""
    account = b""
    while head := read_head(sock):
        path = head.split(b" ", 2)[1]
        scheme, _, word = _field(head, b"authorization").partition(b" ")
        message = base64.b64decode(word) if scheme == b"NTLM" else b""
        if message[8:12] == b"\3\0\0\0":
            length, offset = struct.unpack_from("<HxxI", message, 36)
            account = message[offset : offset + length].replace(b"\0", b"")
        if message[8:12] == b"\1\0\0\0":
            sock.sendall(UNKNOWN.replace(b"WWW-Authenticate: NTLM", b"WWW-Authenticate: NTLM " + CHALLENGE))
        elif not account:
            sock.sendall(UNKNOWN)
        elif path == b"/bye":
            sock.sendall(counted(account).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            sock.close()
            return
        else:
            sock.sendall(counted(account))
            if path == b"/last":
                sock.close()
                return


def _field(head: bytes, name: bytes) -> bytes:
    lines = (line.partition(b":") for line in head.split(b"\r\n"))
    return next((value.strip() for written, _, value in lines if written.lower() == name), b"")


def first(scheme: str = "NTLM") -> str:
    return f"Authorization: {scheme} " + base64.b64encode(b"NTLMSSP\0\1\0\0\0" + bytes(20)).decode()


def third(account: str, scheme: str = "NTLM") -> str:
    name = account.encode("utf-16-le")
    message = b"NTLMSSP\0" + struct.pack("<I", 3) + bytes(24) + struct.pack("<HHI", len(name), len(name), 44) + name
    return f"Authorization: {scheme} " + base64.b64encode(message).decode()


def ask(client: socket.socket, origin: Origin, path: str = "/", *fields: str) -> tuple[int, bytes, bytes]:
    """Status, head and body."""
    client.sendall(get(origin, path, *fields))
    head, body = read_response(client)
    return int(head.split()[1]), head, body


def sign_in(client: socket.socket, origin: Origin, account: str) -> None:
    """The handshake, on this one connection."""
    assert ask(client, origin)[0] == 401
    status, head, _ = ask(client, origin, "/", first())
    assert (status, b"WWW-Authenticate: NTLM " + CHALLENGE in head) == (401, True)
    assert ask(client, origin, "/", third(account))[::2] == (200, account.encode())


@pytest.fixture(scope="module")
def farther() -> Iterator[Rig]:
    with Rig(id="px-far") as shared:
        yield shared


@pytest.fixture(scope="module")
def other() -> Iterator[Rig]:
    with Rig(id="px-other") as shared:
        yield shared


@pytest.fixture(params=("directly", "through an upstream", "through two by turns"))
def way(request: pytest.FixtureRequest, rig: Rig, farther: Rig, other: Rig) -> Rig:
    """The proxy, which reaches origins in one of these ways."""
    given = {"directly": (), "through an upstream": (farther,), "through two by turns": (farther, other)}
    rig.configure(upstreams=upstream_list(*(of_rig(each) for each in given[request.param]), policy="round_robin"))
    return rig


def test_an_account_that_one_client_signed_in_serves_no_other(way: Rig) -> None:
    with Origin(signs_in) as origin:
        with connect(way) as alice:
            sign_in(alice, origin, "alice")
            assert ask(alice, origin)[::2] == (200, b"alice")
            with connect(way) as bob:
                assert ask(bob, origin)[0] == 401
                sign_in(bob, origin, "bob")
                assert ask(alice, origin)[::2] == (200, b"alice")
                assert ask(bob, origin)[::2] == (200, b"bob")
        for _ in range(3):
            with connect(way) as stranger:
                assert ask(stranger, origin)[0] == 401


def test_requests_with_a_body_go_over_the_connection_that_is_signed_in(way: Rig) -> None:
    with Origin(signs_in) as origin, connect(way) as alice:
        sign_in(alice, origin, "alice")
        alice.sendall(get(origin).replace(b"GET", b"POST"))
        assert read_response(alice)[1] == b"alice"


@pytest.mark.parametrize("path", ["/bye", "/last"])
def test_a_client_whose_origin_connection_has_ended_is_ended_too(way: Rig, path: str) -> None:
    with Origin(signs_in) as origin, connect(way) as alice:
        sign_in(alice, origin, "alice")
        assert ask(alice, origin, path)[::2] == (200, b"alice")
        assert alice.recv(1) == b""


def test_a_client_that_asked_another_origin_meanwhile_is_unknown_to_the_first(way: Rig) -> None:
    with Origin(signs_in) as origin, Origin(responds(counted(b"else"))) as elsewhere, connect(way) as alice:
        sign_in(alice, origin, "alice")
        assert ask(alice, elsewhere)[::2] == (200, b"else")
        assert ask(alice, origin)[0] == 401


def test_a_connection_dialled_before_a_change_of_the_proxy_is_nobodys_after_it(rig: Rig) -> None:
    rig.configure(upstreams=upstream_list())
    with Origin(signs_in) as origin, connect(rig) as chained:
        sign_in(chained, origin, "alice")
        rig.configure(bind_address="127.0.0.1")
        assert ask(chained, origin)[0] == 401
    rig.configure(bind_address="")


@pytest.mark.parametrize("field", [first("Negotiate"), first("Kerberos"), "Authorization: Unheard-Of x"])
def test_a_request_that_may_sign_the_connection_in_keeps_it_for_its_client(rig: Rig, field: str) -> None:
    rig.configure(upstreams=upstream_list())
    with Origin(responds(*[counted(b"one")] * 3)) as origin:
        with connect(rig) as client:
            assert ask(client, origin, "/", field)[0] == 200
            assert ask(client, origin)[0] == 200
            assert origin.connections == 1
        with connect(rig) as another:
            assert ask(another, origin)[0] == 200
        assert origin.connections == 2


@pytest.mark.parametrize("scheme", ["Basic", "digest", "BEARER", "DPoP", "AWS4-HMAC-SHA256"])
def test_credentials_of_one_request_leave_the_connection_for_all(rig: Rig, scheme: str) -> None:
    rig.configure(upstreams=upstream_list())
    with Origin(responds(*[counted(b"one")] * 2)) as origin:
        for _ in range(2):
            with connect(rig) as client:
                assert ask(client, origin, "/", f"Authorization: {scheme} abc")[0] == 200
        assert origin.connections == 1


@pytest.mark.parametrize("field", [b"WWW-Authenticate: Basic realm=x, ntlm", b"Proxy-Authenticate: Negotiate"])
def test_an_answer_that_offers_it_keeps_the_connection_for_its_client(rig: Rig, field: bytes) -> None:
    rig.configure(upstreams=upstream_list())
    offer = counted(b"no").replace(b"200 OK", b"401 No\r\n" + field)
    with Origin(responds(offer, counted(b"one"))) as origin:
        for _ in range(2):
            with connect(rig) as client:
                assert ask(client, origin)[0] == 401
        assert origin.connections == 2


def test_clients_hear_that_the_connection_is_kept_for_them(rig: Rig) -> None:
    rig.configure(upstreams=upstream_list())
    with Origin(signs_in) as origin:
        with connect(rig) as client:
            head = ask(client, origin)[1]
            assert b"\r\nConnection: Proxy-Support\r\n" in head
            assert b"\r\nProxy-Support: Session-Based-Authentication" in head
        with connect(rig) as client:
            head = ask(client, origin, "/", "Connection: close")[1]
            assert b"Proxy-Support" not in head


def test_an_upstream_that_learns_of_clients_keeps_each_ones_connection(rig: Rig, farther: Rig) -> None:
    farther.configure(accept_proxy_protocol=True)
    rig.configure(upstreams=upstream_list(upstream_entry(farther.port, proxy_protocol="v2")))
    try:
        with Origin(signs_in) as origin, connect(rig) as alice:
            sign_in(alice, origin, "alice")
            assert ask(alice, origin)[::2] == (200, b"alice")
    finally:
        farther.configure(accept_proxy_protocol=False)
        rig.configure(upstreams=upstream_list())


def test_a_connection_that_is_signed_in_stays_with_its_client_where_each_request_has_a_source_address_of_its_own(
    rig: Rig,
) -> None:
    rig.configure(upstreams=upstream_list(), egress=("127.7.0.0/16",), bind_policy="random")
    with Origin(signs_in) as origin, connect(rig) as alice:
        sign_in(alice, origin, "alice")
        for _ in range(3):
            assert ask(alice, origin)[::2] == (200, b"alice")
        rig.configure(egress=("127.8.0.0/16",))
        assert ask(alice, origin)[0] == 401
    rig.configure(egress=())
