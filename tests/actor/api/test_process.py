"""The API as a real process, on a real bus, with the test as its supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import requests
import zmq

from actors.bus.events import Forwarder, Subscription
from actors.bus.loop import Loop
from actors.bus.mailbox import MailboxRouter, Reply
from actors.bus.messages.cluster import FleetJoined, JoinFleet
from actors.bus.messages.common import ApplySettings, Done, Hello, Stop
from actors.bus.messages.supervision import ApplyObjects, ApplyOverrides, ReplaceProxies
from actors.process import Boot
from api.engine.commit import open_engine
from api.objects.proxies.proxy_cache import ProxyCache
from api.operator.offline import reset_password
from api.operator.running import ask_cluster
from api.operator.start import ensure_administrator, read_desired_objects, read_desired_proxies
from api.server.channel import HEAD_TIMEOUT
from api.store import FleetStore, StoreError, open_store
from config.files.paths import DataDir, RunDir, open_data_dir, open_run_dir
from tests.kit.api_stage import PROXY, FakeFleet
from tests.kit.folders import FOLDERS
from tests.kit.forked_actor import Forked, fork_actor
from tests.kit.ports import free_port
from tests.kit.postgresql import needs_postgresql
from tests.kit.settings import boot_settings
from tests.unit.api.cluster.admitted import Asked
from tests.unit.api.cluster.nodes import fleet, owner

PROCESS = """
import json, socket, sys
import api.server.http_server
from actors.process import Boot, main
given = json.loads(sys.argv[1])
api.server.channel.HEAD_TIMEOUT = given["head_timeout"]
listener = socket.socket(fileno=given["listener"])
boot = Boot("api", 1, given["run"], given["data"], given["settings"])
sys.exit(main("api.process:ApiActor", boot, [listener], given["lifeline"]))
"""
LONG = 120.0
UNLIMITED: dict[str, Any] = {"security": {"rate_limiting": {"enabled": False}}}


class Supervisor:
    """The middle of the bus in a thread, and the process that it starts."""

    def __init__(self, folder: Path) -> None:
        self.run: RunDir = open_run_dir(folder / "r")
        self.data: DataDir = open_data_dir(folder / "d")
        self.fleet = FakeFleet()
        self.reported: list[ReplaceProxies] = []
        self.hello = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.loop = Loop()
        self.context: zmq.Context[Any] = zmq.Context()
        self.router = MailboxRouter(self.loop, self.context, self.run.mailbox, self._received)
        self.router.set_current_instance("api", 1)
        self.forwarder = Forwarder(self.loop, self.context, self.run.events_in, self.run.events_out)
        self.received: list[str] = []
        self.ears = Subscription(
            self.loop,
            self.context,
            self.run.events_out,
            ("events.",),
            lambda topic, _event: self.received.append(topic),
        )
        self._turning = True
        self.thread = threading.Thread(target=self._turn)
        self.thread.start()
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self.lifeline: int | None = None
        self.head_timeout = HEAD_TIMEOUT

    def _turn(self) -> None:
        while self._turning:
            self.loop.turn(0.02)

    def _received(self, sender: str, message: Any, reply: Reply) -> None:
        if isinstance(message, Hello):
            self.router.set_current_instance(sender, message.instance)
            self.hello.set()
        elif isinstance(message, ReplaceProxies):
            self.reported.append(message)
            reply(Done())
        else:
            reply(self.fleet.ask("supervisor", message))

    def boot(self) -> None:
        """Start the API as the product does, and wait for its hello."""
        self.hello.clear()
        ear, self.lifeline = os.pipe()
        boot = Boot("api", 1, str(self.run.path), str(self.data.path), boot_settings(**UNLIMITED))
        self.process = fork_actor(boot, [self.listener], ear, "api.process:ApiActor")
        os.close(ear)
        assert self.hello.wait(LONG)

    def spawn(self, settings: dict[str, Any] | None = None, stderr: int | None = None) -> subprocess.Popen[bytes]:
        """Start the API in an interpreter of its own."""
        self.hello.clear()
        ear, self.lifeline = os.pipe()
        given = {
            "listener": self.listener.fileno(),
            "lifeline": ear,
            "run": str(self.run.path),
            "data": str(self.data.path),
            "head_timeout": self.head_timeout,
            "settings": boot_settings(**UNLIMITED, **(settings or {})),
        }
        command = [sys.executable, "-c", PROCESS, json.dumps(given)]
        self.process = made = subprocess.Popen(command, pass_fds=[self.listener.fileno(), ear], stderr=stderr)
        os.close(ear)
        return made

    def tell_stop(self, drain: float) -> None:
        self.loop.call_soon(lambda: self.router.tell("api", Stop(drain)))

    def hang_up(self) -> None:
        if self.lifeline is not None:
            os.close(self.lifeline)
            self.lifeline = None

    def close(self) -> None:
        self.hang_up()
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(60)
            self.process.kill()
            self.process.wait()
        self._turning = False
        self.thread.join()
        self.ears.close()
        self.router.close()
        self.forwarder.close()
        self.context.term()
        self.listener.close()


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder:
        made = Supervisor(Path(folder))
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def password(supervisor: Supervisor) -> str:
    made = first_start(supervisor.data, None)
    assert made is not None
    return made


def stored(data: DataDir, read: Callable[[FleetStore, DataDir], Sequence[Any]]) -> Sequence[Any]:
    """What `read` finds in the store."""
    with closing(open_store(data)) as store:
        return read(store, data)


def desired_proxies(store: FleetStore, data: DataDir) -> Sequence[Any]:
    return read_desired_proxies(ProxyCache(store).all(), data)


def first_start(data: DataDir, password: str | None) -> str | None:
    """The password that was made up."""
    with open_engine(data, "system", "first-start") as engine:
        return ensure_administrator(engine, data, password)


def sign_in(supervisor: Supervisor, password: str) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    body = {"username": "admin", "password": password}
    response = session.post(f"{supervisor.url}/api/v1/auth/login", json=body, timeout=LONG)
    assert response.status_code == 200, response.text
    session.headers["Authorization"] = f"Bearer {response.json()['data']['access_token']}"
    return session


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def test_first_start_makes_an_administrator_once_and_keeps_the_password_private(supervisor: Supervisor) -> None:
    made = first_start(supervisor.data, None)
    assert made
    assert supervisor.data.initial_password.read_text() == made + "\n"
    assert supervisor.data.initial_password.stat().st_mode & 0o777 == 0o600
    assert first_start(supervisor.data, None) is None
    assert first_start(supervisor.data, "another one") is None


def test_a_given_password_is_written_nowhere_and_a_reset_replaces_it(supervisor: Supervisor) -> None:
    assert first_start(supervisor.data, "chosen by hand") is None
    assert not supervisor.data.initial_password.exists()
    supervisor.boot()
    session = sign_in(supervisor, "chosen by hand")
    supervisor.tell_stop(1.0)
    assert supervisor.process is not None
    assert supervisor.process.wait(LONG) == 0
    assert reset_password(supervisor.data, "admin", "new by hand") == "new by hand"
    supervisor.boot()
    assert session.get(f"{supervisor.url}/api/v1/auth/test", timeout=LONG).status_code == 401
    sign_in(supervisor, "new by hand")


def test_the_api_serves_survives_a_kill_and_reports_the_desired_state_again(
    supervisor: Supervisor, password: str
) -> None:
    supervisor.boot()
    assert supervisor.reported == [ReplaceProxies(())]
    session = sign_in(supervisor, password)
    made = session.post(f"{supervisor.url}/api/v1/proxies", json=PROXY, timeout=LONG)
    assert made.status_code == 201
    assert supervisor.process is not None
    supervisor.process.kill()
    supervisor.process.wait()
    supervisor.hang_up()
    supervisor.boot()
    proxy_id = made.json()["data"]["proxy"]["id"]
    assert (supervisor.reported[-1].specs, supervisor.reported[-1].unchanged) == ((), (proxy_id,))
    assert session.get(f"{supervisor.url}/api/v1/proxies/{proxy_id}", timeout=LONG).status_code == 200
    assert session.get(f"{supervisor.url}/health", timeout=LONG).json()["data"]["status"] == "healthy"


def test_a_kill_between_commit_and_distribution_is_repaired_by_the_next_start(
    supervisor: Supervisor, password: str
) -> None:
    supervisor.boot()
    session = sign_in(supervisor, password)
    process, supervise = supervisor.process, supervisor.fleet.ask
    assert process is not None

    def kill_instead(to: str, message: Any, timeout: float = 5.0) -> Any:
        if isinstance(message, ApplyObjects):
            process.kill()
        return supervise(to, message, timeout)

    supervisor.fleet.ask = kill_instead  # type: ignore[method-assign]
    with pytest.raises(requests.ConnectionError):
        session.post(f"{supervisor.url}/api/v1/pools", json={"name": "paris"}, timeout=LONG)
    process.wait()
    supervisor.hang_up()
    supervisor.boot()
    assert [each.key for each in supervisor.reported[-1].objects] == ["pool:paris"]
    assert [each.key for each in stored(supervisor.data, read_desired_objects)] == ["pool:paris"]


def test_a_kill_between_the_commit_of_a_setting_and_its_effect_is_repaired_by_the_next_start(
    supervisor: Supervisor, password: str
) -> None:
    supervisor.boot()
    session = sign_in(supervisor, password)
    process, supervise = supervisor.process, supervisor.fleet.ask
    assert process is not None

    def kill_instead(to: str, message: Any, timeout: float = 5.0) -> Any:
        if isinstance(message, ApplyOverrides) and message.stored:
            process.kill()
            return Done()
        return supervise(to, message, timeout)

    supervisor.fleet.ask = kill_instead  # type: ignore[method-assign]
    changed = {"proxy": {"default_timeout": 31}}
    with pytest.raises(requests.ConnectionError):
        session.patch(f"{supervisor.url}/api/v1/settings", json=changed, timeout=LONG)
    process.wait()
    supervisor.fleet.ask = supervise  # type: ignore[method-assign]
    assert supervisor.fleet.stored == {}
    supervisor.hang_up()
    supervisor.boot()
    wait_until(lambda: supervisor.fleet.stored == changed)


@needs_postgresql
def test_an_installation_that_joins_a_fleet_is_its_node_in_the_same_process_and_loses_no_request(
    supervisor: Supervisor, password: str
) -> None:
    assert password
    with ExitStack() as stack:
        asked = Asked(stack.enter_context(fleet(stack.enter_context(owner()))), stack)
        listen = {"listen": f"127.0.0.1:{free_port()}"}
        supervise = supervisor.fleet.ask

        def with_cluster(to: str, message: Any, timeout: float = 5.0) -> Any:
            reply = supervise(to, message, timeout)
            return ApplySettings({**reply.groups, "cluster": listen}) if isinstance(reply, ApplySettings) else reply

        supervisor.fleet.ask = with_cluster  # type: ignore[method-assign]
        process = supervisor.spawn({"cluster": listen})
        assert supervisor.hello.wait(LONG)
        before, statuses, is_over = len(supervisor.reported), list[int](), threading.Event()

        def request() -> None:
            while not is_over.is_set():
                statuses.append(requests.get(f"{supervisor.url}/health", timeout=LONG).status_code)

        requesting = threading.Thread(target=request)
        requesting.start()
        try:
            joined = ask_cluster(supervisor.run, JoinFleet(asked.token(name="second").text), FleetJoined)
            wait_until(lambda: len(supervisor.reported) > before)
            served = len(statuses)
            wait_until(lambda: len(statuses) > served + 1)
        finally:
            is_over.set()
            requesting.join()
        assert joined == FleetJoined("second")
        assert (set(statuses), process.poll()) == ({200}, None)
        assert supervisor.data.node.exists()
        refused = {"username": "admin", "password": password}
        assert requests.post(f"{supervisor.url}/api/v1/auth/login", json=refused, timeout=LONG).status_code == 401
        supervisor.tell_stop(0.0)
        assert process.wait(LONG) == 0


def test_events_reach_subscribers_on_the_bus(supervisor: Supervisor, password: str) -> None:
    supervisor.boot()
    session = sign_in(supervisor, password)
    made = session.post(f"{supervisor.url}/api/v1/proxies", json=PROXY, timeout=LONG).json()["data"]["proxy"]
    restart = f"{supervisor.url}/api/v1/proxies/{made['id']}/restart"

    def restarted_and_received() -> bool:
        assert session.post(restart, timeout=LONG).status_code == 200
        return "events.proxy.restarted" in supervisor.received

    wait_until(restarted_and_received)


def test_with_a_store_that_can_not_be_read_the_process_ends_and_says_why(supervisor: Supervisor, password: str) -> None:
    file = supervisor.data.fleet
    file.write_bytes(file.read_bytes()[:-5000])
    with pytest.raises(StoreError, match=r"fleet\.sqlite"):
        stored(supervisor.data, desired_proxies)
    process = supervisor.spawn(stderr=subprocess.PIPE)
    _, output = process.communicate(timeout=LONG)
    assert process.returncode == 1
    assert b"the API can't start" in output
    assert b"Traceback" not in output


def test_many_clients_at_once_all_get_responses(supervisor: Supervisor, password: str) -> None:
    supervisor.boot()
    session = sign_in(supervisor, password)
    token = dict(session.headers)
    statuses: list[int] = []

    def work(number: int) -> None:
        with requests.Session() as own:
            own.trust_env = False
            own.headers.update(token)
            for step in range(5):
                body = {**PROXY, "name": f"p{number}-{step}", "port": 5000 + 10 * number + step}
                statuses.append(own.post(f"{supervisor.url}/api/v1/proxies", json=body, timeout=LONG).status_code)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [201] * 30
    supervisor.tell_stop(5.0)
    assert supervisor.process is not None
    assert supervisor.process.wait(LONG) == 0
    assert len(stored(supervisor.data, desired_proxies)) == 30


def test_a_stop_lets_a_request_under_way_finish(supervisor: Supervisor, password: str) -> None:
    supervisor.boot()
    session = sign_in(supervisor, password)
    entered, go_on = threading.Event(), threading.Event()

    def slow(message: Any) -> Any:
        entered.set()
        assert go_on.wait(LONG)
        return FakeFleet._reserve(supervisor.fleet, message)

    supervisor.fleet._reserve = slow  # type: ignore[method-assign]
    statuses: list[int] = []
    request = threading.Thread(
        target=lambda: statuses.append(
            session.post(f"{supervisor.url}/api/v1/proxies", json=PROXY, timeout=LONG).status_code
        )
    )
    request.start()
    assert entered.wait(LONG)
    supervisor.tell_stop(20.0)
    go_on.set()
    request.join()
    assert statuses == [201]
    assert supervisor.process is not None
    assert supervisor.process.wait(LONG) == 0


def test_without_a_supervisor_the_process_ends(supervisor: Supervisor, password: str) -> None:
    supervisor.boot()
    supervisor.hang_up()
    assert supervisor.process is not None
    supervisor.process.wait(LONG)


# --- what no application sees -------------------------------------------------------------------------------------


def raw(supervisor: Supervisor, content: bytes) -> tuple[int, dict[str, Any]]:
    """Send these bytes; the status and the envelope of the response."""
    address = supervisor.listener.getsockname()
    with socket.create_connection(address, timeout=LONG) as client:
        client.sendall(content)
        response = b""
        while chunk := client.recv(65536):
            response += chunk
    head, _, body = response.partition(b"\r\n\r\n")
    assert b"X-Request-Id" in head
    return int(head.split(b" ")[1]), json.loads(body)


def test_what_waitress_refuses_is_an_envelope_too(supervisor: Supervisor) -> None:
    first_start(supervisor.data, None)
    supervisor.boot()
    end = b"\r\nConnection: close\r\n\r\n"
    large = b"POST /api/v1/auth/login HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: "
    cases = {
        400: b"nonsense\r\n\r\n",
        431: b"GET / HTTP/1.1\r\nX: " + b"a" * 1_000_000 + end,
        413: large + b"99999999" + end,
        501: b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip" + end,
    }
    for wanted, content in cases.items():
        status, envelope = raw(supervisor, content)
        assert (status, envelope["error"]["code"]) == (wanted, "INVALID_REQUEST")
    size = 1024 * 1024 + 1
    status, envelope = raw(supervisor, large + str(size).encode() + end + b" " * size)
    assert (status, envelope["error"]["code"]) == (413, "INVALID_REQUEST")


def test_half_sent_heads_of_one_client_stop_no_other_and_are_closed(supervisor: Supervisor) -> None:
    first_start(supervisor.data, None)
    supervisor.head_timeout = 2.0
    supervisor.spawn({"server": {"max_connections": 200}})
    assert supervisor.hello.wait(LONG)
    address = supervisor.listener.getsockname()
    with contextlib.ExitStack() as stack:
        half = [stack.enter_context(socket.create_connection(address, timeout=LONG)) for _ in range(120)]
        for client in half:
            with contextlib.suppress(OSError):  # one too many, and closed already
                client.sendall(b"GET /health HTTP/1.1\r\nHost:")
        elsewhere = stack.enter_context(
            socket.create_connection(address, timeout=LONG, source_address=("127.0.0.2", 0))
        )
        elsewhere.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        assert elsewhere.recv(100).startswith(b"HTTP/1.1 200")
        for client in half:
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""
