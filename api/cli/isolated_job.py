"""The inner half of `proxyfleet run --isolate`: it becomes the command, behind the relay.

    python -I -S isolated_job.py DESCRIPTOR PORTS -- COMMAND…

This is a program of its own, of the standard library alone, so that the job starts quickly. It makes a user namespace
and a network namespace (user_namespaces(7), network_namespaces(7)), listens on the loopback interface in there, and
passes the *listening sockets* to the outer half over a Unix socket (SCM_RIGHTS, unix(7)). A socket stays in the
namespace where it was made: the outer half accepts connections of the job and opens connections to the proxy, while the
job itself holds no descriptor and knows no path that leads outside.

Why there is no way back into the caller's network namespace: setns(2) wants CAP_SYS_ADMIN in the user namespace that
owns it, which is the caller's or an outer one. The job has capabilities in its own at most, and neither /proc/PID/ns
nor ptrace(2) crosses that border. A filter of system calls refuses what is of no network namespace: see `_filter`.

The conversation: `{"pid": …}` from here, `mapped` from there, `{"ports": …}` with the listening sockets from here,
`ready` from there; or else `{"step": …, "errno": …}` from here, and no job.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import platform
import signal
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

FAILED = 125
"""Exit status where nothing of the job has run."""
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2

FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET, socket.AF_ALG)
"""Families whose sockets stay in the network namespace, or are no network. AF_VSOCK reaches the hypervisor from all."""
TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX (ioctl_tty(2)): they type into the terminal, where the caller's shell would read it."""
IO_URING_SETUP = 425
X32 = 0x40000000
"""Numbers of system calls from here on are of the x32 ABI."""
MACHINES = {"x86_64", "i686", "aarch64", "armv7l", "armv8l", "riscv64"}
ARCHITECTURES = (  # AUDIT_ARCH_… (linux/audit.h), and the numbers of socket, ioctl and socketcall
    (0xC000003E, 41, 16, None),
    (0x40000003, 359, 54, 102),
    (0xC00000B7, 198, 29, None),
    (0x40000028, 281, 54, 102),
    (0xC00000F3, 198, 29, None),
)
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, ERROR = 0x7FFF0000, 0x00050000
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT = 0, 4, 16, 24
"""Offsets in struct seccomp_data (seccomp(2)); the low halves of arguments, on these machines all little-endian."""


def _refuse_if(comparison: int, value: int, error: int) -> list[bytes]:
    return [_instruction(comparison, value, 0, 1), _instruction(RETURN, ERROR | error)]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """`struct sock_filter`; jumps count the instructions that are left out."""
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _only_if(value: int, block: list[bytes]) -> list[bytes]:
    return [_instruction(EQUAL, value, 0, len(block)), *block]


def _filter() -> bytes:
    """A BPF program for seccomp(2).

    No sockets but of `FAMILIES`; no io_uring, which makes sockets past any filter; no typing into the terminal; and no
    system calls whose arguments can't be seen (socketcall, x32, other architectures): where there are none, programs
    take the usual ones.
    """
    allow = _instruction(RETURN, ALLOW)
    families = [line for each in FAMILIES for line in (_instruction(EQUAL, each, 0, 1), allow)]
    of_socket = [_instruction(LOAD, FIRST_ARGUMENT), *families, _instruction(RETURN, ERROR | errno.EAFNOSUPPORT)]
    requests = [line for each in TERMINAL_INPUT for line in _refuse_if(EQUAL, each, errno.EPERM)]
    of_ioctl = [_instruction(LOAD, SECOND_ARGUMENT), *requests, allow]
    program = [_instruction(LOAD, ARCHITECTURE)]
    for architecture, socket_number, ioctl_number, socketcall in ARCHITECTURES:
        block = [_instruction(LOAD, NUMBER), *_refuse_if(EQUAL, IO_URING_SETUP, errno.ENOSYS)]
        block += _refuse_if(AT_LEAST, X32, errno.ENOSYS)
        block += _refuse_if(EQUAL, socketcall, errno.ENOSYS) if socketcall is not None else []
        block += [*_only_if(socket_number, of_socket), *_only_if(ioctl_number, of_ioctl), allow]
        program += _only_if(architecture, block)
    return b"".join([*program, _instruction(RETURN, ERROR | errno.ENOSYS)])


class StepFailed(Exception):
    """A step of the isolation failed: its name, and the kernel's error number (0: the outer half has given up)."""

    def __init__(self, step: str, error: int) -> None:
        super().__init__(step)
        self.step, self.error = step, error


class Kernel:
    """Two system calls that Python 3.11 lacks. Raises `OSError`."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def unshare(self, namespaces: int) -> None:
        """unshare(2)."""
        self._check(self._libc.unshare(ctypes.c_int(namespaces)))

    def refuse(self, program: bytes) -> None:
        """Hold this process, its children and what they execute to a filter: prctl(2)."""
        code = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("HP", len(program) // 8, ctypes.addressof(code))
        unused = ctypes.c_ulong(0)
        filtered = ctypes.c_ulong(SECCOMP_MODE_FILTER)
        self._check(self._libc.prctl(ctypes.c_int(PR_SET_SECCOMP), filtered, ctypes.c_char_p(header), unused, unused))

    def _check(self, result: int) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


@contextmanager
def _step(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StepFailed(name, error.errno or 0) from error


def isolate(link: socket.socket, ports: Sequence[int]) -> None:
    """Enter the namespaces, and pass a listening socket for each of the ports. Raises `StepFailed`."""
    kernel = Kernel()
    with _step("namespace"):
        kernel.unshare(CLONE_NEWUSER | CLONE_NEWNET)
    _ask(link, {"pid": os.getpid()}, b"mapped")
    with _step("loopback"):
        _bring_loopback_up()
    with _step("port"):
        listeners = [_listener(port) for port in ports]
    with _step("filter"):
        if platform.machine() not in MACHINES:
            raise OSError(errno.ENOSYS, "no filter is known for this architecture")
        kernel.refuse(_filter())
    _ask(link, {"ports": list(ports)}, b"ready", listeners)
    for each in listeners:
        each.close()


def _ask(link: socket.socket, message: object, reply: bytes, passed: Sequence[socket.socket] = ()) -> None:
    with _step("relay"):
        socket.send_fds(link, [json.dumps(message).encode()], [each.fileno() for each in passed])
        received = link.recv(64)
    if received != reply:
        raise StepFailed("relay", 0)


def _bring_loopback_up() -> None:
    """netdevice(7). A new namespace has a loopback interface that is down, and no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack("16sH22x", b"lo", 0))
        flags = struct.unpack("16sH22x", request)[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | IFF_UP))


def _listener(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(1024)
    return listener


def main(arguments: Sequence[str]) -> int:
    """Become the command. Returns an exit status where that fails: 125, or 126 and 127 as a shell has them."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a job that has not begun without a word
    link = socket.socket(fileno=int(arguments[0]))
    link.set_inheritable(False)
    ports = [int(port) for port in arguments[1].split(",") if port]
    command = list(arguments[3:])
    try:
        isolate(link, ports)
    except StepFailed as failed:
        link.send(json.dumps({"step": failed.step, "errno": failed.error}).encode())
        return FAILED
    if not command:  # a check
        return 0
    for each in os.listdir("/proc/self/fd"):  # also what the caller had open: a socket would lead outside
        with suppress(OSError):  # that of the listing itself
            if int(each) > 2:
                os.close(int(each))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and the job would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the command is what the job is
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127 if error.errno == errno.ENOENT else 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
