"""A process that the zygote forks before it is requested, and that imports its actor's modules meanwhile.

The API imports for most of the time that the product takes to start. The supervisor can request it only when it has
read the configuration and has bound the API's socket; a process that is forked ahead imports during that time, on
another core. It has what the zygote had loaded until then, which is what both need. It gets the packets that the
zygote gets (`actors.supervision.processes.zygote`), over a socket of its own: how to log, then the request for its
actor. Until that request it ends with the zygote.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import socket
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from actors.death_signal import end_with, end_with_none
from actors.supervision.processes.process_name import name_process
from actors.supervision.processes.zygote_packets import packets_of, receive

log = logging.getLogger(__name__)

Become = Callable[[dict[str, Any], list[int]], NoReturn]
"""Be the actor that was requested, with these descriptors."""


class ForkedAhead:
    """The zygote's side of it. Once `request` has returned a process, the actor is that process."""

    def __init__(self, entry: str, pid: int, pidfd: int, requests: socket.socket) -> None:
        self._entry = entry
        self._pid = pid
        self._pidfd = pidfd
        self._requests: socket.socket | None = requests

    def inherit(self, descriptors: list[int]) -> None:
        """Hand on what all actors inherit. It keeps copies."""
        self._send({}, descriptors)

    def request(self, request: dict[str, Any], descriptors: list[int]) -> tuple[int, int] | None:
        """Make it the requested actor: its id and a pidfd, which is the caller's from now on.

        None when it is none of this entry, has become one already, or has ended. It gets copies of the descriptors.
        """
        if request["entry"] != self._entry or not self._send(request, descriptors):
            return None
        self._leave()
        return self._pid, self._pidfd

    def close(self) -> None:
        """Close this end of its socket; when the last process has done so, it ends."""
        if self._requests is not None:
            self._leave()
            os.close(self._pidfd)

    def _send(self, packet: dict[str, Any], descriptors: list[int]) -> bool:
        if self._requests is None:
            return False
        try:
            for each in packets_of(packet, descriptors):
                socket.send_fds(self._requests, [each.data], each.descriptors)
        except OSError as error:  # mostly since it has ended; half a request would be of no use either
            log.info("the process that was forked ahead can't be used: %s", error)
            self.close()
            return False
        return True

    def _leave(self) -> None:
        if self._requests is not None:
            self._requests.close()
            self._requests = None


def fork_ahead(entry: str, control: socket.socket, become: Become) -> ForkedAhead:
    """Fork a process for the actor class `entry`, which closes `control`, the zygote's own. Raises `OSError`."""
    parent = os.getpid()
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        try:
            pid = os.fork()
        except OSError:
            mine.close()
            raise
        if pid == 0:
            mine.close()
            control.close()
            _run(entry, theirs, parent, become)
    try:
        return ForkedAhead(entry, pid, os.pidfd_open(pid), mine)
    except OSError:
        mine.close()  # by which it ends
        raise


def _run(entry: str, requests: socket.socket, parent: int, become: Become) -> NoReturn:
    try:
        end_with(parent)
        gc.freeze()  # not in the zygote, where `actors.memory_layout` looks for what it has loaded among all objects
        name_process("forked-ahead")
        _import(entry)
        inherited: list[int] = []  # open until this process ends
        while (received := receive(requests)) is not None and not received.truncated:
            if "entry" in received.request:
                requests.close()
                end_with_none()
                become(received.request, received.descriptors)
            inherited += received.descriptors
    except BaseException:  # noqa: BLE001 - nothing may escape into the zygote's own code; it ends this process
        traceback.print_exc()
    finally:
        os._exit(1)


def _import(entry: str) -> None:
    try:
        importlib.import_module(entry.partition(":")[0])
    except ImportError:
        return  # importing it again, as the actor, says what is wrong with it
