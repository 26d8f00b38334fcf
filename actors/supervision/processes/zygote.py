"""The zygote: a process that has imported everything once and forks itself into actors.

A fork of it costs milliseconds and shares its memory; a new interpreter costs ten times the time and 20 MB. It is our
own because `multiprocessing`'s fork server imports the parent's main module in every child, starts a resource
tracker, and counts all children as dead when it dies itself. This one has no threads, no ZeroMQ context and no state;
when it dies its children live on, and the supervisor starts another.

Supervisor and zygote share a SEQPACKET socket; a packet is one msgpack map. A request with more descriptors than one
packet can carry has further ones behind it: a packet carries at most `DESCRIPTORS_MAX`; the kernel's own limit is 253
(unix(7), SCM_RIGHTS). The first packet says in `more` how many follow it, and these are maps with nothing but that.

=========  ==================================================  ======================================
direction  packet                                              descriptors with it
=========  ==================================================  ======================================
to it      `{logging: [level, format]}`: how to log            what all actors inherit
to it      `{token, entry, boot, slot}`: make this actor       the lifeline, then the actor's sockets
from it    `{started: pid, token}`                             a pidfd of the new process
from it    `{failed: why, token}`: there is no such process    none
from it    `{ended: pid, status}`: exit code or -signal        none
=========  ==================================================  ======================================

The socket's end is the zygote's end. `slot` is the actor's slot on the liveness page (`liveness.py`), which the zygote
has mapped and every fork of it shares.
"""

from __future__ import annotations

import errno
import gc
import importlib
import logging
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

import msgpack
from setproctitle import setproctitle, setthreadtitle

from actors import signals
from actors.process import Boot, MakeActor, main, set_up_logging
from actors.signals import OF_THE_GROUP, block, ignore, unblock
from actors.supervision.processes.liveness import deadline_writer, open_page

log = logging.getLogger(__name__)


def name_process(name: str) -> None:
    """What ps shows, and in short what top, ss and the kernel show (proc(5), comm)."""
    setproctitle(f"proxyfleet: {name}")
    kind, _, rest = name.partition(".")
    setthreadtitle(f"fwd-{rest[-8:]}" if rest else kind)


PRELOAD = (
    "zmq",
    "msgpack",
    "actors.process",
    "actors.bus.records",
    "actors.forwarding.explain",
    "config.passwords",
    "actors.forwarding.actor",
    "actors.forwarding.upstreams.pool_upstream_set",
    "actors.forwarding.warming:prepare",
)
"""What forwarding actors import; the others import their own extras after the fork. Preloading pydantic, which most of
the others need, would save them 4 MB and 0.1 s of processor time each, and cost 0.9 MB in every forwarding actor.
SQLite, which the table of accounts imports, would take 1.4 MB in each forwarding actor that reads accounts, bcrypt (of
`config.passwords`) 0.3 MB in each one that checks passwords. Upstreams (with `ssl`) cost 0.2 MB in each forwarding
actor, and save 3.6 MB in each that has some. The function behind a colon is called: it saves 2.5 MB in each forwarding
actor."""


def serve(control: socket.socket, liveness: memoryview[float]) -> None:
    """Fork an actor for every request until the control socket ends."""
    name_process("zygote")
    for each in PRELOAD:
        _preload(each)
    gc.collect()
    gc.freeze()  # shared pages stay shared: the collector of a child doesn't touch what was here before
    wake = _wake_on_child()
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        for fd, _mask in poll.poll():
            if fd == wake:
                os.read(wake, 4096)
                _report_ended(control)
            elif not _fork_on_request(control, liveness):
                return


def _preload(entry: str) -> None:
    module, _, function = entry.partition(":")
    try:
        imported = importlib.import_module(module)
        if function:
            getattr(imported, function)()
    except (ImportError, OSError) as error:
        # Only a start that costs more: the actor that needs the module reports itself what is wrong with it.
        # A private part of a library is not in every release of it.
        log.log(logging.DEBUG if "._" in module else logging.WARNING, "not preloaded: %s", error)


def _wake_on_child() -> int:
    """The read end of a pipe that gets a byte for every SIGCHLD."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    ignore(*OF_THE_GROUP)
    unblock()  # they have waited since the supervisor made this process
    return reading


def _report_ended(control: socket.socket) -> None:
    for pid, status in signals.ended():
        _send(control, {"ended": pid, "status": status})


def _fork_on_request(control: socket.socket, liveness: memoryview[float]) -> bool:
    try:
        received = receive(control)
    except ConnectionResetError:
        return False  # the supervisor was killed with packets under way
    if received is None:
        return False
    request, descriptors, truncated = received
    if "logging" in request:
        set_up_logging(*request["logging"])
        return True  # the descriptors stay open
    try:
        if truncated:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        pid, pidfd = _fork(control, request, descriptors, liveness)
    except OSError as error:
        _send(control, {"failed": error.strerror, "token": request["token"]})
    else:
        _send(control, {"started": pid, "token": request["token"]}, pidfd)
        os.close(pidfd)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return True


def _fork(
    control: socket.socket, request: dict[str, Any], descriptors: list[int], liveness: memoryview[float]
) -> tuple[int, int]:
    """The new process's id and a pidfd of it. Raises `OSError`, and then there is no process."""
    block()  # until the child has its handlers
    try:
        pid = os.fork()
        if pid == 0:
            control.close()
            _become(request, descriptors, liveness)
    finally:
        unblock()
    try:
        return pid, os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _send(control: socket.socket, packet: dict[str, Any], *descriptors: int) -> None:
    try:
        socket.send_fds(control, [msgpack.packb(packet)], list(descriptors))
    except (BrokenPipeError, ConnectionResetError):
        os._exit(0)  # the supervisor is gone


def _become(request: dict[str, Any], descriptors: list[int], liveness: memoryview[float]) -> NoReturn:
    """The first thing in a new process: leave the zygote behind and be the actor."""
    status = 1
    try:
        _leave_zygote()
        status = become(request["entry"], request, descriptors, liveness)
    except BaseException:  # noqa: BLE001 - nothing may escape into the zygote's own code; it ends this process
        traceback.print_exc()
    finally:
        logging.shutdown()
        sys.stderr.flush()
        os._exit(status)


def become(entry: str | MakeActor, request: dict[str, Any], descriptors: list[int], liveness: memoryview[float]) -> int:
    """Be the requested actor until it ends; the exit status of this process."""
    boot = Boot(**request["boot"])
    name_process(boot.name)
    lifeline, *others = descriptors
    sockets = [socket.socket(fileno=fd) for fd in others]
    return main(entry, boot, sockets, lifeline, deadline_writer(liveness, request["slot"]))


def _leave_zygote() -> None:
    os.close(signal.set_wakeup_fd(-1))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    gc.enable()


def run(descriptor: int, page: int) -> None:
    """The zygote's main: `descriptor` is its end of the control socket, `page` that of the liveness page."""
    gc.disable()
    liveness = open_page(page)
    os.close(page)
    with socket.socket(fileno=descriptor) as control:
        serve(control, liveness)


PACKET_MAX = 128 * 1024
DESCRIPTORS_MAX = 240


class Packet(NamedTuple):
    """One packet with the descriptors that it carries."""

    data: bytes
    descriptors: Sequence[int]

    def close(self) -> None:
        """Close these descriptors: they are on their way, or never will be."""
        for descriptor in self.descriptors:
            if descriptor >= 0:
                os.close(descriptor)


class Received(NamedTuple):
    """A request with its descriptors. `truncated`: not all of these could be received."""

    request: dict[str, Any]
    descriptors: list[int]
    truncated: bool


def packets_of(request: dict[str, Any], descriptors: Sequence[int]) -> list[Packet]:
    """The packets of a request."""
    parts = [descriptors[at : at + DESCRIPTORS_MAX] for at in range(0, len(descriptors), DESCRIPTORS_MAX)]
    if len(parts) <= 1:
        return [Packet(msgpack.packb(request), descriptors)]
    first = Packet(msgpack.packb({**request, "more": len(parts) - 1}), parts[0])
    return [first, *(Packet(msgpack.packb({"more": len(parts) - at}), part) for at, part in enumerate(parts[1:], 2))]


def copies_of(sockets: Iterable[socket.socket]) -> list[int]:
    """Copies of their descriptors: of all, or `OSError` and none."""
    made: list[int] = []
    try:
        for each in sockets:
            made.append(os.dup(each.fileno()))  # noqa: PERF401 - those that are made have to be closed when one fails
    except OSError:
        for descriptor in made:
            os.close(descriptor)
        raise
    return made


def receive(control: socket.socket) -> Received | None:
    """The next request; blocks until all of it is there. None when the other end is gone."""
    packet, descriptors, flags, _address = socket.recv_fds(control, PACKET_MAX, DESCRIPTORS_MAX)
    if not packet:
        return None
    request: dict[str, Any] = msgpack.unpackb(packet)
    for _ in range(request.pop("more", 0)):
        packet, others, further, _address = socket.recv_fds(control, PACKET_MAX, DESCRIPTORS_MAX)
        if not packet:
            return None
        descriptors += others
        flags |= further
    return Received(request, descriptors, bool(flags & socket.MSG_CTRUNC))
