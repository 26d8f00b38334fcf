"""Tunnels whose TLS handshake is read: what reaches the origin, what the client gets, what is written down.

The proxy allows `localhost`; what the handshake names needs no address.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from actors.bus.messages.specs import AccessSpec, PolicySpec, RuleSpec
from actors.forwarding.fleet_objects import FleetObjects
from actors.net.client_hello import UNRECOGNIZED_NAME_ALERT
from tests.actor.forwarding.account_client import account, credentials, states
from tests.actor.forwarding.http_client import connect
from tests.actor.forwarding.socks_client import LOOPBACK, address, arrive, ask, datagram_socket, exactly, responder
from tests.actor.forwarding.tls_client import connect as connect_with_tls
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, read_all, read_head_alone
from tests.kit.tables import table
from tests.kit.upstreams import of_rig, upstream_list

OTHER = "other.example"
SHORT = {"handshake_timeout": 0.5}
NAMES = AccessSpec(allow_destinations=("localhost",))


class Site(Origin):
    """An origin that keeps what it gets; it speaks first where it has something to say."""

    def __init__(self, says: bytes = b"") -> None:
        self.got = b""
        self._says = says
        super().__init__(self._keep)

    def _keep(self, sock: socket.socket) -> None:
        sock.sendall(self._says)
        while data := sock.recv(65536):
            self.got += data
        sock.close()


def hello(name: str | None, **options: Any) -> bytes:
    """The first flight of OpenSSL for this name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    for option, value in options.items():
        setattr(context, option, value)
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def in_two_records(flight: bytes) -> bytes:
    """The same message, cut into two records in the middle."""
    middle = len(flight) // 2
    pieces = flight[5:middle], flight[middle:]
    return b"".join(flight[:3] + len(piece).to_bytes(2, "big") + piece for piece in pieces)


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest.fixture
def rig(shared: Rig, site: Site) -> Rig:
    shared.configure(
        FleetObjects(),
        access=AccessSpec(),
        policy="",
        tls_name="match",
        tls_ports=(site.port,),
        upstreams=upstream_list(),
    )
    shared.records.clear()
    return shared


def begin_row(rig: Rig, site: Site) -> None:
    """Forget what the rows before have left."""
    site.got = b""
    rig.records.clear()


def tunnel(rig: Rig, port: int, early: bytes = b"", host: str = "localhost") -> socket.socket:
    sock = connect(rig)
    sock.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode() + early)
    assert read_head_alone(sock).startswith(b"HTTP/1.1 200 ")
    return sock


def record(rig: Rig, site: Origin, host: str = "localhost", **wanted: Any) -> dict[str, Any]:
    """That of a tunnel to this site."""
    return rig.record(target_url=f"{host}:{site.port}", **wanted)


def is_refused(sock: socket.socket, site: Site, rig: Rig, host: str = "localhost") -> dict[str, Any]:
    """The client gets the alert and the end, the origin not one octet; the record."""
    assert read_all(sock) == UNRECOGNIZED_NAME_ALERT
    refused = record(rig, site, host, reason="tls_name_denied")
    assert site.got == b""
    return refused


def is_let_through(sock: socket.socket, site: Site, sent: bytes) -> None:
    sock.shutdown(socket.SHUT_WR)
    assert read_all(sock) == b""
    assert site.got == sent


PLAIN = b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n"
CUT_OFF = hello("localhost")[:-1]


@table("check", ["record", "match", "allowed"])
@table(
    ("flight", "kind"),
    [
        (hello("localhost"), "match"),
        (hello("LOCALHOST"), "match"),
        (in_two_records(hello("localhost")), "match"),
        (hello(OTHER), "mismatch"),
        (in_two_records(hello(OTHER)), "mismatch"),
        (hello(OTHER, maximum_version=ssl.TLSVersion.TLSv1_2), "mismatch"),
        (hello(None), "no_name"),
        (PLAIN, "not_tls"),
        (b"SSH-2.0-x\r\n", "not_tls"),
        (hello("localhost")[:5] + b"\x02" + hello("localhost")[6:], "malformed"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{len(value)} octets",
)
def test_what_does_not_name_the_target_is_refused_and_not_an_octet_reaches_it(
    rig: Rig, site: Site, check: str, flight: bytes, kind: str
) -> None:
    begin_row(rig, site)
    rig.configure(tls_name=check, access=NAMES if check == "allowed" else AccessSpec())
    with tunnel(rig, site.port) as sock:
        sock.sendall(flight)
        if kind == "match" or check == "record":
            is_let_through(sock, site, flight)
            written = record(rig, site, reason="")
        else:
            written = is_refused(sock, site, rig)
            assert written["detail"].startswith(f"{kind}: ")
            assert written["rule"] == "tls_name"
            assert written["status_code"] == 200
    assert written["bytes_in"] >= len(flight)
    named = {"match": "localhost", "mismatch": OTHER}.get(kind, "")
    assert written["tls_name"] == named
    assert written["alpn"] == ("h2,http/1.1" if named or kind == "no_name" else "")


def test_what_was_found_in_them_is_counted(site: Site) -> None:
    flights = {"match": hello("localhost"), "mismatch": hello(OTHER), "no_name": hello(None), "not_tls": PLAIN}
    with Rig(tls_name="record", tls_ports=(site.port,)) as rig:
        for flight in (*flights.values(), flights["mismatch"]):
            begin_row(rig, site)
            with tunnel(rig, site.port) as sock:
                sock.sendall(flight)
                is_let_through(sock, site, flight)
        found = {kind: 1 + (kind == "mismatch") for kind in flights}
        until(lambda: rig.counters and rig.counters.tls_names == found, "they are counted")


def test_another_name_is_allowed_where_it_might_have_been_requested(rig: Rig, site: Site) -> None:
    allowed = AccessSpec(allow_destinations=("localhost", "127.0.0.0/8", f"*.example:{site.port}", "here.test:1"))
    rig.configure(tls_name="allowed", access=allowed)
    flight = hello(OTHER)
    with tunnel(rig, site.port) as sock:
        sock.sendall(flight)
        is_let_through(sock, site, flight)
    rig.configure(access=AccessSpec(allow_destinations=("localhost", "here.test:1"), deny_destinations=("no.example",)))
    for name in ("here.test", "no.example", OTHER):
        site.got = b""
        rig.records.clear()
        with tunnel(rig, site.port) as sock:
            sock.sendall(hello(name))
            assert name in is_refused(sock, site, rig)["detail"]


def test_a_target_given_as_an_address_needs_a_name_that_is_allowed(rig: Rig, site: Site) -> None:
    rig.configure(access=AccessSpec(allow_destinations=("127.0.0.1",), deny_destinations=(OTHER,)))
    for flight in (hello(OTHER), hello(None)):
        with tunnel(rig, site.port, host="127.0.0.1") as sock:
            sock.sendall(flight)
            is_refused(sock, site, rig, "127.0.0.1")
            rig.records.clear()
    fine = hello("any.example")
    with tunnel(rig, site.port, host="127.0.0.1") as sock:
        sock.sendall(fine)
        is_let_through(sock, site, fine)


@table(
    ("access", "refused"),
    [(NAMES, True), (AccessSpec(allow_destinations=("*",)), False), (AccessSpec(), False)],
    ids=["an entry names it", "none does", "no list"],
)
def test_without_a_word_an_entry_that_names_hosts_decides(
    rig: Rig, site: Site, access: AccessSpec, refused: bool
) -> None:
    begin_row(rig, site)
    rig.configure(tls_name="auto", access=access)
    flight = hello(OTHER)
    with tunnel(rig, site.port) as sock:
        sock.sendall(flight)
        if refused:
            assert is_refused(sock, site, rig)["rule"] == "access.allow_destinations[0] localhost"
        else:
            is_let_through(sock, site, flight)


def test_a_rule_of_a_policy_has_the_last_word(rig: Rig, site: Site) -> None:
    rule = RuleSpec("one", destinations=("localhost",), use="direct", tls_name="off")
    rig.configure(FleetObjects(policies=(PolicySpec("pol1", "house", (rule,)),)), policy="house")
    flight = hello(OTHER)
    with tunnel(rig, site.port) as sock:
        sock.sendall(flight)
        is_let_through(sock, site, flight)
    assert record(rig, site)["tls_name"] == "", "nothing is read"


def test_in_report_mode_a_mismatch_is_recorded_alone(rig: Rig, site: Site) -> None:
    rig.configure(access=AccessSpec(mode="report", allow_destinations=("localhost",)))
    flight = hello(OTHER)
    with tunnel(rig, site.port) as sock:
        sock.sendall(flight)
        is_let_through(sock, site, flight)
    assert record(rig, site, reason="reported:tls_name_denied")["detail"].startswith("mismatch: ")


def test_in_report_mode_rules_of_a_policy_refuse_a_second_hello_too(rig: Rig, pair: tuple[str, str]) -> None:
    rules = RuleSpec("no", destinations=(OTHER,), use="deny"), RuleSpec("all", egress=("127.0.0.1",))
    with Origin(serving(pair, curve="secp384r1")) as origin:
        rig.configure(
            FleetObjects(policies=(PolicySpec("pol1", "house", rules),)),
            policy="house",
            access=AccessSpec(mode="report"),
            tls_name="allowed",
            tls_ports=(origin.port,),
        )
        for second, refused in ((OTHER, True), ("third.example", False)):
            rig.records.clear()
            with tunnel(rig, origin.port, hello("localhost")) as sock:
                exactly(sock, 5)
                sock.sendall(hello(second))
                assert read_all(sock).endswith(UNRECOGNIZED_NAME_ALERT) is refused
            assert record(rig, origin)["reason"] == ("" if refused else "reported:") + "tls_name_denied"


@table(("check", "ports"), [("off", True), ("match", False)])
def test_nothing_is_read_where_nothing_is_checked(rig: Rig, site: Site, check: str, ports: bool) -> None:
    begin_row(rig, site)
    rig.configure(tls_name=check, tls_ports=(site.port,) if ports else ())
    flight = hello(OTHER)
    with tunnel(rig, site.port, flight) as sock:
        is_let_through(sock, site, flight)
    assert record(rig, site)["tls_name"] == ""


# --- how it comes ---


def piecewise(sock: socket.socket, flight: bytes) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for octet in flight:
        sock.sendall(bytes((octet,)))


@table("send", [socket.socket.sendall, piecewise], ids=["at once", "octet by octet"])
@table("name", ["localhost", OTHER])
def test_the_pieces_that_it_comes_in_change_nothing(
    rig: Rig, site: Site, name: str, send: Callable[[socket.socket, bytes], None]
) -> None:
    flight = in_two_records(hello(name))
    for early in (0, 1, 100, len(flight)):
        site.got = b""
        rig.records.clear()
        with tunnel(rig, site.port, flight[:early]) as sock:
            send(sock, flight[early:])
            if name == OTHER:
                is_refused(sock, site, rig)
            else:
                is_let_through(sock, site, flight)
        assert record(rig, site)["tls_name"] == name


def test_a_server_that_speaks_first_gets_through_where_nothing_is_refused(rig: Rig) -> None:
    with Site(b"220 welcome\r\n") as site:
        rig.configure(tls_name="record", tls_ports=(site.port,))
        with tunnel(rig, site.port) as sock:
            assert exactly(sock, 13) == b"220 welcome\r\n"
            sock.sendall(b"EHLO me\r\n")
            is_let_through(sock, site, b"EHLO me\r\n")


@table("sent", [b"", CUT_OFF])
def test_what_is_not_whole_in_time_is_written_on_or_refused(site: Site, sent: bytes) -> None:
    with Rig(params=SHORT, tls_ports=(site.port,), tls_name="record") as rig:
        with tunnel(rig, site.port, sent) as sock:
            until(lambda: site.got == sent, "what there is is written on")
            sock.sendall(b"more")
            is_let_through(sock, site, sent + b"more")
        site.got = b""
        rig.configure(tls_name="match")
        with tunnel(rig, site.port, sent) as sock:
            assert is_refused(sock, site, rig)["detail"].startswith("timeout: ")


def test_a_client_that_ends_before_its_hello_is_whole(rig: Rig, site: Site) -> None:
    with tunnel(rig, site.port, CUT_OFF) as sock:
        sock.shutdown(socket.SHUT_WR)
        assert is_refused(sock, site, rig)["detail"].startswith("malformed: ")
    rig.records.clear()
    with tunnel(rig, site.port) as sock:
        sock.shutdown(socket.SHUT_WR)
        assert read_all(sock) == b""
    assert record(rig, site)["reason"] == "", "it has sent nothing that could be refused"


@table(("check", "flight"), [("record", CUT_OFF), ("record", b""), ("match", hello("localhost"))])
def test_an_end_that_came_with_the_request_reaches_the_origin(rig: Rig, check: str, flight: bytes) -> None:
    def respond_to_the_end(sock: socket.socket) -> None:
        with sock:
            sock.sendall(read_all(sock))

    with Origin(respond_to_the_end) as origin:
        rig.configure(tls_name=check, tls_ports=(origin.port,))
        with connect(rig) as sock:
            request = f"CONNECT localhost:{origin.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
            sock.sendall(request + flight)
            sock.shutdown(socket.SHUT_WR)
            assert read_all(sock).partition(b"\r\n\r\n")[2] == flight


# --- whole handshakes ---


def serving(pair: tuple[str, str], **options: Any) -> Callable[[socket.socket], None]:
    """A site with TLS that sends back what it gets, in upper case."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    if "curve" in options:
        context.set_ecdh_curve(options["curve"])
    if "version" in options:
        context.maximum_version = options["version"]

    def serve(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True) as secure:
            while data := secure.recv(65536):
                secure.sendall(data.upper())

    return serve


@table(
    "options",
    [{}, {"version": ssl.TLSVersion.TLSv1_2}, {"curve": "secp384r1"}],
    ids=["1.3", "1.2", "with a HelloRetryRequest"],
)
@table("check", ["record", "match"])
def test_a_handshake_that_names_its_target_is_like_any_other(
    rig: Rig, pair: tuple[str, str], check: str, options: dict[str, Any]
) -> None:
    with Origin(serving(pair, **options)) as origin:
        rig.configure(tls_name=check, tls_ports=(origin.port,))
        trusting = ssl.create_default_context(cafile=pair[0])
        with trusting.wrap_socket(tunnel(rig, origin.port), server_hostname="localhost") as secure:
            for size in (1, 100_000):
                secure.sendall(b"x" * size)
                assert exactly(secure, size) == b"X" * size
        written = record(rig, origin)
        assert (written["tls_name"], written["tls_version"], written["rule"]) == ("localhost", "1.3", "")


def test_a_second_hello_names_what_the_first_one_did(pair: tuple[str, str]) -> None:
    """A server that wants another key share is sent a second ClientHello, and would serve the name in that."""
    named: list[str | None] = []

    def note(_socket: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        named.append(name)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    context.set_ecdh_curve("secp384r1")
    context.sni_callback = note
    seen: list[bytes] = []

    def serve(sock: socket.socket) -> None:
        inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = context.wrap_bio(inward, outward, server_side=True)
        while data := sock.recv(65536):
            seen.append(data)
            inward.write(data)
            with suppress(ssl.SSLError):
                server.do_handshake()
            sock.sendall(outward.read())

    with Origin(serve) as origin, Rig(tls_name="match", tls_ports=(origin.port,)) as rig:
        first, second = hello("localhost"), hello(OTHER)
        for behind in (second, b"\x14\x03\x03\0\x01\x01" + second, in_two_records(second)):
            seen.clear()
            rig.records.clear()
            with tunnel(rig, origin.port, first) as sock:
                until(lambda: seen, "the first hello has come")
                exactly(sock, 5)
                sock.sendall(behind)
                assert read_all(sock).endswith(UNRECOGNIZED_NAME_ALERT)
            assert record(rig, origin, reason="tls_name_denied")["detail"].startswith("mismatch: ")
            assert OTHER.encode() not in b"".join(seen)
        seen.clear()
        rig.records.clear()
        with tunnel(rig, origin.port, first + second) as sock:  # not waiting for the server
            assert read_all(sock).endswith(UNRECOGNIZED_NAME_ALERT)
        assert record(rig, origin, reason="tls_name_denied")["detail"].startswith("mismatch: ")
        assert b"".join(seen) == first
        assert OTHER not in named
        until(lambda: rig.counters and rig.counters.tls_names.get("mismatch") == 4, "they are counted")
        assert rig.counters is not None
        assert rig.counters.tls_names == {"mismatch": 4}  # and none of them as a match


def test_early_data_follows_a_hello_at_once(rig: Rig, site: Site) -> None:
    """It is sent before the server has said anything (RFC 8446 4.2.10)."""
    flight = hello("localhost")
    early = b"\x14\x03\x03\0\x01\x01" + b"\x17\x03\x03\0\x20" + bytes(32)
    with tunnel(rig, site.port, flight + early[:20]) as sock:
        until(lambda: site.got == flight + early[:20], "the first part has come")
        sock.sendall(early[20:])
        until(lambda: site.got == flight + early, "the second part has come")


# --- ways in and out ---


def test_socks_of_all_versions_is_checked(site: Site) -> None:
    port = site.port.to_bytes(2, "big")
    with Rig(protocol="mixed", tls_ports=(site.port,), tls_name="match") as rig:
        for name, refused in (("localhost", False), (OTHER, True)):
            for version in (4, 5):
                site.got = b""
                rig.records.clear()
                if version == 4:
                    sock = arrive(rig)
                    sock.sendall(b"\x04\x01" + port + b"\0\0\0\x01me\0localhost\0")
                    assert exactly(sock, 8)[:2] == b"\0\x5a"
                else:
                    sock, code, _bound = ask(rig, 1, b"\x03\x09localhost" + port)
                    assert code == 0
                flight = hello(name)
                with sock:
                    sock.sendall(flight)
                    if refused:
                        is_refused(sock, site, rig)
                    else:
                        is_let_through(sock, site, flight)


def test_clients_with_tls_to_the_proxy_are_checked(site: Site, pair: tuple[str, str]) -> None:
    with Rig(protocol="https", tls=pair, tls_ports=(site.port,), tls_name="match") as rig:
        for name, refused in (("localhost", False), (OTHER, True)):
            with connect_with_tls(rig, pair[0]) as sock:
                sock.sendall(f"CONNECT localhost:{site.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                assert read_head_alone(sock).startswith(b"HTTP/1.1 200 ")
                flight = hello(name)
                sock.sendall(flight)
                if refused:
                    assert read_all(sock) == UNRECOGNIZED_NAME_ALERT
                else:
                    until(lambda flight=flight: site.got == flight, "it has come")
        assert rig.record(reason="tls_name_denied")["tls_name"] == OTHER


def test_what_goes_through_an_upstream_is_checked_before_it(rig: Rig, site: Site) -> None:
    with Rig(protocol="socks5") as upstream:
        rig.configure(upstreams=upstream_list(of_rig(upstream)), tls_name="allowed", access=NAMES)
        with tunnel(rig, site.port) as sock:
            sock.sendall(hello(OTHER))
            assert is_refused(sock, site, rig)["parent"]
        rig.records.clear()
        flight = hello("localhost")
        with tunnel(rig, site.port) as sock:
            sock.sendall(flight)
            is_let_through(sock, site, flight)


def test_datagrams_whose_handshake_is_not_read_are_refused_where_names_are_checked() -> None:
    with responder() as checked, responder() as other, Rig(protocol="socks5", tls_ports=(checked,)) as rig:
        for check, passing in (("record", (checked, other)), ("match", (other,))):
            rig.configure(tls_name=check)
            control, _code, relay = ask(rig, 3, address(bytes(4), 0))
            with control, datagram_socket() as client:
                for port in (checked, other):
                    client.sendto(b"\0\0\0" + address(LOOPBACK, port) + b"hello", relay)
                    if port in passing:
                        assert client.recv(65535) == b"\0\0\0" + address(LOOPBACK, port) + b"HELLO"
        refused = rig.record(reason="tls_name_denied", target_url=f"127.0.0.1:{checked}")
        assert refused["detail"].startswith("not_tls: ")


# --- what changes meanwhile ---


def test_a_name_that_was_allowed_ends_with_its_permission(rig: Rig, site: Site) -> None:
    def allowing(*names: str, ended: int = 0) -> None:
        rule = RuleSpec("names", destinations=names, use="direct")
        others = RuleSpec("others", use="deny")
        policy = PolicySpec("pol1", "house", (rule, others), revision=ended + 1, ended=ended)
        rig.configure(FleetObjects(policies=(policy,)), policy="house", tls_name="allowed")

    allowing("localhost", OTHER)
    flight = hello(OTHER)
    with tunnel(rig, site.port, flight) as sock:
        until(lambda: site.got == flight, "it is let through")
        allowing("localhost", ended=1)
        assert read_all(sock) == b""
    assert record(rig, site)["reason"] == "policy_denied"


def test_bandwidth_limits_hold_for_the_handshake(site: Site, tmp_path: Path) -> None:
    from actors.bus.messages.specs import LimitsSpec

    limits = LimitsSpec(bandwidth_in=4_000, bandwidth_out=4_000)
    flight = hello("localhost")
    with (
        Rig(tls_ports=(site.port,), tls_name="match", limits=limits) as rig,
        tunnel(rig, site.port, flight) as sock,
    ):
        until(lambda: site.got == flight, "it is let through")
        sock.close()
        assert record(rig, site)["rule"] == ""


def test_record_account_and_counters_have_all_octets_of_both_sides_once(site: Site) -> None:
    with Rig(tls_ports=(site.port,), tls_name="match", auth_required=True, accounts=(account("ada"),)) as rig:
        sent = received = 0
        for name, alert in (("localhost", b""), (OTHER, UNRECOGNIZED_NAME_ALERT)):
            asked = f"CONNECT localhost:{site.port} HTTP/1.1\r\nHost: x\r\n{credentials('ada')}\r\n\r\n".encode()
            with connect(rig) as sock:
                sock.sendall(asked)
                head = read_head_alone(sock)
                sock.sendall(flight := hello(name))
                sock.shutdown(socket.SHUT_WR)
                assert read_all(sock) == alert
            octets = len(asked + flight), len(head + alert)
            record(rig, site, tls_name=name, bytes_in=octets[0], bytes_out=octets[1])
            sent, received = sent + octets[0], received + octets[1]
        usage = states(rig)["acc_ada"].usage
        assert (usage.bytes_in, usage.bytes_out) == (sent, received)
        until(lambda: rig.counters and rig.counters.values["bytes_out"] == received, "its counters have come")
        assert rig.counters is not None
        assert rig.counters.values["bytes_in"] == sent
