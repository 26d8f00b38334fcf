"""The process that becomes the API, from the first moment of a start.

Loading the API is most of a start, and what a start reads of the store is what the API reads. So this process is made
at once: a fork of the one that becomes the supervisor, when that has loaded what both need, whose memory they share. It
loads the rest while the supervisor does so, reads the store for both, and is an actor when it is requested. It ends
with the supervisor, also in the midst of its reading: until then by SIGIO for the lifeline, which ends a process that
does nothing about it. A later API is forked by the zygote.

Both share a SEQPACKET socket; what comes is as for the zygote (`zygote.py`), and calls.

=============================  ============================================================  ==========================
packet                         meaning                                                       descriptors with it
=============================  ============================================================  ==========================
`{logging: [level, format]}`   how to log                                                    what it keeps open
`{call: name, arguments}`      call this of the starter, a class of the API                  a pipe for what it returns
`{entry, boot, slot}`          be this actor                                                 lifeline, then the sockets
=============================  ============================================================  ==========================
"""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import pickle
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from typing import Any, NoReturn

import msgpack

import config.settings.loading  # noqa: F401 - for both, and it takes longest
from actors.process import loaded, set_up_logging
from actors.signals import blocked
from actors.supervision.processes.liveness import LivenessPage, open_page
from actors.supervision.processes.zygote import become, name_process, packets_of, receive
from actors.supervision.processes.zygote_process import for_supervisor
from config import OperatorError

ENTRY, STARTER = "api.process:ApiActor", "api.process:ApiStart"


class ApiProcess:
    """The supervisor's side of it."""

    entry = ENTRY
    """The actor class that it becomes."""

    def __init__(self, page: LivenessPage, starter: str = STARTER) -> None:
        """Start it. An instance of `starter` gets its calls, and makes the actor. Raises `OSError`."""
        signal.signal(
            signal.SIGCHLD, signal.SIG_DFL
        )  # ignored, as it may be inherited, there were no status to wait for
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        waiting, self._lifeline = os.pipe2(os.O_CLOEXEC)
        gc.freeze()  # what is here now stays shared: collections of neither process touch it
        try:
            with blocked():
                self.pid = os.fork()
                if self.pid == 0:
                    _run(starter, theirs, waiting, page.descriptor)
            self._pidfd = os.pidfd_open(self.pid)
        finally:
            theirs.close()
            os.close(waiting)

    def configure(self, log_level: str, log_format: str, inherited: tuple[int, ...]) -> None:
        """How it logs, and descriptors that it keeps. Raises `OSError`."""
        socket.send_fds(self._control, [msgpack.packb({"logging": [log_level, log_format]})], list(inherited))

    def call(self, name: str, *arguments: str | None) -> Any:
        """What this function of the starter returns. Raises `OperatorError` as that does, also when it has ended."""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        with open(reading, "rb") as pipe:
            try:
                with suppress(OSError):  # it has ended, which the pipe says as well
                    packet = msgpack.packb({"call": name, "arguments": arguments})
                    socket.send_fds(self._control, [packet], [writing])
            finally:
                os.close(writing)
            packed = pipe.read()
        try:
            refused, returned = pickle.loads(packed)  # noqa: S301 - written by our own fork
        except (EOFError, pickle.UnpicklingError):  # nothing has come, or not all of it
            raise OperatorError(f"The start has failed: {self._end_of_it()}") from None
        if refused:
            raise OperatorError(returned)
        return returned

    def request(self, request: dict[str, Any], descriptors: list[int]) -> tuple[int, int]:
        """Make it the actor; its id and a pidfd, which is the caller's from now on. Raises `OSError` when it has
        ended."""
        for each in packets_of(request, descriptors):
            socket.send_fds(self._control, [each.data], each.descriptors)
        pidfd, self._pidfd = self._pidfd, -1
        return self.pid, pidfd

    def end(self) -> None:
        """If nothing has requested it, kill it. Close what is here of it."""
        self._control.close()
        if self._pidfd >= 0:
            with suppress(ProcessLookupError, ChildProcessError):  # it has ended before, and its status was waited for
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            os.close(self._pidfd)
        os.close(self._lifeline)

    def _end_of_it(self) -> str:
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return "what is above says why" if status >= 0 else f"a process of it was ended by signal {-status}"


def _run(starter: str, control: socket.socket, lifeline: int, page: int) -> NoReturn:
    """In the fork: nothing of the supervisor's is left to run in it."""
    status = 1
    try:
        _leave_supervisor({control.fileno(), lifeline, page})
        if _lives(lifeline):
            status = _serve(loaded(starter)(), control, lifeline, page)
    except BaseException:  # noqa: BLE001 - nothing may escape into the supervisor's own code; it ends this process
        traceback.print_exc()
    finally:
        logging.shutdown()
        sys.stderr.flush()
        os._exit(status)


def _leave_supervisor(needed: set[int]) -> None:
    name_process("api")
    # without close_range(2) os.closerange closes each number up to the limit, which may be a billion
    for each in set(map(int, os.listdir("/proc/self/fd"))) - {0, 1, 2, *needed}:
        with suppress(OSError):  # it was that of the list itself
            os.close(each)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for name in [each for each in os.environ if for_supervisor(each)]:
        del os.environ[name]


def _lives(lifeline: int) -> bool:
    """Have SIGIO end this process with its supervisor, and say whether that still lives."""
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    return not select.select([lifeline], [], [], 0)[0]


def _serve(start: Any, control: socket.socket, lifeline: int, page: int) -> int:
    deadlines = open_page(page)
    os.close(page)
    while (received := receive(control)) is not None and not received.truncated:
        request, descriptors, _ = received
        if "logging" in request:
            set_up_logging(*request["logging"])
        elif "call" in request:
            _call(getattr(start, request["call"]), request["arguments"], descriptors[0])
        else:
            os.close(lifeline)
            control.close()
            gc.enable()  # off from the begin of the start (`supervisor`)
            return become(start.actor, request, descriptors, deadlines)
    return 1


def _call(function: Any, arguments: list[str | None], pipe: int) -> None:
    try:
        outcome = False, function(*arguments)
    except OperatorError as error:
        outcome = True, str(error)
    with open(pipe, "wb") as file:
        pickle.dump(outcome, file, pickle.HIGHEST_PROTOCOL)
