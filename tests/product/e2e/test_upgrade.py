"""`proxyfleet upgrade`: the running product becomes another program, and no client is refused, failed or cut."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit.certificates import make_pair
from tests.kit.folders import ROOT
from tests.kit.http_origins import Origin
from tests.kit.live_metrics import live_figures
from tests.kit.product import PASSWORD, Product
from tests.kit.steady_load import PATIENCE, Knocking, by_tunnel, of_api, through_proxy
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product


class Installed(Product):
    """A product that was installed by a copy of this checkout: `install` puts another version in its place."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.program = self.directory / "current" / "proxyfleet"
        self.install("1.0.0")

    def install(self, version: str) -> Path:
        """Make this the version that starts next; the folder of its code."""
        release = self.directory / f"release-{version}"
        for package in ("actors", "api", "config"):
            shutil.copytree(ROOT / package, release / package)
        shutil.copy(ROOT / "supervisor.py", release)
        with (release / "config" / "__init__.py").open("a") as file:
            file.write(f'\nVERSION = "{version}"\n')
        script = release / "proxyfleet"
        script.write_text(
            f"#!{sys.executable} -P\nimport sys\n\nsys.path.insert(0, {str(release)!r})\n"
            "from supervisor import main\n\nmain()\n"
        )
        script.chmod(0o755)
        fresh = self.directory / "next"
        fresh.symlink_to(release.name)
        fresh.rename(self.directory / "current")
        return release

    def command(self) -> list[str]:
        return [str(self.program), *super().command()[3:]]

    def upgrade(self) -> subprocess.CompletedProcess[str]:
        """The command of the version that is installed now."""
        return subprocess.run(
            [str(self.program), "upgrade", "--data-dir", str(self.data_dir), "--run-dir", str(self.run_dir)],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=90,
        )

    @property
    def version(self) -> str:
        return str(self.data("GET", "/health")["version"])


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
    proxy = installed.proxy()
    first, old = installed.pid, proxy["runtime"]["pid"]
    target = origin.url("/hello").split("/")[2]
    history = installed.data("GET", "/revisions")["revisions"]
    with Client(proxy["port"]) as tunnel:
        tunnel.connect(target)
        with knocking_at(installed, origin, proxy) as knocking:
            installed.install("2.0.0")
            done = installed.upgrade()
            assert (done.returncode, done.stdout) == (0, "Upgraded from 1.0.0 to 2.0.0; older connections drain.\n")
            knocking.wait_for_more()
            tunnel.send(f"GET /hello HTTP/1.1\r\nHost: {target}\r\n\r\n")
            assert tunnel.answer().status == 200
        assert knocking.failures == []
    assert (installed.pid, installed.version) == (first, "2.0.0")
    assert installed.data("GET", "/revisions")["revisions"] == history
    made = sum(knocking.counts[:2]) + 1  # the third calls the API; and the tunnel that stayed
    wait_until(lambda: requests_of(installed, proxy) == made, "every request is counted once, before and after", 30)
    wait_until(lambda: records_of(installed, proxy) == made, "every request has its record", 30)
    new = wait_until(lambda: running_elsewhere(installed, proxy, old), "the proxy runs in a process of the new program")
    assert new["runtime"]["restarts"] == 0
    wait_until(lambda: ended(old), "the older process has ended, since its last tunnel has")
    assert {process.name() for process in installed.processes()} >= {"zygote", "api", "metrics", "logs", "webhooks"}


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
    family = {process.pid for process in installed.processes()}
    release = installed.install("2.0.0")
    (release / "actors" / "forwarding" / "connections" / "client_connection.py").write_text("this is no Python")
    with knocking_at(installed, origin, proxy) as knocking:
        done = installed.upgrade()
    assert done.returncode == 1
    assert "not upgraded, the older program goes on" in done.stderr
    assert "client_connection.py" in done.stderr
    assert knocking.failures == []
    assert installed.version == "1.0.0"
    assert {process.pid for process in installed.processes()} == family


def test_a_configuration_that_the_new_program_refuses_is_said_by_its_key(origin: Origin) -> None:
    with Installed(config="[server]\ndrain_timeout = 60\n") as installed:
        (installed.directory / "config.toml").write_text("[server]\ndrain_timeout = -1\n")
        command = [str(installed.program), "upgrade", "--run-dir", str(installed.run_dir)]
        done = subprocess.run(command, env=installed.environment(), capture_output=True, text=True, timeout=90)
        assert done.returncode == 1
        assert "server.drain_timeout" in done.stderr
        assert installed.version == "1.0.0"


def test_sigusr2_upgrades_too_and_takes_the_configuration_as_it_is_now(origin: Origin) -> None:
    with Installed(config="[server]\ndrain_timeout = 60\n") as installed:
        proxy = installed.proxy()
        installed.install("2.0.0")
        with knocking_at(installed, origin, proxy) as knocking:
            os.kill(installed.pid, signal.SIGUSR2)
            wait_until(lambda: installed.version == "2.0.0", "it is the new program", 60)
        assert knocking.failures == []
        live_figures(installed, proxy, lambda figures: figures.get("name") == proxy["name"])


def kept(pid: int) -> Counter[str]:
    """How many descriptors a process has of the kinds that are handed on at an upgrade, or watch what was."""
    links = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
    return Counter(kind for link in links for kind in ("pipe:", "[pidfd]", "/lock") if kind in link)


def test_upgrades_one_after_the_other_leave_nothing_behind(installed: Installed, origin: Origin) -> None:
    proxy = installed.proxy()
    before = kept(installed.pid)
    with knocking_at(installed, origin, proxy) as knocking:
        for version in ("2.0.0", "3.0.0"):
            installed.install(version)
            assert installed.upgrade().returncode == 0, installed.log
    assert knocking.failures == []
    assert installed.version == "3.0.0"
    names = ["api", "logs", "metrics", "resolver", "webhooks", "zygote", f"fwd-{proxy['id'][-8:]}"]
    wait_until(
        lambda: sorted(each.name() for each in installed.processes()) == sorted(names), "predecessors have ended"
    )
    wait_until(lambda: kept(installed.pid) == before, "as many descriptors as before")


def test_a_stop_after_an_upgrade_ends_the_predecessors_too(installed: Installed, origin: Origin) -> None:
    proxy = installed.proxy()
    target = origin.url("/hello").split("/")[2]
    old = proxy["runtime"]["pid"]
    with Client(proxy["port"]) as tunnel:
        tunnel.connect(target)
        assert installed.upgrade().returncode == 0
        assert not ended(old)
        installed.process.send_signal(signal.SIGTERM)
        installed.process.send_signal(signal.SIGINT)  # another one: at once, whatever drains
        assert installed.process.wait(20) == 1
        wait_until(lambda: ended(old), "the predecessor has ended")
        assert tunnel.rest() == b""


def test_the_environment_shows_no_settings_before_an_upgrade_nor_after_it(installed: Installed) -> None:
    for version in ("1.0.0", "2.0.0"):
        if version != installed.version:
            installed.install(version)
            assert installed.upgrade().returncode == 0, installed.log
        family = (psutil.Process(installed.pid), *installed.processes())
        detail = {each.name(): Path(f"/proc/{each.pid}/environ").read_bytes() for each in family}
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
        wait_until(lambda: installed.version == "2.0.0", "it is the new program", 60)
        knocking.wait_for_more()
    assert knocking.failures == []
