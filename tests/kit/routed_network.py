"""Two network namespaces with a cable between them: a proxy's machine, to which networks are routed, and an origin's.

`python -m tests.kit.routed_network CASE` runs within the first one, where `run_in_namespaces` starts it; the origin is
`python -m tests.kit.routed_network origin` in the second. The origin says who has come, in the body of its responses.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MODULE = "tests.kit.routed_network"
UNSHARED = ("unshare", "--map-root-user", "--net")
HERE, HERE6 = "192.0.2.1", "2001:db8:1::1"
THERE, THERE6 = "192.0.2.2", "2001:db8:1::2"
ROUTED, ROUTED6 = "198.51.100.0/24", "2001:db8:7::/48"
NOT_LOCAL = "203.0.113.0/24"
"""Routed to the machine by the other, which does not regard it as its own."""

_CABLE = f"""
ip link set lo up
ip link add cable0 type veth peer name cable1
ip link set cable1 netns $0
ip addr add {HERE}/24 dev cable0
ip -6 addr add {HERE6}/64 dev cable0 nodad
ip link set cable0 up
ip route add local {ROUTED} dev lo
ip -6 route add local {ROUTED6} dev lo
"""
_OTHER_END = f"""
ip link set lo up
ip addr add {THERE}/24 dev cable1
ip -6 addr add {THERE6}/64 dev cable1 nodad
ip link set cable1 up
ip route add {ROUTED} via {HERE}
ip route add {NOT_LOCAL} via {HERE}
ip -6 route add {ROUTED6} via {HERE6}
"""


def why_not() -> str:
    """Why no such namespaces can be made here; empty: they can."""
    if not Path("/proc/self/ns/net").exists():
        return "there are no network namespaces"
    inner = "ip link add cable0 type veth peer name cable1 && unshare --net true"
    try:
        tried = subprocess.run([*UNSHARED, "sh", "-c", inner], capture_output=True, text=True, timeout=30)
    except FileNotFoundError as missing:
        return f"{missing.filename} is not installed"
    return f"no network namespace can be made here: {tried.stderr.strip()}" if tried.returncode else ""


def run_in_namespaces(case: str) -> dict[str, Any]:
    """What the function of this name (`module:function`), called with the origin, returns within the namespaces."""
    command = [*UNSHARED, sys.executable, "-m", MODULE, case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


class FarOrigin:
    """The origin, seen from the proxy's machine."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.port = 0

    def read(self) -> str:
        """The next line that it writes."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the origin has ended"
        return line.strip()

    def tell(self, text: str) -> None:
        """Write a line to it."""
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()


@contextmanager
def far_origin() -> Iterator[FarOrigin]:
    """The origin in a namespace of its own, with a cable to this one."""
    command = ["unshare", "--net", sys.executable, "-m", MODULE, "origin"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            origin = FarOrigin(process)
            pid = origin.read()
            subprocess.run(["sh", "-e", "-c", _CABLE, pid], check=True)
            origin.tell("connected")
            origin.port = int(origin.read())
            yield origin
        finally:
            process.kill()


def _serve() -> None:
    """As the origin: HTTP and datagrams at one port, answered with the address that they come from."""
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    subprocess.run(["sh", "-e", "-c", _OTHER_END], check=True)
    server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    datagrams.bind(server.getsockname()[:2])
    for serve in (lambda: _serve_requests(server), lambda: _serve_datagrams(datagrams)):
        threading.Thread(target=serve, daemon=True).start()
    print(server.getsockname()[1], flush=True)
    for line in sys.stdin:
        host, port = line.split()
        with socket.create_connection((host, int(port)), 15) as sock:
            sock.sendall(b"hello")
            sock.recv(1)


def _serve_requests(server: socket.socket) -> None:
    while True:
        sock, peer = server.accept()
        threading.Thread(target=_respond, args=(sock, _plain(peer)), daemon=True).start()


def _respond(sock: socket.socket, peer: str) -> None:
    with sock:
        head = b""
        while data := sock.recv(65536):
            head += data
            if head.endswith(b"\r\n\r\n"):
                head = b""
                sock.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(peer)}\r\n\r\n{peer}".encode())


def _serve_datagrams(sock: socket.socket) -> None:
    while True:
        _data, peer = sock.recvfrom(65536)
        sock.sendto(_plain(peer).encode(), peer)


def _plain(peer: Any) -> str:
    return str(peer[0]).removeprefix("::ffff:")


def main(case: str) -> None:
    """Run one case between the namespaces, or the origin."""
    if case == "origin":
        _serve()
        return
    module, _, name = case.partition(":")
    function: Callable[[FarOrigin], dict[str, Any]] = getattr(importlib.import_module(module), name)
    with far_origin() as origin:
        print(json.dumps(function(origin)))


if __name__ == "__main__":
    main(sys.argv[1])
