"""The zygote and its handle: processes are made, their ends are reported, and its own end loses none of them."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import psutil
import pytest
import zmq

from actors.bus.loop import LONGEST_WAIT, Loop
from actors.bus.mailbox import MailboxRouter
from actors.process import Boot
from actors.supervision.processes import zygote
from actors.supervision.processes.spawner import ActorProcess, Spawner, describe_status
from config.files.paths import open_run_dir
from tests.kit.folders import FOLDERS
from tests.kit.settings import boot_settings
from tests.kit.tables import table

KIND = "forwarding."
"""Of the actors here: only actors of a known kind may say hello."""
QUIET = "tests.kit.standin_actors:Quiet"


class Nursery:
    """A spawner with a bus around it, so that actors can live."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.loop = Loop()
        self.context: zmq.Context[bytes] = zmq.Context()
        run = open_run_dir(directory)
        self._helloed: list[str] = []
        self.router = MailboxRouter(
            self.loop,
            self.context,
            run.mailbox,
            lambda sender, _message, _answer: self._helloed.append(sender.removeprefix(KIND)),
        )
        self._lock = os.open(directory, os.O_RDONLY)
        self.spawner = Spawner(self.loop, "warning", "text", (self._lock,))
        self.spawned: list[ActorProcess] = []
        self.started: list[ActorProcess] = []
        self.ended: list[tuple[ActorProcess, str]] = []

    @property
    def hellos(self) -> list[str]:
        """The names of those that have said hello and whose pid is known: the report of the zygote may come later."""
        known = {each.boot.name for each in self.started}
        return [each for each in self._helloed if KIND + each in known]

    def process_started(self, process: ActorProcess) -> None:
        self.started.append(process)

    def process_ended(self, process: ActorProcess, how: str) -> None:
        self.ended.append((process, how))

    def spawn(
        self, name: str = "quiet", entry: str = QUIET, sockets: list[socket.socket] | None = None
    ) -> ActorProcess:
        boot = Boot(KIND + name, time.time_ns(), str(self.directory), str(self.directory), boot_settings())
        process = self.spawner.spawn(entry, boot, sockets or [], self)
        self.spawned.append(process)
        return process

    def until(self, condition: object, what: str, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        assert callable(condition)
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
            self.loop.turn(0.05)

    def clear(self) -> None:
        """End all actors, and forget them."""
        self.until(lambda: all(each.ended or each.pid is not None for each in self.spawned), "all are known")
        living = [each for each in self.spawned if not each.ended]
        for process in living:
            process.kill()
        self.until(lambda: all(each.ended for each in living), "all have ended")
        for forgotten in (self.spawned, self.started, self.ended, self._helloed):
            forgotten.clear()

    def close(self) -> None:
        self.clear()
        self.spawner.close()
        os.close(self._lock)
        self.router.close()
        self.context.destroy(linger=0)
        self.loop.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Nursery]:
    directory = Path(tempfile.mkdtemp(prefix="pf-", dir=FOLDERS))
    made = Nursery(directory)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def nursery(shared: Nursery) -> Iterator[Nursery]:
    """Without actors, at the beginning and at the end."""
    yield shared
    shared.clear()


def send(pid: int | None, number: signal.Signals) -> None:
    """Signal one process: 0 would be all of this test's group."""
    assert pid
    os.kill(pid, number)


def test_an_actor_is_made_named_and_says_hello(nursery: Nursery) -> None:
    process = nursery.spawn("quiet")
    assert process.pid is None
    nursery.until(lambda: "quiet" in nursery.hellos, "it says hello")
    assert process.pid is not None
    assert psutil.Process(process.pid).name() == "fwd-quiet"
    assert psutil.Process(process.pid).ppid() == nursery.spawner.zygote_pid


def test_a_child_has_its_own_sockets_and_nothing_of_its_siblings(nursery: Nursery) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        one, two = nursery.spawn("one", sockets=[first]), nursery.spawn("two", sockets=[second])
        nursery.until(lambda: {"one", "two"} <= set(nursery.hellos), "both say hello")
        ports = {
            process: {c.laddr.port for c in psutil.Process(process.pid).net_connections("tcp")}
            for process in (one, two)
        }
        assert ports == {one: {first.getsockname()[1]}, two: {second.getsockname()[1]}}


def test_a_child_has_all_of_its_sockets_however_many_and_the_locks_of_the_product(nursery: Nursery) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = nursery.spawn(sockets=[listener] * 300)
        nursery.until(lambda: nursery.hellos, "it says hello")
        opened = [os.readlink(each) for each in Path(f"/proc/{process.pid}/fd").iterdir()]
        assert sum(each.startswith("socket:") for each in opened) > 300
        assert str(nursery.directory) in opened


def test_an_idle_actor_is_to_wake_within_a_minute_and_a_stopped_one_is_known(nursery: Nursery) -> None:
    process = nursery.spawn()
    nursery.until(lambda: nursery.hellos, "it says hello")
    nursery.until(lambda: process.deadline > time.monotonic() + LONGEST_WAIT / 2, "it waits for something to do")
    assert process.deadline <= time.monotonic() + LONGEST_WAIT
    assert not process.stopped
    send(process.pid, signal.SIGSTOP)
    nursery.until(lambda: process.stopped, "it is stopped")


@pytest.mark.parametrize(("number", "how"), [(signal.SIGKILL, "was killed by SIGKILL"), (signal.SIGTERM, "status 0")])
def test_an_end_is_reported_with_its_cause(nursery: Nursery, number: signal.Signals, how: str) -> None:
    process = nursery.spawn()
    nursery.until(lambda: nursery.hellos, "it says hello")
    send(process.pid, number)
    nursery.until(lambda: nursery.ended, "its end is reported")
    assert nursery.ended[0][0] is process
    assert how in nursery.ended[0][1]


@table("entry", ["tests.kit.standin_actors:StubbornAtStart", "no.such.module:Actor"])
def test_an_actor_that_fails_at_its_start_is_reported_and_the_zygote_lives(nursery: Nursery, entry: str) -> None:
    nursery.spawn(entry=entry)
    nursery.until(lambda: nursery.ended, "its end is reported")
    assert "status 1" in nursery.ended[0][1]
    nursery.spawn("next")
    nursery.until(lambda: "next" in nursery.hellos, "the next one lives")


@pytest.mark.parametrize("spare", [0, 1], ids=["for the request", "for the pidfd"])
def test_a_process_that_the_zygote_has_no_descriptor_for_fails_alone(nursery: Nursery, spare: int) -> None:
    """The zygote lives, and so does no process that the spawner does not know."""
    nursery.spawn("first")
    nursery.until(lambda: "first" in nursery.hellos, "the first one lives")
    zygote_process = psutil.Process(nursery.spawner.zygote_pid)
    taken = {int(each) for each in os.listdir(f"/proc/{zygote_process.pid}/fd")}
    first_free = next(number for number in range(len(taken) + 1) if number not in taken)
    before = resource.prlimit(zygote_process.pid, resource.RLIMIT_NOFILE)
    try:
        resource.prlimit(zygote_process.pid, resource.RLIMIT_NOFILE, (first_free + spare, before[1]))
        second = nursery.spawn("second")
        nursery.until(lambda: nursery.ended, "its failure is reported")
        assert nursery.ended == [(second, "was not made: Too many open files")]
        assert len(zygote_process.children()) == 1
    finally:
        resource.prlimit(zygote_process.pid, resource.RLIMIT_NOFILE, before)
    nursery.spawn("third")
    nursery.until(lambda: "third" in nursery.hellos, "the third one lives")
    assert nursery.spawner.zygote_pid == zygote_process.pid


def test_a_fork_that_fails_is_reported_and_the_zygote_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_fork() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", no_fork)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reading, writing = os.pipe()
    with ours, theirs:
        socket.send_fds(ours, [msgpack.packb({"token": 7, "entry": QUIET, "boot": {}, "slot": 0})], [reading])
        assert zygote._fork_on_request(theirs, memoryview(bytearray(8)).cast("d"))
        assert msgpack.unpackb(ours.recv(1000)) == {"failed": "Resource temporarily unavailable", "token": 7}
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        os.write(writing, b"x")  # its copy of the lifeline is closed, too
    os.close(writing)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ETOOMANYREFS])
def test_a_request_that_does_not_go_out_at_once_is_sent_again(
    nursery: Nursery, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    real, refusals = socket.send_fds, [number] * 3

    def send(*arguments: Any) -> int:
        if refusals:
            raise OSError(refusals.pop(), "not now")
        return real(*arguments)

    monkeypatch.setattr(socket, "send_fds", send)
    nursery.spawn("one")
    nursery.spawn("two")
    nursery.until(lambda: {"one", "two"} <= set(nursery.hellos), "both live")
    assert refusals == []


def test_a_killed_zygote_is_replaced_and_deaths_of_its_children_are_still_reported(nursery: Nursery) -> None:
    older = nursery.spawn("older")
    nursery.until(lambda: "older" in nursery.hellos, "it says hello")
    first = nursery.spawner.zygote_pid
    send(first, signal.SIGKILL)
    nursery.until(lambda: nursery.spawner.zygote_pid not in (None, first), "there is another zygote")
    assert psutil.Process(older.pid).is_running()
    assert nursery.ended == []
    nursery.spawn("newer")
    nursery.until(lambda: "newer" in nursery.hellos, "the new zygote makes actors")
    send(older.pid, signal.SIGKILL)
    nursery.until(lambda: nursery.ended, "the end of the orphan is reported")
    assert nursery.ended[0][0] is older


def test_requests_that_died_with_the_zygote_are_reported_as_ended_or_were_made(nursery: Nursery) -> None:
    nursery.spawn("first")
    nursery.until(lambda: "first" in nursery.hellos, "the zygote works")
    wanted = [nursery.spawn(f"n{number}") for number in range(20)]
    nursery.loop.turn(0)
    send(nursery.spawner.zygote_pid, signal.SIGKILL)

    def all_known() -> bool:
        ended = {process for process, _how in nursery.ended}
        return all(process.pid is not None or process in ended for process in wanted)

    nursery.until(all_known, "every request has come to something")


def test_an_actor_whose_lifeline_is_let_go_ends_by_itself(nursery: Nursery) -> None:
    process = nursery.spawn()
    nursery.until(lambda: nursery.hellos, "it says hello")
    process.close_lifeline()
    nursery.until(lambda: nursery.ended, "it has ended")


def test_a_kill_before_it_exists_is_carried_out_when_it_does(nursery: Nursery) -> None:
    nursery.spawn().kill()
    nursery.until(lambda: nursery.ended, "it has ended")


@table(
    ("status", "text"),
    [(0, "ended with status 0"), (-9, "was killed by SIGKILL"), (-99, "was killed by signal 99"), (None, "ended")],
)
def test_an_exit_status_as_a_clause(status: int | None, text: str) -> None:
    assert describe_status(status) == text
