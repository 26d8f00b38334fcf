"""Programs that know of no proxy, made to use one by dante's client library (socksify)."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from tests.kit.http_origins import scripted
from tests.product.e2e.foreign.entrances import Entrance, MakeEntrance
from tests.product.e2e.foreign.programs import dnsmasq, needs, run

pytestmark = [pytest.mark.product, needs("socksify")]

ASK = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.settimeout(15)
query = bytes.fromhex("12340100000100000000000004686f7374076578616d706c650000010001")  # A of host.example
for _ in range(20):
    sock.sendto(query, ("127.0.0.1", int(sys.argv[1])))
    answer, sender = sock.recvfrom(512)
    assert sender == ("127.0.0.1", int(sys.argv[1])), sender
print(".".join(str(octet) for octet in answer[-4:]))
"""

FTP = {
    "USER": "230 welcome",
    "PWD": '257 "/"',
    "TYPE": "200 so be it",
    "PORT": "200 noted",
    "SIZE": "213 9",
    "QUIT": "221 goodbye",
}
"""What a server says to most commands (RFC 959)."""


def serve_actively(control: socket.socket) -> None:
    """An FTP server that sends every file, `here I am`, over a connection that it makes itself (RFC 959, PORT)."""
    lines = control.makefile()
    control.sendall(b"220 ready\r\n")
    where = ("", 0)
    while line := lines.readline():
        verb, _, argument = line.strip().partition(" ")
        if verb == "PORT":
            *host, high, low = argument.split(",")
            where = (".".join(host), int(high) * 256 + int(low))
        if verb == "RETR":
            control.sendall(b"150 here it comes\r\n")
            with socket.create_connection(where, 15) as data:
                data.sendall(b"here I am")
            control.sendall(b"226 that is all\r\n")
        else:
            control.sendall(FTP.get(verb, "502 not known").encode() + b"\r\n")


def socksify(proxy: Entrance, folder: Path, *command: str) -> str:
    """What the program prints when all its connections go through the proxy."""
    dialect = {"socks4": "socks_v4", "socks5": "socks_v5"}[proxy.scheme]
    (folder / "socks.conf").write_text(f"""
logoutput: {folder}/log
route {{
    from: 0.0.0.0/0 to: 0.0.0.0/0 via: 127.0.0.1 port = {proxy.port}
    proxyprotocol: {dialect}
}}
""")
    reported = (f"SOCKS_CONF={folder}/socks.conf", "SOCKS_AUTOADD_LANROUTES=no")
    return run("env", *reported, "socksify", *command).stdout


@needs("dnsmasq")
def test_datagrams_pass_both_ways(entrance: MakeEntrance, tmp_path: Path) -> None:
    proxy = entrance("socks5")
    with dnsmasq("host.example", "192.0.2.9") as port:
        assert socksify(proxy, tmp_path, sys.executable, "-c", ASK, str(port)) == "192.0.2.9\n"
    (record,) = proxy.records(1)
    assert (record["method"], record["target_url"]) == ("UDP", f"127.0.0.1:{port}")


@needs("curl")
@pytest.mark.parametrize("scheme", ["socks4", "socks5"])
def test_a_server_of_active_ftp_calls_curl_back(entrance: MakeEntrance, tmp_path: Path, scheme: str) -> None:
    proxy = entrance(scheme)
    with scripted(serve_actively) as port:
        actively = ("curl", "-sS", "-m", "120", "--noproxy", "*", "--disable-eprt", "-P", "-")
        assert socksify(proxy, tmp_path, *actively, f"ftp://127.0.0.1:{port}/file") == "here I am"
    reported = {(record["method"], record["status_code"]) for record in proxy.records(2)}
    assert reported == {("BIND", 200), ("CONNECT", 200)}
