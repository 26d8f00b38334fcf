"""Three nodes on this machine with a PostgreSQL of their own, for who wants to try a fleet: scripts/serve --cluster.

The nodes are at 127.0.0.1 to 127.0.0.3, each with the same port. All data are in a temporary folder, and end with it.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROLES = {"fra1": "full", "fra2": "full", "edge1": "edge"}
"""The nodes by name; the first one makes the fleet."""
OLDEST = 13
"""The oldest PostgreSQL that a fleet can be on."""
PATIENCE = 120.0
"""Seconds in which each step is done."""
MISSING = f"""PostgreSQL {OLDEST} or newer is needed and was not found.
On Debian and Ubuntu: apt-get install postgresql. Elsewhere its programs initdb and postgres have to be on the PATH."""
_RUN_AS: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
"""PostgreSQL refuses to run as root."""


class Failed(Exception):
    """The fleet can't be brought up; the text says why."""


def postgresql_programs(debian: Path = Path("/usr/lib/postgresql")) -> Path:
    """The folder of the newest one's programs: of Debian's packages, else of the PATH. Raises `Failed`."""
    found = [each.parent for each in debian.glob("*/bin/postgres") if int(each.parts[-3]) >= OLDEST]
    if found:
        return max(found, key=lambda each: int(each.parts[-2]))
    on_path = shutil.which("postgres")
    if on_path is None:
        raise Failed(MISSING)
    return Path(on_path).resolve().parent


@contextmanager
def database(folder: Path) -> Iterator[str]:
    """A server for the time of the block, at a Unix socket in `folder` alone: the DSN of its superuser."""
    programs, password = postgresql_programs(), secrets.token_hex(16)
    folder.mkdir(mode=0o700)
    (folder / "password").write_text(password)
    if _RUN_AS:
        try:
            for each in (folder, folder / "password"):
                shutil.chown(each, "postgres", "postgres")
        except LookupError as error:
            raise Failed(f"PostgreSQL does not run as root, and there is no user postgres: {error}") from error
    options = {"user": "postgres", "host": str(folder), "dbname": "postgres", "password": password}
    where = ["-D", str(folder / "data")]
    command = [programs / "initdb", *where, "-A", "scram-sha-256", "-U", "postgres", "-E", "UTF8", "--no-sync"]
    done = subprocess.run(
        [*command, f"--pwfile={folder / 'password'}"], capture_output=True, text=True, cwd="/", **_RUN_AS
    )
    if done.returncode:
        raise Failed(f"PostgreSQL can't be set up: {done.stderr}")
    server = [programs / "postgres", *where, "-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}"]
    with running(server, folder / "log", **_RUN_AS) as ended:
        wait_until((folder / ".s.PGSQL.5432").exists, "PostgreSQL takes connections", ended)
        yield " ".join(f"{name}={value}" for name, value in options.items())


@contextmanager
def running(
    command: list[Any], log: Path, how: signal.Signals = signal.SIGINT, **more: Any
) -> Iterator[Callable[[], str | None]]:
    """A process for the time of the block, which `how` ends. It gives what has its last lines, once it has ended."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd="/", start_new_session=True, **more
        )

    def ended() -> str | None:
        return None if process.poll() is None else "\n".join(log.read_text(errors="replace").splitlines()[-8:])

    try:
        yield ended
    finally:
        process.send_signal(how)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_until(is_so: Callable[[], object], what: str, ended: Callable[[], str | None]) -> None:
    """Return when it is so. Raises `Failed` when it is not in time, or when the process has ended before."""
    begun = time.monotonic()
    while not is_so():
        if (last := ended()) is not None:
            raise Failed(f"a process has ended before {what}:\n{last}")
        if time.monotonic() - begun > PATIENCE:
            raise Failed(f"it took more than {PATIENCE:.0f} s until {what}")
        time.sleep(0.1)


@dataclass(frozen=True)
class Node:
    """One product at an address of its own. Its data, sockets and log are below `folder`."""

    name: str
    folder: Path
    host: str
    port: int
    internal: int
    """The port at which other nodes reach it."""

    @property
    def url(self) -> str:
        """Of its management API."""
        return f"http://{self.host}:{self.port}"

    @property
    def log(self) -> Path:
        """What it prints."""
        return self.folder / "log"

    def command(self, *words: str) -> list[str]:
        """`proxyfleet …` on its machine."""
        places = ["--data-dir", str(self.folder / "data"), "--run-dir", str(self.folder / "run")]
        return [sys.executable, "-P", "-m", "supervisor", *words, *places]

    def environment(self, password: str) -> dict[str, str]:
        """Ours without settings of another installation, and what makes it one of several on this machine."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PROXYFLEET_")}
        return {
            **ours,
            "PROXYFLEET_ADMIN_PASSWORD": password,
            "PROXYFLEET_CLUSTER__LISTEN": f"{self.host}:{self.internal}",
            "PROXYFLEET_METRICS__PUBLISH": "",
            "PROXYFLEET_PROXY__EGRESS_ALLOW": '["127.0.0.0/8"]',
        }

    def serves(self) -> bool:
        """Whether it responds to a request for its health."""
        with suppress(OSError):
            return bool(request(f"{self.url}/health"))
        return False

    def cluster(self, password: str, *words: str) -> str:
        """`proxyfleet cluster …`: what it printed. Raises `Failed`."""
        address = ["--address", f"{self.host}:{self.internal}"]
        command = self.command("cluster", *words, *address)
        try:
            done = subprocess.run(
                command, env=self.environment(password), cwd="/", capture_output=True, text=True, timeout=PATIENCE
            )
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{self.name}: {error}") from error
        if done.returncode:
            raise Failed(f"{self.name}: {done.stderr}")
        return done.stdout


def request(url: str, password: str | None = None, body: object = None) -> Any:
    """What the API responds, a POST if there is a body. Raises `OSError`."""
    asked = urllib.request.Request(url, None if body is None else json.dumps(body).encode())
    asked.add_header("Content-Type", "application/json")
    if password is not None:
        asked.add_header("Authorization", f"Basic {base64.b64encode(f'admin:{password}'.encode()).decode()}")
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=30) as response:
        return json.load(response)


def free_port(host: str) -> int:
    """A port without a listener."""
    with socket.create_server((host, 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def fleet(folder: Path, port: int) -> Iterator[str]:
    """All of it for the time of the block: what there is to know. Raises `Failed`."""
    password = secrets.token_urlsafe(15)
    nodes = []
    for number, name in enumerate(ROLES, 1):
        (folder / name).mkdir(mode=0o700)
        host = f"127.0.0.{number}"
        nodes.append(Node(name, folder / name, host, port, free_port(host)))
    first = nodes[0]
    with ExitStack() as stack:
        print("Starting PostgreSQL …", flush=True)
        dsn = stack.enter_context(database(folder / "postgresql"))
        print("Starting three nodes …", flush=True)
        ended = {each: stack.enter_context(_serving(each, password)) for each in nodes}
        for each in nodes:
            wait_until(each.serves, f"{each.name} serves", ended[each])
        print("Making a fleet of them …", flush=True)
        first.cluster(password, "init", "--dsn", dsn, "--name", first.name)
        for each in nodes[1:]:
            fields = {"name": each.name, "role": ROLES[each.name]}
            made = request(f"{first.url}/api/v1/nodes/tokens", password, fields)
            each.cluster(password, "join", made["data"]["line"])
        for each in nodes[1:]:
            wait_until(each.serves, f"{each.name} serves", ended[each])
        yield _description(folder, nodes, password, dsn)


@contextmanager
def _serving(node: Node, password: str) -> Iterator[Callable[[], str | None]]:
    lab = ["--lab"] if node.name == next(iter(ROLES)) else []
    command = node.command("serve", "--host", node.host, "--port", str(node.port), *lab)
    with running(command, node.log, signal.SIGTERM, env=node.environment(password)) as ended:
        yield ended


def _description(folder: Path, nodes: list[Node], password: str, dsn: str) -> str:
    found = re.search(r"lab +(http://[^ /]+/)", nodes[0].log.read_text())
    origin = "http://example.com/" if found is None else found[1]
    lines = [f"A fleet of three nodes is running. Logs and data are in {folder}, and are removed at the end."]
    lines += [f"  {each.name:9} {each.url:22} {ROLES[each.name]}" for each in nodes]
    lines += [
        f"  sign in   printf %s {shlex.quote(password)} | proxyfleet login --url {nodes[0].url} --password-stdin",
        f"            or at {nodes[1].url}/ui/ as `admin` with the password {password}",
        "  try       proxyfleet proxies create one --protocol http --port 3128 --host '{address}'",
        *(f"            curl -x http://{each.host}:3128 {origin}" for each in nodes[1:]),
        "            proxyfleet nodes tokens",
        f"  status    proxyfleet cluster status --data-dir {nodes[1].folder / 'data'}",
        f"  database  psql {shlex.quote(dsn)}",
        "  end       Ctrl-C",
    ]
    return "\n".join(lines)


def _end(*_signal: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="scripts/serve --cluster", description=__doc__)
    parser.add_argument("--port", type=int, default=8080, help="where each node has its API")
    port = parser.parse_args().port
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, _end)
    try:
        with tempfile.TemporaryDirectory(prefix="pf-") as name:
            folder = Path(name)
            folder.chmod(0o711)  # for the user of PostgreSQL
            with fleet(folder, port) as description:
                print(description, flush=True)
                while True:
                    signal.pause()
    except KeyboardInterrupt:
        return 0
    except (Failed, OSError) as error:
        print(f"scripts/serve: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
