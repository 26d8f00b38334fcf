"""A program for a network namespace of its own: a proxy whose way to IPv6 leads nowhere.

Writes, for each request to names with addresses of both families, the seconds that it took and the IPv6 connections
that were tried, as JSON.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

from actors.bus.messages.specs import DnsSpec, EgressSpec
from tests.kit.forwarding_rig import Rig
from tests.kit.name_servers import ScriptedNameServer, zone
from tests.kit.resolver_process import LOOPBACK, ResolverProcess
from tests.kit.scripted_origins import Origin, counted, responds

NOWHERE = "2a00:1::2"
EVERYWHERE = EgressSpec("public_only", ("0.0.0.0/0", "::/0"), ())
COMMANDS = """
link set lo up
link add here type veth peer name there
link set here up
link set there up
-6 addr add 2a00:1::1/64 dev here nodad
-6 neigh add 2a00:1::2 lladdr 02:00:00:00:00:02 dev here
"""
IPV6, TCP, SYN = 0x86DD, 6, 0x02


class Wire:
    """The end of the link where nothing responds."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(IPV6))
        self._socket.bind(("there", IPV6))
        self._socket.setblocking(False)

    def tried(self) -> int:
        """Connections that were tried since the last call; repeated packets of one count once."""
        ports = set()
        try:
            while True:
                frame = self._socket.recv(2048)
                if frame[20] == TCP and frame[67] & SYN:
                    ports.add(frame[54:56])
        except BlockingIOError:
            return len(ports)


def request(rig: Rig, name: str, port: int) -> tuple[float, bytes]:
    """Seconds, and the beginning of the response."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", rig.port), 30) as client:
        client.sendall(f"GET http://{name}:{port}/ HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
        response = client.recv(4096)
        return time.monotonic() - began, response


def main() -> None:
    """Make the network, and the requests."""
    if subprocess.run(["ip", "route", "show", "default"], capture_output=True, check=True).stdout:
        raise SystemExit("this program changes the network: run it in a namespace of its own (unshare)")
    for command in COMMANDS.strip().splitlines():
        subprocess.run(["ip", *command.split()], check=True)
    wire, found = Wire(), []
    with (
        Origin(responds(counted(b"yes"))) as origin,
        ScriptedNameServer(zone({"*": (NOWHERE, "127.0.0.1")})) as server,
        Rig(EVERYWHERE, proxy={"max_idle_connections": 0}, dns=DnsSpec((server.address,))) as rig,
        ResolverProcess(rig.folder, LOOPBACK),
    ):
        for name in ("warm.example.com", "one.example.com", "one.example.com", "two.example.com"):
            seconds, response = request(rig, name, origin.port)
            found.append((name, seconds, response[:12].decode(), wire.tried()))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
