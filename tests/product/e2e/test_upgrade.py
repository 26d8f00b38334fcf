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
from contextlib import suppress
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
from tests.kit.steady_load import PATIENCE, Knocking, by_tunnel, of_api, through_proxy
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product

PATIENT = {"timeout": 600}
"""Of a proxy whose tunnel is idle while the program is replaced, which may take a slow machine half a minute."""


@pytest.fixture
def installed() -> Iterator[Installed]:
    with Installed(env={"PROXYFLEET_SERVER__DRAIN_TIMEOUT": "60"}) as running:
        yield running


def knocking_at(product: Product, origin: Origin, proxy: dict[str, Any]) -> Knocking:
    url = origin.url("/hello")
    port = proxy["port"]
    return Knocking(through_proxy(port, url), by_tunnel(port, url.split("/")[2]), of_api(product.port))


def ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_an_upgrade_under_load_refuses_fails_and_cuts_nothing(installed: Installed, origin: Origin) -> None:
    proxy = installed.proxy(settings=PATIENT)
    first, old = installed.pid, proxy["runtime"]["pid"]
    target = origin.url("/hello").split("/")[2]
    history = installed.data("GET", "/revisions")["revisions"]
    with Client(proxy["port"]) as tunnel:
        tunnel.connect(target)
        with knocking_at(installed, origin, proxy) as knocking:
            installed.install("2.0.0")
            done = installed.upgrade()
            text = "older connections drain for up to 3600 s, proxyfleet status counts them."
            assert (done.returncode, done.stdout) == (0, f"Upgraded from 1.0.0 to 2.0.0; {text}\n")
            knocking.wait_for_more()
            tunnel.send(f"GET /hello HTTP/1.1\r\nHost: {target}\r\n\r\n")
            assert tunnel.answer().status == 200
        assert knocking.failures == []
    assert (installed.pid, installed.version) == (first, "2.0.0")
    assert installed.data("GET", "/revisions")["revisions"] == history
    made = sum(knocking.counts[:2]) + 1  # the third calls the API; and the tunnel that stayed
    wait_until(lambda: requests_of(installed, proxy) == made, "every request is counted once, before and after")
    wait_until(lambda: records_of(installed, proxy) == made, "every request has its record")
    new = wait_until(lambda: running_elsewhere(installed, proxy, old), "the proxy runs in a process of the new program")
    assert new["runtime"]["restarts"] == 0
    wait_until(lambda: ended(old), "the older process has ended, since its last tunnel has")
    assert {process.name() for process in installed.lasting()} >= {"zygote", "api", "metrics", "logs", "webhooks"}


def test_an_upgrade_of_a_proxy_with_two_workers_at_many_ports_refuses_and_fails_nothing(
    installed: Installed, origin: Origin
) -> None:
    ports = free_ports(300)
    proxy = {**installed.proxy(workers=2, port=str(ports)), "port": ports.last}
    before = wait_until(lambda: running_workers(installed, proxy, set()), "both workers run")
    with knocking_at(installed, origin, proxy) as knocking:
        installed.install("2.0.0")
        assert installed.upgrade().returncode == 0
        knocking.wait_for_more()
        wait_until(lambda: running_workers(installed, proxy, before), "both run in the new program")
        knocking.wait_for_more()
    assert knocking.failures == []
    wait_until(lambda: all(map(ended, before)), "the older processes have ended")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_proxy_that_sleeps_through_an_upgrade_knows_then_what_it_knew_before(
    installed: Installed, origin: Origin, workers: int
) -> None:
    """That a pack is used is tested elsewhere: what is in it counts for a minute, and an upgrade may take longer."""
    proxy = installed.proxy(sleep_after=1, workers=workers, limits={"requests_per_minute": 1000})
    assert status_of(proxy, origin) == 200
    wait_until(lambda: state_of(installed, proxy) == "sleeping", "it sleeps")
    before = packs_of(installed, proxy)
    assert before
    installed.install("2.0.0")
    assert installed.upgrade().returncode == 0
    assert (installed.version, state_of(installed, proxy)) == ("2.0.0", "sleeping")
    assert packs_of(installed, proxy) == before
    installed.data("PATCH", f"/proxies/{proxy['id']}", {"sleep_after": 10_000})
    assert status_of(proxy, origin) == 200
    assert packs_of(installed, proxy) == {}


def packs_of(product: Product, proxy: dict[str, Any]) -> dict[str, bytes]:
    """What the processes of a proxy that sleeps have left, by file."""
    return {path.name: path.read_bytes() for path in (product.run_dir / "workers" / proxy["id"]).glob("asleep.*")}


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


@pytest.mark.skipif(not runs_compiled(), reason="nothing is compiled here")
def test_an_upgrade_between_compiled_and_pure_is_one_like_any_other(installed: Installed, origin: Origin) -> None:
    proxy = installed.proxy()
    with knocking_at(installed, origin, proxy) as knocking:
        for version, pure in (("2.0.0", True), ("3.0.0", False)):
            installed.install(version, pure=pure)
            done = installed.upgrade()
            assert done.returncode == 0, done.stderr
            knocking.wait_for_more()
            assert installed.version == version
            assert installed.data("GET", "/status")["server"]["compiled"] is not pure
        assert knocking.failures == []


def requests_of(product: Product, proxy: dict[str, Any]) -> int:
    return int(product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["stats"]["total_requests"])


def records_of(product: Product, proxy: dict[str, Any]) -> int:
    return int(product.data("GET", f"/logs?proxy_id={proxy['id']}&limit=1")["total"])


def running_elsewhere(product: Product, proxy: dict[str, Any], than: int) -> dict[str, Any] | None:
    detail: dict[str, Any] = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]
    runtime = detail["runtime"]
    return detail if runtime["state"] == "running" and runtime["pid"] != than else None


def test_a_program_that_would_not_start_is_not_taken_and_the_older_goes_on(
    installed: Installed, origin: Origin
) -> None:
    proxy = installed.proxy()
    family = {process.pid for process in installed.lasting()}
    release = installed.install("2.0.0")
    (release / "actors" / "forwarding" / "actor.py").write_text("this is no Python")  # a module that is never compiled
    with knocking_at(installed, origin, proxy) as knocking:
        done = installed.upgrade()
    assert done.returncode == 1
    assert "not upgraded, the older program goes on" in done.stderr
    assert "actors.forwarding.actor" in done.stderr
    assert knocking.failures == []
    assert installed.version == "1.0.0"
    wait_until(lambda: {process.pid for process in installed.lasting()} == family, "nothing of the trial is left")


def test_a_configuration_that_the_new_program_refuses_is_said_by_its_key(origin: Origin) -> None:
    with Installed(config="[server]\ndrain_timeout = 60\n") as installed:
        (installed.directory / "config.toml").write_text("[server]\ndrain_timeout = -1\n")
        command = [str(installed.program), "upgrade", "--run-dir", str(installed.run_dir)]
        done = subprocess.run(command, env=installed.environment(), capture_output=True, text=True, timeout=300)
        assert done.returncode == 1
        assert "server.drain_timeout" in done.stderr
        assert installed.version == "1.0.0"


def test_sigusr2_upgrades_too_and_takes_the_configuration_as_it_is_now(origin: Origin) -> None:
    with Installed(config="[server]\ndrain_timeout = 60\n") as installed:
        proxy = installed.proxy()
        installed.install("2.0.0")
        with knocking_at(installed, origin, proxy) as knocking:
            os.kill(installed.pid, signal.SIGUSR2)
            wait_until(lambda: installed.version == "2.0.0", "it is the new program")
        assert knocking.failures == []
        live_figures(installed, proxy, lambda figures: figures.get("name") == proxy["name"])


def kept(pid: int) -> Counter[str]:
    """How many descriptors a process has of the kinds that are handed on at an upgrade, or watch what was."""
    links = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # it was closed meanwhile
            links.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return Counter(kind for link in links for kind in ("pipe:", "[pidfd]", "/lock") if kind in link)


def test_upgrades_one_after_the_other_leave_nothing_behind(installed: Installed, origin: Origin) -> None:
    proxy = installed.proxy()
    wait_until(lambda: set(installed.processes()) == set(installed.lasting()), "nothing runs for a moment only")
    before = kept(installed.pid)
    with knocking_at(installed, origin, proxy) as knocking:
        for version in ("2.0.0", "3.0.0"):
            installed.install(version)
            assert installed.upgrade().returncode == 0, installed.log
    assert knocking.failures == []
    assert installed.version == "3.0.0"
    names = ["api", "logs", "metrics", "resolver", "webhooks", "zygote", f"fwd-{proxy['id'][-8:]}"]
    wait_until(lambda: sorted(each.name() for each in installed.lasting()) == sorted(names), "predecessors have ended")
    wait_until(lambda: kept(installed.pid) == before, "as many descriptors as before")


def older(product: Product) -> dict[str, Any] | None:
    found: dict[str, Any] | None = product.data("GET", "/status")["server"]["older_processes"]
    return found


def test_what_is_open_at_an_upgrade_goes_on_for_its_time_is_counted_and_is_cut_with_a_reason_of_its_own(
    origin: Origin,
) -> None:
    env = {"PROXYFLEET_SERVER__DRAIN_TIMEOUT": "1", "PROXYFLEET_SERVER__UPGRADE_DRAIN": "600"}
    with Installed(env=env) as installed:
        proxy = installed.proxy(settings=PATIENT)
        target = origin.url("/hello").split("/")[2]
        old = proxy["runtime"]["pid"]
        with Client(proxy["port"]) as tunnel, Client(proxy["port"]) as other:
            tunnel.connect(target)
            other.connect(target)
            for version in ("2.0.0", "3.0.0"):
                installed.install(version)
                assert installed.upgrade().returncode == 0
            counted = wait_until(lambda: (found := older(installed)) and found["connections"] == 2 and found, "counted")
            assert counted["processes"] == 1
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


def test_a_stop_after_an_upgrade_ends_the_predecessors_too(installed: Installed, origin: Origin) -> None:
    proxy = installed.proxy(settings=PATIENT)
    target = origin.url("/hello").split("/")[2]
    old = proxy["runtime"]["pid"]
    with Client(proxy["port"]) as tunnel:
        tunnel.connect(target)
        assert installed.upgrade().returncode == 0
        assert not ended(old)
        installed.process.send_signal(signal.SIGTERM)
        installed.process.send_signal(signal.SIGINT)  # another one: at once, whatever drains
        assert installed.process.wait(60) == 1
        wait_until(lambda: ended(old), "the predecessor has ended")
        assert tunnel.rest() == b""


def environments(product: Product) -> dict[str, bytes]:
    """The environment of each process of the product, by the process's name."""
    found = {}
    for each in (psutil.Process(product.pid), *product.processes()):
        with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):  # one of a few moments has ended
            found[each.name()] = Path(f"/proc/{each.pid}/environ").read_bytes()
    return found


def test_the_environment_shows_no_settings_before_an_upgrade_nor_after_it(installed: Installed) -> None:
    for version in ("1.0.0", "2.0.0"):
        if version != installed.version:
            installed.install(version)
            assert installed.upgrade().returncode == 0, installed.log
        detail = environments(installed)
        assert "zygote" in detail
        assert {name: text for name, text in detail.items() if b"TIMEOUT=60" in text or PASSWORD.encode() in text} == {}
    assert installed.stop() == 0
    assert "draining for up to 60 s" in installed.log  # what was given is in force all the same


def test_where_nothing_runs_an_upgrade_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "supervisor", "upgrade", "--run-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"nothing runs in {tmp_path}" in done.stderr


class Elsewhere(Installed):
    """Its data directory is in the configuration file, and not on the command line."""

    def command(self) -> list[str]:
        command = super().command()
        place = command.index("--data-dir")
        return command[:place] + command[place + 2 :]

    def configure(self, data_dir: Path) -> None:
        self._config = f'data_dir = "{data_dir}"\n'
        (self.directory / "config.toml").write_text(self._config)


def test_a_data_directory_that_moved_needs_a_restart_and_is_said_so() -> None:
    installed = Elsewhere()
    installed.configure(installed.data_dir)
    with installed:
        installed.configure(installed.directory / "other")
        done = installed.upgrade()
        assert done.returncode == 1
        assert "data_dir: changed, which needs a restart" in done.stderr
        assert not (installed.directory / "other").exists()
        assert installed.version == "1.0.0"


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
    with Secured(tmp_path) as installed, Knocking(*[installed.call] * 4) as knocking:
        installed.install("2.0.0")
        os.kill(installed.pid, signal.SIGUSR2)
        wait_until(lambda: installed.version == "2.0.0", "it is the new program")
        knocking.wait_for_more()
    assert knocking.failures == []
