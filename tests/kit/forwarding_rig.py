"""A forwarding actor in a process of its own, under a stand-in for its supervisor that runs in a thread of the test."""

from __future__ import annotations

import os
import select
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import zmq

from actors.bus.codec import pack
from actors.bus.events import Forwarder, Subscription
from actors.bus.loop import Loop
from actors.bus.mailbox import MailboxRouter
from actors.bus.messages.common import Hello, ReportProblems, Stop, forwarding_name
from actors.bus.messages.forwarding import Configure
from actors.bus.messages.metrics import Counters
from actors.bus.messages.specs import FIRST_POLICY, EgressSpec, ProxySpec
from actors.bus.records import RecordBatch, RecordReceiver
from actors.forwarding.fleet_objects import FleetObjects
from actors.process import Boot
from actors.supervision.processes.live_state_files import LiveStateFiles
from config.files.paths import open_run_dir
from config.text.access_fields import ACCESS_FIELDS
from tests.kit.folders import FOLDERS
from tests.kit.forked_actor import Forked, fork_actor
from tests.kit.ports import free_ports
from tests.kit.settings import boot_settings

LOOPBACK_ALLOWED = EgressSpec("public_only", ("127.0.0.0/8", "::1/128"), ())
PROXY_ID = "px1"


def until(condition: Callable[[], Any], what: str, deadline: float = 120.0) -> Any:
    """What `condition` gives once it gives something; fails the test after `deadline` seconds."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        select.select([], [], [], 0.01)
    raise AssertionError(f"not in {deadline} s: {what}")


def spec(port: int, **changes: Any) -> ProxySpec:
    """A proxy as an operator would create it without saying much."""
    plain = ProxySpec(PROXY_ID, "p", "127.0.0.1", port, "http", True, 1, 30.0, True, 1000, None, None, None)
    return replace(plain, **changes)


def packed(objects: FleetObjects) -> dict[str, bytes]:
    """The objects as the supervisor sends them."""
    of_kinds = (("list", objects.lists), ("pool", objects.pools), ("policy", objects.policies))
    first = {FIRST_POLICY: objects.first_policy.encode()} if objects.first_policy else {}
    return {f"{kind}:{each.name}": pack(each) for kind, found in of_kinds for each in found} | first


class Rig:
    """`port` is where the proxy listens; `records`, `counters` and `reports` of problems are what it has sent."""

    instance = 1

    def __init__(
        self,
        egress: EgressSpec = LOOPBACK_ALLOWED,
        params: dict[str, Any] | None = None,
        proxy: dict[str, Any] | None = None,
        ports: int = 1,
        live_state: LiveStateFiles | None = None,
        workers: int = 1,
        **changes: Any,
    ) -> None:
        """`params` and `proxy`, that group of the settings, are for its start; `changes` are of the proxy.

        It listens at so many `ports`, from `port` on.
        `live_state` is what it counts in together with others, of which `workers` are of its proxy; by default its own.
        """
        self._params, self._proxy = dict(params or {}), proxy or {}
        self._workers = workers
        self.folder = tempfile.mkdtemp(prefix="pf-", dir=FOLDERS)
        self.run_dir = open_run_dir(Path(self.folder))
        self.records: list[dict[str, Any]] = []
        self.counters: Counters | None = None
        self.reports: list[ReportProblems] = []
        self._helloed = threading.Event()
        self._commands: list[Callable[[], None]] = []
        self.listeners = _listeners(ports)
        self.port: int = self.listeners[0].getsockname()[1]
        self.egress = egress
        self.objects = FleetObjects()
        self.spec = spec(self.port, **{"last_port": self.port + ports - 1 if ports > 1 else 0, **changes})
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started = threading.Event()
        self._thread.start()
        self._started.wait()
        self.live_state = live_state or LiveStateFiles(self.run_dir.state)
        if "number" not in self._params:
            self._params["number"] = self.live_state.begin(PROXY_ID, self.instance)
        self.process = self._spawn()
        until(self._helloed.is_set, "the actor says hello")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        self.do(self._loop.stop)
        self._thread.join(120)
        for listener in self.listeners:
            listener.close()
        for descriptor in (self._lifeline, self._wake_read, self._wake_write):
            os.close(descriptor)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def problems(self) -> dict[tuple[str, str], str]:
        """What is wrong with the proxy by its last report: the sentence by reason and subject."""
        problems = self.reports[-1].problems if self.reports else ()
        return {(each.reason, each.subject): each.detail for each in problems}

    @property
    def over(self) -> list[tuple[str, str, str]]:
        """What it has reported to be over: reason, subject and sentence."""
        return [(each.reason, each.subject, each.detail) for report in self.reports for each in report.over]

    def do(self, call: Callable[[], None]) -> None:
        """Run something in the loop's thread."""
        self._commands.append(call)
        os.write(self._wake_write, b"x")

    def configure(self, objects: FleetObjects | None = None, **changes: Any) -> None:
        """Give the actor a changed configuration, and wait until it has it."""
        self.objects = self.objects if objects is None else objects
        self.spec = replace(self.spec, **changes)
        done = threading.Event()
        message = Configure(self.spec, self.egress, packed(self.objects), workers=self._workers)
        self.do(lambda: self._router.ask(forwarding_name(PROXY_ID), message, lambda _reply: done.set()))
        until(done.is_set, "the change is acknowledged")

    def ask(self, message: Any) -> Any:
        """Send the actor a message, and return its reply."""
        replies: list[Any] = []
        self.do(lambda: self._router.ask(forwarding_name(PROXY_ID), message, replies.append))
        return until(lambda: replies, f"a reply to {message}")[0]

    def stop(self, drain: float) -> None:
        """Order the actor to end; it has begun to when this returns."""
        self.ask(Stop(drain))

    def record(self, **wanted: Any) -> dict[str, Any]:
        """The first access record with these values, when it has come."""
        return until(
            lambda: next((r for r in list(self.records) if all(r[k] == v for k, v in wanted.items())), None),
            f"a record with {wanted} among {self.records}",
        )

    def _spawn(self) -> Forked:
        boot = Boot(
            forwarding_name(PROXY_ID),
            1,
            self.folder,
            self.folder,
            settings=boot_settings(proxy=self._proxy),
            params=self._params,
        )
        lifeline, self._lifeline = os.pipe()
        try:
            return fork_actor(boot, self.listeners, lifeline)
        finally:
            os.close(lifeline)

    def _run(self) -> None:
        self._loop = Loop()
        context: zmq.Context[Any] = zmq.Context()
        self._router = MailboxRouter(self._loop, context, self.run_dir.mailbox, self._received)
        forwarder = Forwarder(self._loop, context, self.run_dir.events_in, self.run_dir.events_out)
        subscription = Subscription(self._loop, context, self.run_dir.events_out, ("counters.",), self._counted)
        receiver = RecordReceiver(self._loop, context, self.run_dir.records, self._commit)
        self._loop.watch(self._wake_read, select.EPOLLIN, self._woken)
        self._started.set()
        self._loop.run()
        for part in (subscription, receiver, forwarder, self._router):
            part.close()
        context.term()
        self._loop.close()

    def _woken(self, _mask: int) -> None:
        os.read(self._wake_read, 1)
        self._commands.pop(0)()

    def _received(self, sender: str, message: Any, response: Callable[[Any], None]) -> None:
        if isinstance(message, ReportProblems):
            self.reports.append(message)
        if isinstance(message, Hello):
            self._router.set_current_instance(forwarding_name(PROXY_ID), message.instance)
            configured = Configure(self.spec, self.egress, packed(self.objects), workers=self._workers)
            self._router.ask(sender, configured, lambda _reply: self._helloed.set())

    def _counted(self, _topic: str, message: Any) -> None:
        if message.partial and self.counters is not None:
            message = replace(message, decisions={**self.counters.decisions, **message.decisions})
        self.counters = message

    def _commit(self, batch: RecordBatch) -> int:
        self.records.extend(dict(zip(ACCESS_FIELDS, row, strict=True)) for row in batch.rows)
        return batch.number


def _listeners(count: int) -> list[socket.socket]:
    """Sockets that listen at consecutive ports, which are found by binding them."""
    if count == 1:
        return [socket.create_server(("127.0.0.1", 0), backlog=1024)]
    return [socket.create_server(("127.0.0.1", port), backlog=1024) for port in free_ports(count)]
