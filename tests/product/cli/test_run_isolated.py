"""`proxyfleet run --isolate` with a whole product: programs that people use, and what is left of their attempts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.certificates import make_pair
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.cli.jobs import ELSEWHERE, PYTHON, Packages, needs_namespaces, packages_in
from tests.product.cli.shell import Ran, Shell
from tests.product.e2e.foreign.programs import needs
from tests.product.e2e.repositories import make_repository

pytestmark = [pytest.mark.product, needs_namespaces]


@pytest.fixture
def packages(tmp_path: Path) -> Iterator[Packages]:
    with packages_in(tmp_path / "site") as site:
        yield site


@pytest.fixture
def fenced(product: Product) -> Iterator[dict[str, Any]]:
    """A proxy that wants credentials, and an account for it: `username` and the proxy's `name`."""
    made = product.proxy(auth={"enabled": True})
    account = product.data("POST", "/accounts", {"username": f"job-{made['port']}"})["account"]
    yield {"username": account["username"], "name": made["name"], "port": made["port"], "account": account["id"]}
    product.api("DELETE", f"/accounts/{account['id']}")
    product.api("DELETE", f"/proxies/{made['id']}")


def isolated(shell: Shell, fenced: dict[str, Any], *command: str, options: tuple[str, ...] = ("--quiet",)) -> Ran:
    given = ("--account", fenced["username"], "--proxy", fenced["name"], "--isolate")
    return shell.process("run", *given, *options, "--", *command)


@needs("curl")
def test_curl_fetches_by_the_proxy_and_by_no_other_way(
    shell: Shell, fenced: dict[str, Any], packages: Packages
) -> None:
    url = f"{packages.url}/hello"
    assert isolated(shell, fenced, "curl", "-sS", url).out == "hello\n"
    assert isolated(shell, fenced, "curl", "-sS", "--noproxy", "*", url).status == 7  # it could not connect
    assert isolated(shell, fenced, "env", "-i", "/usr/bin/curl", "-sS", url).status == 7


@needs("git")
@needs("npm")
def test_git_clones_pip_downloads_and_npm_installs(
    shell: Shell, fenced: dict[str, Any], packages: Packages, tmp_path: Path
) -> None:
    commit = make_repository(tmp_path / "work", packages.folder / "project.git")
    packages.add_wheel()
    packages.add_npm_package()
    pip = f"{sys.executable} -m pip --disable-pip-version-check --no-cache-dir download --no-deps"
    npm = f"npm install --no-audit --no-fund --registry {packages.url} --cache {tmp_path}/cache --prefix {tmp_path}"
    lines = (
        f"git clone -q {packages.url}/project.git {tmp_path}/clone",
        f"{pip} --index-url {packages.url}/simple --trusted-host {ELSEWHERE} -d {tmp_path}/got tiny-thing",
        f"{npm} tiny-thing",
    )
    ran = isolated(shell, fenced, "sh", "-ec", "\n".join(lines))
    assert ran.status == 0, ran.err
    head = subprocess.run(["git", "-C", tmp_path / "clone", "rev-parse", "HEAD"], capture_output=True, text=True)
    assert head.stdout.strip() == commit
    assert (tmp_path / "clone").stat().st_uid == os.geteuid()
    assert [each.name for each in (tmp_path / "got").iterdir()] == ["tiny_thing-1.0-py3-none-any.whl"]
    assert (tmp_path / "node_modules" / "tiny-thing" / "index.js").read_text() == "module.exports = 1"


@needs("curl")
def test_https_and_socks_proxies_are_reached_without_tls_and_as_socks(
    product: Product, shell: Shell, packages: Packages, tmp_path: Path
) -> None:
    certificate, key = make_pair(tmp_path)
    kinds = {"https": {"tls": {"cert_file": certificate, "key_file": key}}, "socks5": {}}
    for protocol, fields in kinds.items():
        made = product.proxy(protocol=protocol, auth={"enabled": True}, **fields)
        account = product.data("POST", "/accounts", {"username": f"job-{made['port']}"})["account"]
        fenced = {"username": account["username"], "name": made["name"]}
        trust = ("--proxy-ca", certificate) if protocol == "https" else ()
        ran = isolated(shell, fenced, "curl", "-sS", f"{packages.url}/hello", options=("--quiet", *trust))
        assert (ran.status, ran.out) == (0, "hello\n"), ran.err
        product.api("DELETE", f"/accounts/{account['id']}")
        product.api("DELETE", f"/proxies/{made['id']}")


@needs("curl")
def test_what_was_refused_is_printed_and_the_credential_is_gone(
    product: Product, shell: Shell, fenced: dict[str, Any], packages: Packages
) -> None:
    options = ("--allow", "allowed.example")
    ran = isolated(shell, fenced, "curl", "-sS", "-o", "/dev/null", f"{packages.url}/hello", options=options)
    assert ELSEWHERE in ran.err
    credentials = product.data("GET", f"/accounts/{fenced['account']}/credentials")["credentials"]
    assert [each for each in credentials if each["status"] == "active"] == []


def test_the_key_is_nowhere_in_the_job(shell: Shell, fenced: dict[str, Any], tmp_path: Path) -> None:
    script = f"cat /proc/$PPID/environ >{tmp_path}/outer; env >{tmp_path}/own; exit 3"
    assert isolated(shell, fenced, "sh", "-c", script).status == 3
    assert (tmp_path / "outer").read_bytes() == b""
    own = (tmp_path / "own").read_text()
    assert "PROXYFLEET_" not in own
    assert f"@127.0.0.1:{fenced['port']}" in own


def test_a_signal_to_run_reaches_the_isolated_job(
    product: Product, shell: Shell, fenced: dict[str, Any], tmp_path: Path
) -> None:
    ready, ended = tmp_path / "ready", tmp_path / "ended"
    script = f"trap 'touch {ended}; exit 9' TERM; touch {ready}; while :; do sleep 0.05; done"
    given = ("--account", fenced["username"], "--proxy", fenced["name"], "--isolate", "--quiet")
    command = [sys.executable, "-m", "supervisor", "run", *given, "--", "sh", "-c", script]
    with subprocess.Popen(command, env=shell.env) as running:
        wait_until(ready.exists, "the job runs", 60)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 9
    assert ended.exists()


def test_an_isolated_shell_has_the_terminal_and_its_job_control(shell: Shell, fenced: dict[str, Any]) -> None:
    given = ("--account", fenced["username"], "--proxy", fenced["name"], "--isolate", "--quiet")
    with shell.terminal("run", *given, "--", "bash", "--norc", "-i", PS1="$((1+1))> ") as terminal:
        terminal.until("2> ")
        assert "no job control" not in terminal.text
        terminal.type("sh -c 'echo $((40+1)); read n; echo $((400+n))'\n")
        terminal.until("41")  # it is in the foreground
        terminal.type("\x1a")
        terminal.until("Stopped")
        terminal.type("fg\n")
        terminal.until(lambda text: "read n" in text.rpartition("fg\r\n")[2])
        terminal.type("2\n")
        terminal.until("402")
        terminal.type("exit 17\n")
        assert terminal.end() == 17


def test_a_job_has_no_network_when_run_was_killed(
    shell: Shell, fenced: dict[str, Any], packages: Packages, tmp_path: Path
) -> None:
    ready, killed, ended = (tmp_path / name for name in ("ready", "killed", "ended"))
    fetch = f"curl -sS -o /dev/null {packages.url}/hello 2>/dev/null; echo $?"
    script = f"{fetch} >{ready}.new; mv {ready}.new {ready}; while ! test -e {killed}; do sleep 0.02; done"
    script += f"; {fetch} >{ended}.new; mv {ended}.new {ended}"
    given = ("--account", fenced["username"], "--proxy", fenced["name"], "--isolate", "--quiet")
    command = [sys.executable, "-m", "supervisor", "run", *given, "--", "sh", "-c", script]
    with subprocess.Popen(command, env=shell.env) as running:
        wait_until(ready.exists, "the job has fetched", 60)
        running.kill()
        running.wait(60)
        killed.touch()
        wait_until(ended.exists, "the job has tried again", 60)
    assert ready.read_text() == "0\n"
    assert ended.read_text() == "7\n"  # curl could not connect


def test_where_namespaces_are_forbidden_nothing_runs_and_no_credential_is_made(
    product: Product, shell: Shell, fenced: dict[str, Any], tmp_path: Path
) -> None:
    """In a user namespace whose owner allows no further one."""
    ran = tmp_path / "ran"
    limited = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"'
    command = ["unshare", "--map-root-user", "sh", "-c", limited, "sh", sys.executable, "-m", "supervisor", "run"]
    given = ["--account", fenced["username"], "--proxy", fenced["name"], "--isolate", "--", "touch", str(ran)]
    ended = subprocess.run([*command, *given], env=shell.env, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 125
    assert "user.max_user_namespaces = 0 forbids namespaces" in ended.stderr
    assert not ran.exists()
    assert product.data("GET", f"/accounts/{fenced['account']}/credentials")["credentials"] == []


INSIDE = """
import os, socket, sys, threading, urllib.request
def copy(source, sink):
    while data := source.recv(65536):
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)
def serve():
    while True:
        client = listener.accept()[0]
        relay = socket.socket(socket.AF_UNIX)
        relay.connect(sys.argv[1])
        for pair in ((client, relay), (relay, client)):
            threading.Thread(target=copy, args=pair, daemon=True).start()
listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
threading.Thread(target=serve, daemon=True).start()
print(urllib.request.urlopen(sys.argv[3], timeout=20).read().decode(), end="")
"""


def test_a_container_without_a_network_uses_the_socket(
    shell: Shell, fenced: dict[str, Any], packages: Packages, folder: Path
) -> None:
    """A namespace stands for the container; the program plays the part of socat in it."""
    path = str(folder / "relay.sock")
    container = ("unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    inside = (PYTHON, "-c", INSIDE, path, str(fenced["port"]), f"{packages.url}/hello")
    given = ("--account", fenced["username"], "--proxy", fenced["name"], "--socket", path, "--quiet")
    ran = shell.process("run", *given, "--", *container, *inside)
    assert (ran.status, ran.out) == (0, "hello\n"), ran.err
    assert not Path(path).exists()
