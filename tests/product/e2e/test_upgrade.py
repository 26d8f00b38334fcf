"""`proxyfleet upgrade`: the running product becomes another program, and no client is refused, failed or cut."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from actors.compiled import runs_compiled
from tests.kit.certificates import make_pair
from tests.kit.http_origins import Origin
from tests.kit.installed import Installed
from tests.kit.live_metrics import live_figures
from tests.kit.ports import free_ports
from tests.kit.product import PASSWORD, Product
from tests.kit.scripted_origins import Origin as ScriptedOrigin
from tests.kit.steady_load import PATIENCE, Knock, Knocking, by_tunnel, of_api, through_proxy
from tests.kit.wait import wait_until
from tests.kit.wire import Client
from tests.kit.workers import all_run, limited

pytestmark = pytest.mark.product

PATIENT = {"timeout": 600}
"""Of a proxy whose tunnel is idle while the program is replaced, which may take a slow machine half a minute."""


BASE = "[server]\ndrain_timeout = 60\n"


class Upgraded(Installed):
    """Its data directory is in the configuration file, and not on the command line."""

    def __init__(self) -> None:
        super().__init__(env={"PROXYFLEET_PROXY__KEEP_ALIVE_TIMEOUT": "77"})
        self.newest = 1
        self.configure(self.based())

    def command(self) -> list[str]:
        command = super().command()
        place = command.index("--data-dir")
        return command[:place] + command[place + 2 :]

    def based(self, server: str = BASE, data_dir: Path | None = None) -> str:
        """A configuration with these lines of the server."""
        return f'data_dir = "{data_dir or self.data_dir}"\n{server}'

    def install_next(self, *, pure: bool = False) -> str:
        """Install another version, and return it."""
        self.newest += 1
        self.install(f"{self.newest}.0.0", pure=pure)
        return f"{self.newest}.0.0"


@pytest.fixture(scope="module")
def _installed() -> Iterator[Upgraded]:
    with Upgraded() as running:
        yield running


@pytest.fixture
def installed(_installed: Upgraded) -> Iterator[Upgraded]:
    """One for the module, which becomes newer from test to test; a test may stop it."""
    _installed.configure(_installed.based())
    if _installed.process.poll() is not None:
        _installed.start()
    _installed.forget_log()
    yield _installed
    if _installed.process.poll() is None:
        for proxy in _installed.data("GET", "/proxies")["proxies"]:
            _installed.data("DELETE", f"/proxies/{proxy['id']}")
        wait_until(lambda: older(_installed) is None, "what is older has ended")


def knocks_at(origin: Origin, proxy: dict[str, Any]) -> tuple[Knock, Knock]:
    """A request, and a tunnel."""
    url = origin.url("/hello")
    return through_proxy(proxy["port"], url), by_tunnel(proxy["port"], url.split("/")[2])


def knocking_at(product: Product, origin: Origin, proxy: dict[str, Any]) -> Knocking:
    return Knocking(*knocks_at(origin, proxy), of_api(product.port))


def ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_an_upgrade_under_load_refuses_fails_and_cuts_nothing_and_leaves_nothing_behind(
    installed: Upgraded, origin: Origin
) -> None:
    """Of a proxy, of one with two workers at many ports, and of two that sleep: these know then that their upstream is
    down, and count on. What is made of that is tested elsewhere."""
    proxy, ports = installed.proxy(settings=PATIENT), free_ports(300)
    wide = {**installed.proxy(workers=2, port=str(ports)), "port": ports.last}
    both = wait_until(lambda: running_workers(installed, wide, set()), "both workers run")
    down = {"protocol": "http", "host": "127.0.0.1", "port": free_ports(1).last, "name": "down"}
    sleepers = [installed.proxy(workers=workers, sleep_after=1, upstreams=[down]) for workers in (1, 2)]
    assert [status_of(each, origin) for each in sleepers] == [502, 502]
    wait_until(lambda: all(state_of(installed, each) == "sleeping" for each in sleepers), "they sleep")
    known = [kept_of(installed, each) for each in sleepers]
    assert all(known)
    assert shown_settings(installed) == {}
    wait_until(lambda: set(installed.processes()) == set(installed.lasting()), "nothing runs for a moment only")
    before, names = kept(installed.pid), sorted(each.name() for each in installed.lasting())
    first, former, old = installed.pid, installed.version, proxy["runtime"]["pid"]
    target = origin.url("/hello").split("/")[2]
    history = installed.data("GET", "/revisions")["revisions"]
    with Client(proxy["port"]) as tunnel:
        tunnel.connect(target)
        with Knocking(*knocks_at(origin, proxy), *knocks_at(origin, wide), of_api(installed.port)) as knocking:
            version = installed.install_next()
            done = installed.upgrade()
            text = "older connections drain for up to 3600 s, proxyfleet status counts them."
            assert (done.returncode, done.stdout) == (0, f"Upgraded from {former} to {version}; {text}\n")
            knocking.wait_for_more()
            wait_until(lambda: running_workers(installed, wide, both), "both run in the new program")
            knocking.wait_for_more()
            tunnel.send(f"GET /hello HTTP/1.1\r\nHost: {target}\r\n\r\n")
            assert tunnel.answer().status == 200
        assert knocking.failures == []
    assert (installed.pid, installed.version) == (first, version)
    assert installed.data("GET", "/revisions")["revisions"] == history
    made_requests = sum(knocking.counts[:2]) + 1  # and the tunnel that stayed
    wait_until(lambda: requests_of(installed, proxy) == made_requests, "every request is counted once")
    wait_until(lambda: records_of(installed, proxy) == made_requests, "every request has its record")
    new = wait_until(lambda: running_elsewhere(installed, proxy, old), "the proxy runs in a process of the new program")
    assert new["runtime"]["restarts"] == 0
    wait_until(lambda: all(map(ended, (old, *both))), "the older processes have ended, since the last tunnel has")
    wait_until(lambda: sorted(each.name() for each in installed.lasting()) == names, "predecessors have ended")
    wait_until(lambda: kept(installed.pid) == before, "as many descriptors as before")
    assert shown_settings(installed) == {}
    assert installed.data("GET", "/settings")["proxy"]["keep_alive_timeout"] == 77  # given, and in force all the same
    live_figures(installed, proxy, lambda figures: figures.get("name") == proxy["name"])
    assert [state_of(installed, each) for each in sleepers] == ["sleeping"] * 2
    assert [kept_of(installed, each) for each in sleepers] == known
    for each in sleepers:
        installed.data("PATCH", f"/proxies/{each['id']}", {"sleep_after": 10_000})
        assert status_of(each, origin) in (502, 503)
        upstreams = installed.data("GET", f"/proxies/{each['id']}")["proxy"]["runtime"]["upstreams"]
        assert [(upstream["state"], upstream["failures"] > 1) for upstream in upstreams] == [("down", True)]


def kept_of(product: Product, proxy: dict[str, Any]) -> bytes:
    """What the processes of a proxy that sleeps have left about its upstreams; the file is sparse."""
    with open(product.run_dir / "state" / f"{proxy['id']}.upstreams", "rb") as file:
        return file.read(16_384)


def status_of(proxy: dict[str, Any], origin: Origin) -> int:
    with Client(proxy["port"]) as client:
        return client.get(origin.url("/hello"), "Connection: close").status


def state_of(product: Product, proxy: dict[str, Any]) -> str:
    return str(product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["runtime"]["state"])


def running_workers(product: Product, proxy: dict[str, Any], but: set[int]) -> set[int] | None:
    """The pids once two workers run, none of them one of `but`."""
    runtime = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["runtime"] or {}
    pids = {each["pid"] for each in runtime.get("workers", ()) if each["state"] == "running"}
    return pids if len(pids) == 2 and not pids & but else None


def requests_of(product: Product, proxy: dict[str, Any]) -> int:
    return int(product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["stats"]["total_requests"])


def records_of(product: Product, proxy: dict[str, Any]) -> int:
    return int(product.data("GET", f"/logs?proxy_id={proxy['id']}&limit=1")["total"])


def running_elsewhere(product: Product, proxy: dict[str, Any], than: int) -> dict[str, Any] | None:
    detail: dict[str, Any] = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]
    runtime = detail["runtime"]
    return detail if runtime["state"] == "running" and runtime["pid"] != than else None


def test_a_program_that_would_not_start_is_not_taken_and_the_older_goes_on(installed: Upgraded, origin: Origin) -> None:
    proxy, version = installed.proxy(), installed.version
    family = {process.pid for process in installed.lasting()}
    release = installed.directory / f"release-{installed.install_next()}"
    (release / "actors" / "forwarding" / "actor.py").write_text("this is no Python")  # a module that is never compiled
    with knocking_at(installed, origin, proxy) as knocking:
        done = installed.upgrade()
    assert done.returncode == 1
    assert "not upgraded, the older program goes on" in done.stderr
    assert "actors.forwarding.actor" in done.stderr
    assert knocking.failures == []
    assert installed.version == version
    wait_until(lambda: {process.pid for process in installed.lasting()} == family, "nothing of the trial is left")


def test_a_configuration_that_the_new_program_refuses_or_that_needs_a_restart_is_said_by_its_key(
    installed: Upgraded,
) -> None:
    version, other = installed.version, installed.directory / "other"
    installed.install_next()
    for text, said in (
        (installed.based("[server]\ndrain_timeout = -1\n"), "server.drain_timeout"),
        (installed.based(data_dir=other), "data_dir: changed, which needs a restart"),
    ):
        installed.configure(text)
        done = installed.upgrade()
        assert done.returncode == 1
        assert said in done.stderr
        assert installed.version == version
    assert not other.exists()


def kept(pid: int) -> Counter[str]:
    """How many descriptors a process has of the kinds that are handed on at an upgrade, or watch what was."""
    links = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # it was closed meanwhile
            links.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return Counter(kind for link in links for kind in ("pipe:", "[pidfd]", "/lock") if kind in link)


def shown_settings(product: Product) -> dict[str, bytes]:
    """The environments that have a setting or a secret that was given to the product."""
    found = environments(product)
    assert "zygote" in found
    return {name: text for name, text in found.items() if b"TIMEOUT=77" in text or PASSWORD.encode() in text}


def older(product: Product) -> dict[str, Any] | None:
    found: dict[str, Any] | None = product.data("GET", "/status")["server"]["older_processes"]
    return found


def test_what_is_open_at_an_upgrade_goes_on_for_its_time_is_counted_and_is_cut_with_a_reason_of_its_own(
    installed: Upgraded, origin: Origin
) -> None:
    """Through two of them, to pure modules and back to compiled ones, where there are any."""
    installed.configure(installed.based("[server]\ndrain_timeout = 1\nupgrade_drain = 600\n"))
    proxy = installed.proxy(settings=PATIENT)
    target = origin.url("/hello").split("/")[2]
    old = proxy["runtime"]["pid"]
    with Client(proxy["port"]) as tunnel, Client(proxy["port"]) as other:
        tunnel.connect(target)
        other.connect(target)
        with knocking_at(installed, origin, proxy) as knocking:
            for pure in (True, False):
                version = installed.install_next(pure=pure)
                assert installed.upgrade().returncode == 0
                assert installed.version == version
                assert installed.data("GET", "/status")["server"]["compiled"] is (runs_compiled() and not pure)
                knocking.wait_for_more()
        assert knocking.failures == []
        counted = {"connections": 2, "processes": 1}
        wait_until(lambda: counted.items() <= (older(installed) or {}).items(), "what is older is counted")
        listed = installed.data("GET", f"/proxies/{proxy['id']}/connections")["connections"]
        assert len(listed) == 2
        installed.data("DELETE", f"/proxies/{proxy['id']}/connections/{listed[0]['id']}")
        wait_until(lambda: (found := older(installed)) and found["connections"] == 1, "one was ended")
        assert not ended(old)
        began = time.monotonic()
        assert installed.stop() == 0
        assert time.monotonic() - began < 60  # of the stop's time, not of the upgrade's
        assert ended(old)
    assert "the time to drain is over: 1 connections are cut" in installed.log


def opened(proxy: dict[str, Any], port: int) -> Client | None:
    """A tunnel to this port; None when it was refused."""
    client = Client(proxy["port"])
    if client.connect(f"127.0.0.1:{port}").startswith(b"HTTP/1.1 200 "):
        return client
    client.socket.close()
    return None


def holds(sock: socket.socket) -> None:
    """An origin that sends nothing, and ends with its client."""
    with sock:
        sock.settimeout(None)
        while sock.recv(1000):
            continue


def test_what_is_open_at_the_former_program_counts_for_limits_after_an_upgrade_and_ends_when_all_is_to_end_at_once(
    installed: Upgraded,
) -> None:
    with ScriptedOrigin(holds) as origin, ExitStack() as stack:
        proxy = installed.proxy(workers=2, settings=PATIENT)
        limited(installed, proxy, connections_per_client=4)
        before = all_run(installed, proxy, 2)
        kept = [client for _ in range(3) if (client := opened(proxy, origin.port)) is not None]
        assert len(kept) == 3
        for each in kept:
            stack.enter_context(each)
        installed.install_next()
        assert installed.upgrade().returncode == 0
        wait_until(lambda: not set(before) & set(all_run(installed, proxy, 2)), "both have successors")
        more = [client for _ in range(6) if (client := opened(proxy, origin.port)) is not None]
        for each in more:
            stack.enter_context(each)
        assert len(more) == 1
        kept[0].socket.close()
        wait_until(
            lambda: (client := opened(proxy, origin.port)) and not client.socket.close(), "a place is free again"
        )
        assert not all(map(ended, before))
        installed.process.send_signal(signal.SIGTERM)
        installed.process.send_signal(signal.SIGINT)  # another one: at once, whatever drains
        assert installed.process.wait(60) == 1
        wait_until(lambda: all(map(ended, before)), "the predecessors have ended")
        assert [each.rest() for each in kept[1:]] == [b""] * 2


def environments(product: Product) -> dict[str, bytes]:
    """The environment of each process of the product, by the process's name."""
    found = {}
    for each in (psutil.Process(product.pid), *product.processes()):
        with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):  # one of a few moments has ended
            found[each.name()] = Path(f"/proc/{each.pid}/environ").read_bytes()
    return found


def test_where_nothing_runs_an_upgrade_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "supervisor", "upgrade", "--run-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"nothing runs in {tmp_path}" in done.stderr


class Secured(Installed):
    """The API of this one speaks TLS."""

    def __init__(self, folder: Path) -> None:
        cert, key = make_pair(folder)
        super().__init__(config=f'[server.tls]\nenabled = true\ncert_file = "{cert}"\nkey_file = "{key}"\n')
        self.base_url = f"https://127.0.0.1:{self.port}"
        self.session.verify = False

    def call(self) -> None:
        """A new TLS connection, and one request on it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", self.port), PATIENCE) as plain,
            context.wrap_socket(plain) as client,
        ):
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_the_api_behind_tls_fails_no_request_while_it_is_upgraded(tmp_path: Path) -> None:
    with Secured(tmp_path) as installed, Knocking(installed.call) as knocking:
        installed.install("2.0.0")
        os.kill(installed.pid, signal.SIGUSR2)
        wait_until(lambda: installed.version == "2.0.0", "it is the new program")
        knocking.wait_for_more()
    assert knocking.failures == []
