"""The outer half of `proxyfleet run --isolate` and `--socket`: the relay of a job that has no network but the proxy.

The inner half (`isolated_job.py`) becomes the job, in namespaces of its own, and passes its listening sockets here. The
relay accepts the job's connections at them and opens one to the proxy for each. For a container that has no network
(`--network none`), the relay listens at a Unix socket in the file system instead, which is mounted into the container.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.cli import isolated_job
from api.cli.job import run_job

CHUNK = 262_144
"""Bytes that are read at once, of which asyncio holds back twice as many at most."""
CONNECTIONS = 10_000
OTHER_DESCRIPTORS = 64
ACCEPT_PAUSE = 0.05
CONNECT_TIMEOUT = 30.0
"""Seconds for a connection to the proxy, with its TLS handshake."""
LAST_WORDS = 1.0
"""Seconds in which connections still deliver what was sent before the job ended; then nothing of it has a network."""


class IsolationUnavailable(Exception):
    """Its text is one sentence for the user: what is forbidden, and what would allow it. Nothing of the job has run."""


@dataclass(frozen=True, slots=True)
class RelayedProxy:
    """A proxy as this machine reaches it. The job sees it at 127.0.0.1 and the same port, without TLS."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None


def check_isolation() -> None:
    """Try whether a job could be isolated. Raises `IsolationUnavailable`."""
    with _relay([]) as (relay, link):
        status = subprocess.run(_inner(link, [], []), pass_fds=[link.fileno()], env={}, check=False).returncode
    relay.check()
    if status:
        raise IsolationUnavailable(
            f"The command can't be isolated: the program that would do it ended with status {status}."
        )


def run_isolated(command: Sequence[str], environment: Mapping[str, str], proxies: Sequence[RelayedProxy]) -> int:
    """Run a command that reaches nothing but these proxies; its exit status as a shell has it.

    Raises `IsolationUnavailable`.
    """
    with _relay(proxies) as (relay, link):
        ports = [each.port for each in proxies]
        status = run_job(_inner(link, ports, command), environment, [link.fileno()])
    relay.check()
    return status


def run_at_socket(command: Sequence[str], environment: Mapping[str, str], proxy: RelayedProxy, path: Path) -> int:
    """Run a command while a Unix socket leads to the proxy; the exit status as a shell has it.

    The socket is of mode 0600, and removed at the end. Raises `IsolationUnavailable` where it can't be
    made.
    """
    with _unix_listener(path) as listener:
        return run_at_listener(command, environment, proxy, listener)


def run_at_listener(
    command: Sequence[str], environment: Mapping[str, str], proxy: RelayedProxy, listener: socket.socket
) -> int:
    """Run a command while a listening socket leads to the proxy; the exit status as a shell has it."""
    with _relay([proxy], [listener]):
        return run_job(command, environment)


def _inner(link: socket.socket, ports: Sequence[int], command: Sequence[str]) -> list[str]:
    """The command line of the inner half, whose Python reads nothing of the job's environment (-I)."""
    program = [sys.executable, "-I", "-S", isolated_job.__file__]
    return [*program, str(link.fileno()), ",".join(map(str, ports)), "--", *command]


@contextmanager
def _relay(
    proxies: Sequence[RelayedProxy], listeners: Sequence[socket.socket] | None = None
) -> Iterator[tuple[_Relay, socket.socket]]:
    """A relay that runs, and the inner half's end of the link to it; when that is closed everywhere, the relay ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    relay = _Relay(ours, proxies, listeners)
    relay.start()
    try:
        yield relay, theirs
    finally:
        theirs.close()
        relay.join()


@contextmanager
def _unix_listener(path: Path) -> Iterator[socket.socket]:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_abandoned(path):
            path.unlink()
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise IsolationUnavailable(f"No socket can be made at {path}: {_why_not(path, error)}.") from error
    own = _identity(path)
    try:
        path.chmod(0o600)  # before it listens: until then every connection is refused
        listener.listen(1024)
        yield listener
    finally:
        listener.close()
        if _identity(path) == own:  # another may have taken the place of one that was removed
            path.unlink(missing_ok=True)


def _why_not(path: Path, error: OSError) -> str:
    if error.errno != errno.EADDRINUSE:
        return error.strerror or str(error)
    return "another program listens there" if path.is_socket() else "there is a file already"


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is; None: there is none."""
    with suppress(OSError):
        status = path.lstat()
        return status.st_dev, status.st_ino
    return None


def _is_abandoned(path: Path) -> bool:
    """Whether it is the socket of a relay that was killed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        return path.is_socket() and client.connect_ex(str(path)) == errno.ECONNREFUSED


class _Relay(threading.Thread):
    """Passes connections of the job on to the proxies, in a thread beside the one that waits for the job.

    `ours` is its end of the link to the inner half; the caller holds the other, and ends the relay by closing it.
    """

    def __init__(
        self, ours: socket.socket, proxies: Sequence[RelayedProxy], listeners: Sequence[socket.socket] | None
    ) -> None:
        super().__init__(name="relay", daemon=True)
        self._link = ours
        self._proxies = proxies
        self._listeners = listeners
        self._failure: str | None = None
        self._unreachable = False

    def check(self) -> None:
        """Raises `IsolationUnavailable` if the relay that has ended never got to the job."""
        if self._failure is not None:
            raise IsolationUnavailable(self._failure)

    def run(self) -> None:
        signal.pthread_sigmask(
            signal.SIG_BLOCK, signal.valid_signals()
        )  # they are for the thread that waits for the job
        with self._link:
            listeners = self._listeners if self._listeners is not None else self._received()
            if listeners:
                asyncio.run(self._serve(listeners))

    def _received(self) -> list[socket.socket]:
        """The listening sockets of the inner half; none if it failed or has nothing to execute."""
        first = self._message()
        if "pid" not in first:
            return []
        try:
            map_users(first["pid"])
        except OSError as error:
            self._failure = reason("mapping", error.errno or 0)
            return []
        self._send(b"mapped")
        passed: list[int] = []
        second = self._message(passed)
        listeners = [socket.socket(fileno=each) for each in passed]
        if "ports" in second:
            self._send(b"ready")
        return listeners

    def _send(self, data: bytes) -> None:
        try:
            self._link.send(data)
        except OSError as error:  # the inner half was killed
            self._failure = reason("link", error.errno or 0)

    def _message(self, passed: list[int] | None = None) -> dict[str, Any]:
        """The next message, and the descriptors that came with it; none at its end, as when it was killed."""
        data, descriptors, _, _ = socket.recv_fds(self._link, 4096, 16)
        if passed is not None:
            passed += descriptors
        message: dict[str, Any] = json.loads(data) if data else {}
        if "step" in message:
            self._failure = reason(message["step"], message["errno"])
        return message

    async def _serve(self, listeners: Sequence[socket.socket]) -> None:
        room = asyncio.Semaphore(_most_connections())
        connections: set[asyncio.Task[None]] = set()
        pairs = zip(self._proxies, listeners, strict=True)
        accepting = [asyncio.create_task(self._accept(proxy, each, room, connections)) for proxy, each in pairs]
        self._link.setblocking(False)
        await asyncio.get_running_loop().sock_recv(self._link, 1)
        for task in accepting:
            task.cancel()
        for each in listeners:
            each.close()
        if connections:
            await asyncio.wait(connections, timeout=LAST_WORDS)

    async def _accept(
        self,
        proxy: RelayedProxy,
        listener: socket.socket,
        room: asyncio.Semaphore,
        connections: set[asyncio.Task[None]],
    ) -> None:
        """Accept as many connections as there is room for; others wait in the kernel."""
        listener.setblocking(False)
        while True:
            await room.acquire()
            try:
                client, _ = await asyncio.get_running_loop().sock_accept(listener)
            except OSError:  # the client is gone, or the machine is out of descriptors (accept(2))
                room.release()
                await asyncio.sleep(ACCEPT_PAUSE)
                continue
            task = asyncio.create_task(self._carry(proxy, client))
            connections.add(task)
            task.add_done_callback(connections.discard)
            task.add_done_callback(lambda _: room.release())

    async def _carry(self, proxy: RelayedProxy, client: socket.socket) -> None:
        """One connection of the job. An error at one side resets the other: what was cut off has no clean end."""
        reader, writer = await asyncio.open_connection(sock=client, limit=CHUNK)
        writers = [writer]
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                from_proxy, to_proxy = await asyncio.open_connection(
                    proxy.host,
                    proxy.port,
                    limit=CHUNK,
                    ssl=proxy.tls,
                    ssl_shutdown_timeout=LAST_WORDS if proxy.tls else None,  # for a proxy without close_notify
                )
            writers.append(to_proxy)
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, to_proxy))
                both.create_task(_pump(from_proxy, writer))
        except* OSError as errors:
            if len(writers) == 1:
                self._report(proxy, errors.exceptions[0])
            for each in writers:
                _reset(each)
        finally:
            for each in writers:
                each.close()
                with suppress(OSError):
                    await each.wait_closed()

    def _report(self, proxy: RelayedProxy, error: BaseException) -> None:
        if not self._unreachable:
            self._unreachable = True
            with suppress(OSError):  # standard error may be full
                sys.stderr.write(
                    f"proxyfleet: the proxy at {proxy.host}:{proxy.port} can't be reached: {_words(error)}\n"
                )


def _words(error: BaseException) -> str:
    """The cause. asyncio writes the address into it, ssl the line of its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}): give --proxy-ca FILE"
    if isinstance(error, ssl.SSLError):
        return f"the TLS handshake failed ({(error.reason or 'no reason').lower().replace('_', ' ')})"
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    if isinstance(error, TimeoutError) and error.errno is None:
        return f"no connection in {CONNECT_TIMEOUT:g} s"
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)


def _most_connections() -> int:
    """Connections at a time, of two descriptors each: those that are allowed, but for some for all else."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    unlimited = allowed == resource.RLIM_INFINITY
    return CONNECTIONS if unlimited else max(1, min(CONNECTIONS, (allowed - OTHER_DESCRIPTORS) // 2))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    else:  # TLS has no end of one direction alone
        writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # it may be closed already
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def map_users(process: int, proc: Path = Path("/proc")) -> None:
    """Have users and groups be the same in the user namespace of a process as here (user_namespaces(7)).

    Root keeps all that it has, so that it may still change owners; others keep their own, which needs no privilege.
    Raises `OSError`.
    """
    own = proc / str(process)
    if os.geteuid() == 0:
        with suppress(PermissionError):  # without CAP_SETUID it has its own alone, as all others
            for kind in ("uid_map", "gid_map"):
                ranges = (line.split() for line in (proc / "self" / kind).read_text().splitlines())
                (own / kind).write_text("".join(f"{first} {first} {count}\n" for first, _, count in ranges))
            return
    (own / "setgroups").write_text("deny")
    (own / "uid_map").write_text(f"{os.geteuid()} {os.geteuid()} 1\n")
    (own / "gid_map").write_text(f"{os.getegid()} {os.getegid()} 1\n")


def reason(step: str, error: int, proc: Path = Path("/proc"), root: bool | None = None) -> str:
    """Why a step of the isolation failed, and what would allow it, as one sentence."""
    is_root = os.geteuid() == 0 if root is None else root
    return f"The command can't be isolated: {_cause(step, error, proc, is_root)}."


def _cause(step: str, error: int, proc: Path, root: bool) -> str:
    def is_set(name: str, value: str) -> bool:
        with suppress(OSError):
            return (proc / "sys" / name).read_text().strip() == value
        return False

    for name in ("user/max_user_namespaces", "user/max_net_namespaces"):
        if is_set(name, "0"):
            return f"{_sysctl(name)} = 0 forbids namespaces; set it to 10000, say, by sysctl"
    if error == errno.ENOSPC:
        return "user.max_user_namespaces or user.max_net_namespaces is reached; raise it by sysctl"
    if error in (errno.ENOSYS, errno.EINVAL):
        return (
            f"this kernel lacks user or network namespaces, or filters of system calls ({step}: {os.strerror(error)})"
        )
    if not root and is_set("kernel/unprivileged_userns_clone", "0"):
        return "kernel.unprivileged_userns_clone = 0 forbids user namespaces to all but root; set it to 1 by sysctl"
    if not root and is_set("kernel/apparmor_restrict_unprivileged_userns", "1"):
        return (
            f"AppArmor allows user namespaces only to programs with a profile; give {sys.executable} one with the "
            "rule `userns,`, or set kernel.apparmor_restrict_unprivileged_userns = 0 by sysctl"
        )
    if _is_filtered(proc):
        return (
            "a filter of system calls, as containers have, forbids namespaces; use --socket and a container with "
            "--network none, or allow them with --security-opt seccomp=unconfined"
        )
    return f"the kernel refuses it ({step}: {os.strerror(error) if error else 'no reply'})"


def _sysctl(name: str) -> str:
    return name.replace("/", ".")


def _is_filtered(proc: Path) -> bool:
    with suppress(OSError):
        return "\nSeccomp:\t2\n" in (proc / "self/status").read_text()
    return False
