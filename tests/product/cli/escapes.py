"""What a job might try to reach more than its relay; run as a program within the isolation.

    python escapes.py RESULTS '{"relay": PORT, "outside": {…}, "only": null}'

It is of the standard library alone. `outside` has what listens beside the job: `tcp`, `tcp6`, `udp` (ports on
loopback), `abstract` (a name of a Unix socket), `pid` (a process of the caller's) and `inherited` (a descriptor that
the caller had open). `only` has the attempts to make; null: all, where there are no routes. RESULTS gets the name of
the error that stopped each attempt, or "reached".
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import socket
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOT_LOCAL, NOT_LOCAL6 = "192.0.2.1", "2001:db8::1"
PIDFD_OPEN, PIDFD_GETFD, IO_URING_SETUP = 434, 438, 425
CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def call(*arguments: Any) -> int:
    """A system call by its number. Raises `OSError`."""
    result = int(libc.syscall(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def connect(family: int, address: Any, kind: int = socket.SOCK_STREAM) -> None:
    with socket.socket(family, kind) as client:
        client.settimeout(5)
        client.connect(address)
        client.sendall(b"escaped")
        if kind == socket.SOCK_DGRAM:  # a refusal comes with the next call
            client.send(b"escaped")


def send_raw(protocol: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol) as raw:
        raw.sendto(b"\x08\x00\xf7\xff\x00\x00\x00\x00", (NOT_LOCAL, 0))


def send_frame() -> None:
    """At every interface but loopback, of which there is none."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        others = [name for _, name in socket.if_nameindex() if name != "lo"]
        if not others:
            raise OSError(errno.ENODEV, "no interface")
        raw.bind((others[0], 0))
        raw.send(b"\xff" * 60)


def rejoin(pid: int | str) -> None:
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def borrow(pid: int) -> None:
    """A descriptor of a process outside (pidfd_getfd(2))."""
    call(PIDFD_GETFD, call(PIDFD_OPEN, pid, 0), 0, 0)


def write_inherited(descriptor: int) -> None:
    os.write(descriptor, b"escaped")


def type_into_terminal() -> None:
    """The job's terminal is the caller's; any terminal shows whether it would be allowed (ioctl_tty(2))."""
    _, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSTI, b"x")


def move_interface(pid: int) -> None:
    """Root has capabilities in its own network namespace; a cable to the caller's needs some there."""
    status = os.system(f"ip link add c0 type veth peer name c1 netns {pid} 2>/dev/null")
    if status:
        raise OSError(errno.EPERM, "ip link")


def attempts(relay: int, outside: dict[str, Any]) -> dict[str, Callable[[], object]]:
    pid = outside["pid"]
    return {
        "relay": lambda: connect(socket.AF_INET, ("127.0.0.1", relay)),
        "tcp of the caller": lambda: connect(socket.AF_INET, ("127.0.0.1", outside["tcp"])),
        "tcp by ipv6": lambda: connect(socket.AF_INET6, ("::1", outside["tcp6"])),
        "udp of the caller": lambda: connect(socket.AF_INET, ("127.0.0.1", outside["udp"]), socket.SOCK_DGRAM),
        "tcp elsewhere": lambda: connect(socket.AF_INET, (NOT_LOCAL, 443)),
        "udp elsewhere (QUIC)": lambda: connect(socket.AF_INET, (NOT_LOCAL, 443), socket.SOCK_DGRAM),
        "ipv6 elsewhere": lambda: connect(socket.AF_INET6, (NOT_LOCAL6, 443)),
        "udp by ipv6": lambda: connect(socket.AF_INET6, (NOT_LOCAL6, 443), socket.SOCK_DGRAM),
        "dns": lambda: socket.getaddrinfo("example.com", 443),
        "ping": lambda: send_raw(socket.IPPROTO_ICMP),
        "raw ip": lambda: send_raw(socket.IPPROTO_RAW),
        "frames": send_frame,
        "an abstract unix socket": lambda: connect(socket.AF_UNIX, "\0" + outside["abstract"]),
        "vsock to the hypervisor": lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM),
        "namespace of the caller": lambda: rejoin(pid),
        "namespace of init": lambda: rejoin(1),
        "memory of the caller": lambda: os.open(f"/proc/{pid}/mem", os.O_RDWR),
        "environment of the caller": lambda: Path(f"/proc/{pid}/environ").read_bytes(),
        "descriptors of the caller": lambda: os.readlink(f"/proc/{pid}/fd/0"),
        "a descriptor by pidfd": lambda: borrow(pid),
        "an inherited descriptor": lambda: write_inherited(outside["inherited"]),
        "sockets past the filter (io_uring)": lambda: call(IO_URING_SETUP, 1, ctypes.create_string_buffer(120)),
        "input of the terminal": type_into_terminal,
        "a cable": lambda: move_interface(pid),
    }


def result(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except socket.gaierror:
        return "gaierror"
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    return "reached"


def main() -> None:
    given = json.loads(sys.argv[2])
    if given["only"] is None and len(Path("/proc/net/route").read_text().splitlines()) > 1:
        raise SystemExit("this program sends to other machines and changes the network: run it isolated")
    every = attempts(given["relay"], given["outside"])
    found = {name: result(every[name]) for name in given["only"] or every}
    Path(sys.argv[1]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
