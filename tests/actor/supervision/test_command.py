"""The command line: what is refused at the start, and with what words; what the first start says."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

import supervisor
from actors.supervision.systemd import notify, watchdog_period
from api.cli.application import application, run
from api.cli.local import serve
from api.process import ApiStart
from config import OperatorError
from config.files import paths
from config.files.paths import PathError, default_run_dir, open_data_dir, open_run_dir, private_directory
from tests.kit.folders import FOLDERS
from tests.kit.ports import free_port
from tests.kit.product import Product
from tests.kit.tables import table
from tests.kit.trails import opened_trail
from tests.kit.wait import wait_until


def proxyfleet(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PROXYFLEET_")}
    command = [sys.executable, "-m", "supervisor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, env={**clean, **env})


class Ran(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


Here = Callable[..., Ran]


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    """Runs a command line in this process, which costs no start of an interpreter."""
    for name in [each for each in os.environ if each.startswith("PROXYFLEET_")]:
        monkeypatch.delenv(name)

    def command(*arguments: str) -> Ran:
        status = run(application(arguments), arguments)
        return Ran(status, *capsys.readouterr())

    return command


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder:
        yield Path(folder)


def test_version() -> None:
    assert proxyfleet("version").stdout.startswith("proxyfleet ")


def test_check_config_names_every_bad_key_value_and_what_is_allowed(here: Here, short: Path) -> None:
    file = short / "config.toml"
    file.write_text('[server]\nport = 70000\nprot = 1\n[logging]\nlevel = "loud"\n')
    checked = here("check-config", "--config", str(file))
    assert checked.returncode == 1
    for words in ("server.port", "70000", "65535", "server.prot: unknown key", "logging.level", "'loud'", "warning"):
        assert words in checked.stderr
    file.write_text("[server]\nport = 8081\n")
    assert here("check-config", "--config", str(file)).returncode == 0


def test_the_audit_trail_is_verified_with_its_exit_status_and_the_row_that_is_wrong(here: Here, short: Path) -> None:
    data = open_data_dir(short / "data")
    with opened_trail(data) as trail:
        trail.append("proxy.created")
        trail.append("proxy.deleted")
    whole = here("audit", "verify", "--data-dir", str(data.path))
    assert (whole.returncode, whole.stderr) == (0, "")
    head = whole.stdout.split()[-1]
    assert head.startswith("2:")
    with sqlite3.connect(data.fleet) as database:
        database.execute("DROP TRIGGER audit_is_not_altered")
        database.execute("UPDATE audit SET content = replace(content, 'created', 'updated')")
    database.close()
    broken = here("audit", "verify", "--data-dir", str(data.path), "--head", head)
    assert broken.returncode == 1
    assert "row 1 its content doesn't go with its hash" in broken.stderr
    elsewhere = here("audit", "verify", "--data-dir", str(short / "nowhere"))
    assert (elsewhere.returncode, "no audit trail here" in elsewhere.stderr) == (1, True)


@table(
    ("line", "starts"),
    [
        ("serve", True),
        ("serve --port 8080", True),
        ("serve --check --port 8080", False),
        ("serve --help", False),
        ("serve -h", False),
        ("", False),
        ("version", False),
        ("proxies list --name serve", False),
    ],
)
def test_a_start_of_the_product_begins_with_a_zygote(line: str, starts: bool) -> None:
    assert supervisor._starts_product(line.split()) is starts


def processes_with(mark: str) -> list[psutil.Process]:
    """Those that have this in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and mark in process.environ():
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@table(
    ("arguments", "env", "words"),
    [
        ([], {"PROXYFLEET_SEVER__PORT": "1"}, "PROXYFLEET_SEVER__PORT: unknown key"),
        (["--host", "192.0.2.1"], {}, "server.host: 192.0.2.1 is not an address of this machine"),
    ],
)
def test_a_bad_start_is_refused_with_the_key_and_leaves_no_process(
    short: Path, arguments: list[str], env: dict[str, str], words: str
) -> None:
    mark = f"MARK_{secrets.token_hex(8)}"
    places = {"PROXYFLEET_DATA_DIR": str(short / "data"), "PROXYFLEET_RUN_DIR": str(short / "run")}
    given = {"PROXYFLEET_SERVER__PORT": str(free_port()), **places, **env, mark: "1"}
    refused = proxyfleet("serve", *arguments, **given)
    assert refused.returncode == 1, refused.stderr
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr
    wait_until(lambda: not processes_with(mark), "none is left")


def test_a_run_directory_too_long_for_sockets_and_a_password_too_short_are_refused(short: Path) -> None:
    with pytest.raises(PathError, match="too long"):
        open_run_dir(short / ("x" * 100))
    start = ApiStart()
    start.read(str(open_data_dir(short / "data").path))
    with pytest.raises(OperatorError, match="admin_password: "):
        start.make_administrator("short")


def test_a_start_that_is_killed_leaves_no_process(short: Path) -> None:
    mark = f"MARK_{secrets.token_hex(8)}"
    places = ("--data-dir", str(short / "d"), "--run-dir", str(short / "r"))
    command = [sys.executable, "-m", "supervisor", "serve", *places]
    with subprocess.Popen(command, env={**os.environ, mark: "1"}, stderr=subprocess.DEVNULL) as started:
        children = psutil.Process(started.pid).children
        wait_until(children, "the zygote is started")
        started.kill()
    wait_until(lambda: not processes_with(mark), "none is left")


@pytest.fixture(scope="module")
def product() -> Iterator[Product]:
    """One that was given no password, and a configuration file."""
    made = Product(config="[logging]\nlevel = 'info'\n")
    made.environment = lambda: {  # type: ignore[method-assign]
        name: value for name, value in Product.environment(made).items() if name != "PROXYFLEET_ADMIN_PASSWORD"
    }
    with made:
        yield made


@pytest.mark.product
def test_the_first_start_makes_a_password_that_only_the_terminal_and_a_private_file_have(product: Product) -> None:
    file = product.data_dir / "initial-admin-password"
    password = file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert password not in product.log
    assert f"password in {file}" in product.log
    wait_until(lambda: "is running" in product.log, "the greeting")
    assert f"http://127.0.0.1:{product.port}/ui/" in product.log
    health = product.session.get(f"{product.base_url}/api/v1/health", auth=("admin", password), timeout=60)
    assert health.status_code == 200
    kept = [path for place in (product.data_dir, product.run_dir) for path in (place, *place.rglob("*"))]
    assert {path for path in kept if _is_open_to_others(path)} == set()


def _is_open_to_others(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False  # a file of a moment
    return stat.S_IMODE(found.st_mode) != (0o700 if stat.S_ISDIR(found.st_mode) else 0o600)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_password_of_the_first_start_is_printed_on_a_terminal_alone(
    short: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    master, slave = os.openpty() if terminal else os.pipe()
    with os.fdopen(slave, "w") as out, os.fdopen(master, "rb", buffering=0) as seen:
        monkeypatch.setattr(sys, "stdout", out)
        serve._show_password(open_data_dir(short / "data"), "made-up-password")
        said = seen.read(4096)
    assert (b"made-up-password" in said) == terminal
    assert b"initial-admin-password" in said


@pytest.mark.product
def test_a_second_start_says_who_holds_the_data_and_a_taken_port_is_named(product: Product) -> None:
    env = {"PROXYFLEET_RUN_DIR": str(product.directory / "r2"), "PROXYFLEET_DATA_DIR": str(product.data_dir)}
    second = proxyfleet("serve", "--port", str(product.free_port()), **env)
    assert (second.returncode, f"in use by process {product.pid}" in second.stderr) == (1, True)
    env["PROXYFLEET_DATA_DIR"] = str(product.directory / "d2")
    third = proxyfleet("serve", "--port", str(product.port), **env)
    assert third.returncode == 1
    assert f"server.port: port {product.port} on 127.0.0.1 is already in use" in third.stderr


@pytest.mark.product
def test_sighup_takes_a_good_file_over_and_a_bad_one_changes_nothing(product: Product) -> None:
    for text, words in (("[logging]\nlevel = 'loud'\n", "reload failed"), ("", "read again")):
        product.configure(text)
        os.kill(product.pid, signal.SIGHUP)
        wait_until(lambda words=words: words in product.log, words)  # type: ignore[misc]
    assert product.session.get(f"{product.base_url}/health", timeout=60).status_code == 200


def test_the_service_manager_is_notified_when_there_is_one(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(short / "notify"))
        manager.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(short / "notify"))
        notify("READY=1", "STATUS=fine")
        assert manager.recv(100) == b"READY=1\nSTATUS=fine"


@pytest.mark.parametrize(("usec", "pid", "period"), [("3000000", "", 1.5), ("", "", None), ("3000000", "1", None)])
def test_the_watchdog_is_fed_twice_per_period(
    monkeypatch: pytest.MonkeyPatch, usec: str, pid: str, period: float | None
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.setenv("WATCHDOG_PID", pid or str(os.getpid()))
    assert watchdog_period() == period


def test_a_shared_directory_is_not_made_private_and_an_empty_sticky_one_is(short: Path) -> None:
    shared = short / "shared"
    shared.mkdir()
    (shared / "not_ours").touch()
    shared.chmod(0o1777)
    with pytest.raises(PathError, match="shared"):
        private_directory(shared)
    (shared / "not_ours").unlink()
    assert private_directory(shared).stat().st_mode & 0o7777 == 0o700


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """No service, no session."""
    for variable in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def unprivileged(short: Path, unset: None, monkeypatch: pytest.MonkeyPatch) -> None:  # in this order
    """A user who may not write in /run."""
    (short / "tmp").mkdir()
    monkeypatch.setattr(paths, "SYSTEM_RUN", short / "missing")
    monkeypatch.setattr(tempfile, "tempdir", str(short / "tmp"))


def test_the_default_run_directory_of_root_is_below_run(unset: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "access", lambda path, _mode: path == Path("/run"))
    one = default_run_dir(Path("/data/one"))
    assert one.parent == Path("/run")
    assert one == default_run_dir(Path("/data/one"), make=True)
    assert one != default_run_dir(Path("/data/two"))
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/proxyfleet")
    assert default_run_dir(Path("/data/one")) == Path("/run/proxyfleet")


def test_the_default_run_directory_is_found_again_and_its_name_can_not_be_foreseen(
    short: Path, unprivileged: None
) -> None:
    one, two = short / "one", short / "two"
    for each in (one, two):
        each.mkdir()
    assert default_run_dir(one) == one / "run"  # nothing has run there yet
    assert not os.path.lexists(one / "run")
    made = default_run_dir(one, make=True)
    assert made.stat().st_mode & 0o7777 == 0o700
    assert made == default_run_dir(one) == default_run_dir(one, make=True)
    assert made != default_run_dir(two, make=True)
    assert len(os.fsencode(made.name)) < 24
    made.rmdir()
    assert default_run_dir(one, make=True) not in (made, one / "run")


@pytest.mark.parametrize("taken", ["a link", "a file", "another user's"])
def test_a_run_directory_that_another_user_has_taken_is_left_to_them(
    short: Path, unprivileged: None, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    before = default_run_dir(short, make=True)
    if taken == "another user's":
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
    else:
        before.rmdir()
        before.symlink_to(short) if taken == "a link" else before.touch()
    assert default_run_dir(short, make=True) != before
