"""An API without processes: the real application on a real store, and a bridge whose other end is played here."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import falcon
from falcon.testing import Result

from actors.bus.messages.common import METRICS, SUPERVISOR, ApplySettings, Done, Problem, Unreachable
from actors.bus.messages.events import Event
from actors.bus.messages.forwarding import AllowTestClient
from actors.bus.messages.metrics import ProxyStats, QueryStats, Stats
from actors.bus.messages.specs import CheckPool, FleetObject, ProxySpec
from actors.bus.messages.supervision import (
    ApplyObjects,
    ApplyOverrides,
    ApplyProxies,
    AwaitProxy,
    CancelListeners,
    DescribeSettings,
    DesiredRevisions,
    ListenerRefused,
    ListenerReserved,
    QueryDesired,
    QueryRuntime,
    QueryWorkers,
    ReplaceProxies,
    ReserveListener,
    RestartProxy,
    Runtime,
    RuntimeReport,
    SettingSources,
    ValidateSettings,
    Workers,
)
from actors.supervision.settings_updates import EffectiveSettings
from api.api_settings import ApiSettings
from api.app import create_app
from api.container import Services
from api.engine.commit import Engine
from api.fleet import ThisNode
from api.security import users
from api.security.users import User, UserCreate
from api.store import FleetStore, Write
from config.files.paths import DataDir, open_data_dir, open_run_dir
from config.files.secret_box import secret_box_of
from config.net.names import Ports
from config.settings.runtime import Stored, overlay
from config.settings.settings import ProxyGroup, RateLimiting, Security, Settings
from tests.kit.folders import FOLDERS
from tests.kit.ledgers import opened_engine
from tests.kit.openapi_document import DescribedClient

PASSWORD = "correct horse"
QUIET = Security(rate_limiting=RateLimiting(enabled=False))
INTRANET = ProxyGroup(upstreams_allow=("10.0.0.0/8", "127.0.0.0/8", "192.0.2.0/24", "::1"))
"""Upstreams of tests are at addresses that are not public."""


class FakeFleet:
    """A supervisor and a collector that reply as the real ones would, and record the messages that they receive.

    Threads of the API ask at any time: the supervisor does one thing at a time, and `desired` is the last that changes.
    """

    def __init__(self) -> None:
        self.received: list[tuple[str, Any]] = []
        self.within_a_commit: Callable[[], bool] = lambda: False
        self.events: list[Event] = []
        self.desired: dict[str, ProxySpec] = {}
        self.objects: dict[str, FleetObject] = {}
        self.removed: set[str] = set()
        """Proxies and objects that come back only with the whole state: messages may overtake each other."""
        self.bound: dict[tuple[str, int], str] = {}
        self.reserved: dict[str, tuple[str, Ports]] = {}
        self.stats: dict[str, ProxyStats] = {}
        self.helpers = {name: Runtime("running", 7, 1.0, 0, None) for name in ("api", "metrics", "logs", "webhooks")}
        self.failed: set[str] = set()
        self.older: dict[str, tuple[int, ...]] = {}
        self.problems: dict[str, tuple[Problem, ...]] = {}
        self.gone: set[str] = set()
        self.forwarding: Callable[[AllowTestClient], Any] = lambda _admit: Done()
        self.configured = ApiSettings(security=QUIET, proxy=INTRANET)
        self.stored: Stored = {}
        self.taken: set[int] = set()
        self.others: dict[str, Callable[[Any], Any]] = {}
        self.workers: dict[str, tuple[int, ...]] = {}
        """By proxy, the instances of its processes."""
        self.certificate_ends = 0.0
        self.pools_in_use: tuple[str, ...] = ()
        self._since = time.time()
        self._one_at_a_time = threading.RLock()
        self._replies_left: int | None = None
        self._late: list[Any] = []

    def ask(self, to: str, message: Any, timeout: float = 5.0) -> Any:
        assert not self.within_a_commit(), f"a commit waits for {message}"
        self.received.append((to, message))
        if to in self.gone:
            return Unreachable(to, "it is not on the bus")
        if to == SUPERVISOR:
            return self._reply_or_not(message)
        if to == METRICS and isinstance(message, QueryStats):
            return Stats({each: self.stats[each] for each in message.proxy_ids or self.stats if each in self.stats})
        if isinstance(message, AllowTestClient):
            return self.forwarding(message)
        return self.others[to](message) if to in self.others else Unreachable(to, "it is not played")

    def ask_all(self, requests: Mapping[str, Any], timeout: float = 5.0) -> dict[str, Any]:
        return {to: self.ask(to, message, timeout) for to, message in requests.items()}

    @contextmanager
    def silent_after(self, replies: int) -> Iterator[None]:
        """A supervisor that stops for the time of the block once it gave so many replies, and does the rest later."""
        self._replies_left, self._late = replies, []
        yield
        with self._one_at_a_time:
            late, self._late, self._replies_left = self._late, [], None
            for message in late:
                self._supervise(message)

    def _reply_or_not(self, message: Any) -> Any:
        with self._one_at_a_time:
            if self._replies_left is None:
                return self._supervise(message)
            if self._replies_left == 0:
                self._late.append(message)
                return Unreachable(SUPERVISOR, "no response in time")
            self._replies_left -= 1
            return self._supervise(message)

    def publish(self, topic: str, message: Any) -> None:
        assert topic == f"events.{message.type}"
        self.events.append(message)

    def published(self, kind: str) -> list[dict[str, Any]]:
        return [event.data for event in self.events if event.type == kind]

    def _supervise(self, message: Any) -> Any:
        if isinstance(message, ReserveListener):
            return self._reserve(message)
        if isinstance(message, ApplyProxies):
            for spec in message.specs:
                if spec.id not in self.removed:
                    self._keep(spec)
                    self.desired[spec.id] = spec
            self.removed.update(message.gone)
            for each in message.gone:
                self._release(each)
                self.desired.pop(each, None)
            return Done()
        if isinstance(message, ApplyObjects):
            self.objects |= {each.id: each for each in message.objects if each.id not in self.removed}
            for each in message.gone:
                self.objects.pop(each, None)
            self.removed.update(message.gone)
            return Done()
        if isinstance(message, ReplaceProxies):
            self.removed.clear()
            self.objects = {each.id: each for each in message.objects}
            kept = [self.desired[each] for each in message.unchanged]
            desired = {spec.id: spec for spec in (*kept, *message.specs)}
            self.bound, self.reserved = {}, {}
            for spec in desired.values():
                self._keep(spec)
            self.desired = desired
            return Done()
        if isinstance(message, QueryDesired):
            return DesiredRevisions({each: spec.revision for each, spec in self.desired.items()})
        if isinstance(message, AwaitProxy):
            return Done()
        if isinstance(message, CancelListeners):
            for each in message.proxy_ids:
                self.reserved.pop(each, None)
            return Done()
        if isinstance(message, ValidateSettings):
            return Done()
        if isinstance(message, ApplyOverrides):
            self.stored = message.stored
            laid = overlay(self.configured, message.stored)
            groups = ("server", "logging", "auth", "proxy", "accounts", "security", "history")
            whole = {name: getattr(self.configured, name) for name in groups}
            return ApplySettings({name: group.model_dump(mode="json") for name, group in {**whole, **laid}.items()})
        if isinstance(message, DescribeSettings):
            found = EffectiveSettings.of(Settings(), self.stored).described()
            return SettingSources(tuple(each.plain() for each in found))
        if isinstance(message, QueryRuntime):
            runtimes = {each: self._runtime(spec) for each, spec in self.desired.items()}
            return RuntimeReport(runtimes, self.helpers, 1.0, pools=self.pools_in_use, older=self.older)
        if isinstance(message, QueryWorkers):
            return Workers({each: self.workers[each] for each in message.proxy_ids if each in self.workers})
        return Done() if isinstance(message, (RestartProxy, CheckPool)) else None

    def _reserve(self, message: ReserveListener) -> Any:
        ports = Ports.of(message.port, message.last_port)
        reserved = {(host, port): each for each, (host, some) in self.reserved.items() for port in some}
        others = reserved | self.bound
        for port in ports:
            holder = others.get((message.host, port), message.proxy_id)
            if holder not in (message.proxy_id, *message.instead_of) or port in self.taken:
                return ListenerRefused("port", f"port {port} is in use", holder)
        self.reserved[message.proxy_id] = message.host, ports
        return ListenerReserved(message.host, message.port)

    def _keep(self, spec: ProxySpec) -> None:
        self._release(spec.id)
        if spec.active:
            self.bound |= {(spec.host, port): spec.id for port in spec.ports}

    def _release(self, proxy_id: str) -> None:
        self.reserved.pop(proxy_id, None)
        self.bound = {address: holder for address, holder in self.bound.items() if holder != proxy_id}

    def _runtime(self, spec: ProxySpec) -> Runtime:
        state = "failed" if spec.id in self.failed else "running" if spec.active else "stopped"
        ends = self.certificate_ends if state == "running" else 0.0
        runtime = Runtime(state, 4711 if state == "running" else None, self._since, 0, None, certificate_ends=ends)
        problems = self.problems.get(spec.id, ())
        if state != "running" or not problems:
            return runtime
        return replace(runtime, state="degraded", error="; ".join(each.detail for each in problems), problems=problems)


@cache
def empty_stores() -> tempfile.TemporaryDirectory[str]:
    """What a first start makes but keys, which are made at their first use."""
    made = tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS)
    data, run = open_data_dir(Path(made.name) / "d"), open_run_dir(Path(made.name) / "r")
    with closing(Engine(data, secret_box_of(data))) as engine:
        Services(engine, FakeFleet(), ApiSettings(), data, run).close()
    return made


def with_empty_stores(path: Path) -> Path:
    """A new data directory there. To copy twenty small files costs a fifth of making them with their tables."""
    shutil.copytree(Path(empty_stores().name) / "d", path)
    return path


class UnrecordedStore(FleetStore):
    """That of an engine, whose changes it does not record."""

    def __init__(self, engine: Engine) -> None:
        self.file, self.documents, self.accounts = engine.file, engine.documents, engine.accounts
        self._alone, self._of_uses = engine.alone, engine._of_uses

    def commit(self, writes: Sequence[Write]) -> int:
        """See `Store.commit`."""
        with self._alone():
            return super().commit(writes)


class ServicesOfThread:
    """What the application acts on in this thread."""

    _of_thread = threading.local()

    def serve(self, services: Services) -> None:
        self._of_thread.services = services

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of_thread.services, name)


@cache
def application() -> tuple[falcon.App[Any, Any], ServicesOfThread]:
    """One for all stages: to make its routes takes longer than most tests."""
    served = ServicesOfThread()
    return create_app(cast("Services", served)), served


class StagedClient(DescribedClient):
    """Talks to the application of one stage."""

    def __init__(self, services: Services) -> None:
        app, self._served = application()
        super().__init__(app)
        self._services = services

    def simulate_request(self, *args: Any, **kwargs: Any) -> Result:
        self._served.serve(self._services)
        return super().simulate_request(*args, **kwargs)


class Api:
    """The application with an administrator, and short ways to talk to it."""

    node: ThisNode | None = None
    """What a node of a fleet has."""

    def __init__(self, settings: ApiSettings | None = None) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS)
        self.data: DataDir = open_data_dir(with_empty_stores(Path(self.folder.name) / "d"))
        self.run = open_run_dir(Path(self.folder.name) / "r")
        self.open()
        self.fleet = FakeFleet()
        self.settings = settings or ApiSettings(security=QUIET, proxy=INTRANET)
        self.fleet.configured = self.settings
        self.admin = self.add_user("admin", role="administrator")
        self.start()

    def open(self) -> None:
        """What the data directory has; `store` records nothing."""
        self.engine = opened_engine(self.data, secret_box_of(self.data))
        self.store = UnrecordedStore(self.engine)

    def end(self) -> None:
        """The process ends: `open` and `start` make another one."""
        self.services.close()
        self.engine.close()
        del self.services

    def start(self) -> None:
        """A new process, as far as the application can tell: only store and key file remain."""
        if hasattr(self, "services"):
            self.services.close()
        self.fleet.removed.clear()  # the supervisor gets the whole state at each start
        locks: list[Any] = [self.engine.file._lock, self.engine._changing]
        self.fleet.within_a_commit = lambda: any(each._is_owned() for each in locks)
        self.services = Services(self.engine, self.fleet, self.settings, self.data, self.run, node=self.node)
        self.services.runtime.remembered = 0.0
        self.client = StagedClient(self.services)

    def add_user(self, username: str, **fields: Any) -> User:
        user = users.new_user(UserCreate(username=username, password=PASSWORD, **fields))
        self.store.put("users", user.model_dump(mode="json"), expect=0)
        return user

    def token(self, username: str = "admin") -> dict[str, str]:
        """The headers of a user who is signed in."""
        user = users.by_name(self.store, username)
        assert user is not None
        return {"Authorization": f"Bearer {self.services.tokens.issue(user).access_token}"}

    def key(self, username: str = "admin", **fields: Any) -> dict[str, str]:
        """The headers of a program with an API key."""
        body = {"name": "a key", **fields}
        made = self.post("/api-keys", body, self.token(username))
        assert made.status_code == 201, made.text
        return {"X-API-Key": made.json["data"]["key"]}

    def request(self, method: str, path: str, headers: dict[str, str] | None = None, **more: Any) -> Result:
        full = path if path.startswith(("/health", "/livez", "/readyz", "/proxy.pac", "/api/")) else f"/api/v1{path}"
        result = self.client.simulate_request(method, full, headers=headers, **more)
        check_envelope(result)
        return result

    def get(self, path: str, headers: dict[str, str] | None = None, **more: Any) -> Result:
        return self.request("GET", path, headers, **more)

    def post(self, path: str, body: Any = None, headers: dict[str, str] | None = None, **more: Any) -> Result:
        return self.request("POST", path, headers, **({} if body is None else {"json": body}), **more)

    def put(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Result:
        return self.request("PUT", path, headers, json=body)

    def patch(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Result:
        return self.request("PATCH", path, headers, json=body)

    def close(self) -> None:
        self.end()
        self.folder.cleanup()


def check_envelope(result: Result) -> None:
    """Every response of the API, good or bad, has the one form."""
    assert result.headers["X-Request-Id"]
    if not result.content or result.headers["Content-Type"].startswith("text/csv"):
        return
    body = result.json
    if result.status_code < 400 or body["success"]:
        assert body.keys() == {"success", "data"}, body
        assert body["success"] is True
    else:
        assert body.keys() == {"success", "error"}, body
        assert body["error"].keys() == {"code", "message", "details"}, body


def revision_of(result: Result) -> int:
    """The revision in the ETag, which has the tag of the content behind it where something was read."""
    return int(result.headers["ETag"].strip('"').partition("-")[0])


def error_of(result: Result) -> tuple[int, str, Any]:
    """Status, code and details of a failure."""
    error = result.json["error"]
    return result.status_code, error["code"], error["details"]


PROXY: dict[str, Any] = {"name": "first", "port": 3128, "protocol": "http"}
