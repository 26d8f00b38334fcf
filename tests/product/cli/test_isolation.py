"""`run --isolate` without a product: what a job reaches in namespaces of its own, and what it leaves behind."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from api.cli import isolated_job, isolation
from api.cli.isolation import IsolationUnavailable, RelayedProxy, reason, run_at_socket, run_isolated
from tests.kit.certificates import make_pair
from tests.kit.http_origins import Origin, serving
from tests.kit.wait import wait_until
from tests.product.cli import escapes
from tests.product.cli.jobs import PYTHON, needs_namespaces

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    """In place of a proxy: the relay knows nothing of what it carries."""
    with Origin() as server, serving(server):
        yield server


def relayed(origin: Origin, tls: ssl.SSLContext | None = None) -> RelayedProxy:
    return RelayedProxy("127.0.0.1", origin.port, tls)


def isolated(origin: Origin, *command: str, environment: Mapping[str, str] | None = None) -> int:
    return run_isolated(command, os.environ if environment is None else environment, [relayed(origin)])


# --- where the job can go ---


@pytest.fixture
def outside() -> Iterator[dict[str, Any]]:
    """Listeners of the caller that an isolated job must not reach, and a descriptor that it must not inherit."""
    with ExitStack() as stack:

        def bound(family: int, kind: int, address: Any) -> socket.socket:
            made = stack.enter_context(socket.socket(family, kind))
            made.bind(address)
            if kind == socket.SOCK_STREAM:
                made.listen()
            return made

        tcp = bound(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        tcp6 = bound(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0))
        udp = bound(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        abstract = bound(socket.AF_UNIX, socket.SOCK_STREAM, f"\0escape-{os.getpid()}")
        inherited = stack.enter_context(socket.create_connection(tcp.getsockname()[:2]))
        inherited.set_inheritable(True)
        yield {
            "tcp": tcp.getsockname()[1],
            "tcp6": tcp6.getsockname()[1],
            "udp": udp.getsockname()[1],
            "abstract": abstract.getsockname()[1:].decode(),
            "pid": os.getpid(),
            "inherited": inherited.fileno(),
        }


EXPECTED = {
    "relay": {"reached"},
    "tcp of the caller": {"ECONNREFUSED"},
    "tcp by ipv6": {"ECONNREFUSED", "EADDRNOTAVAIL", "ENETUNREACH"},
    "udp of the caller": {"ECONNREFUSED"},
    "tcp elsewhere": {"ENETUNREACH"},
    "udp elsewhere (QUIC)": {"ENETUNREACH"},
    "ipv6 elsewhere": {"ENETUNREACH", "EAFNOSUPPORT"},
    "udp by ipv6": {"ENETUNREACH", "EAFNOSUPPORT"},
    "dns": {"gaierror"},
    "ping": {"ENETUNREACH", "EPERM"},  # a user has no raw sockets at all
    "raw ip": {"ENETUNREACH", "EPERM"},
    "frames": {"ENODEV", "ENETDOWN", "EPERM"},
    "an abstract unix socket": {"ECONNREFUSED"},
    "vsock to the hypervisor": {"EAFNOSUPPORT"},
    "namespace of the caller": {"EACCES", "EPERM"},
    "namespace of init": {"EACCES", "EPERM"},
    "memory of the caller": {"EACCES", "EPERM"},
    "environment of the caller": {"EACCES", "EPERM"},
    "descriptors of the caller": {"EACCES", "EPERM"},
    "a descriptor by pidfd": {"EPERM"},
    "an inherited descriptor": {"EBADF"},
    "sockets past the filter (io_uring)": {"ENOSYS"},
    "input of the terminal": {"EPERM"},
    "a cable": {"EPERM"},
}


def escaped(results: Path) -> dict[str, str]:
    """The attempts of a job that ended otherwise than expected."""
    found: dict[str, str] = json.loads(results.read_text())
    assert found.keys() == EXPECTED.keys()
    return {name: how for name, how in found.items() if how not in EXPECTED[name]}


@needs_namespaces
def test_a_job_reaches_its_relay_and_nothing_else(origin: Origin, outside: dict[str, Any], tmp_path: Path) -> None:
    results = tmp_path / "results"
    given = json.dumps({"relay": origin.port, "outside": outside, "only": None})
    assert isolated(origin, PYTHON, escapes.__file__, str(results), given) == 0
    assert escaped(results) == {}


@needs_namespaces
def test_an_environment_without_variables_leads_nowhere_else(
    origin: Origin, outside: dict[str, Any], tmp_path: Path
) -> None:
    results = tmp_path / "results"
    given = json.dumps({"relay": origin.port, "outside": outside, "only": None})
    nested = ("env", "-i", "setsid", "--wait", PYTHON, escapes.__file__, str(results), given)
    assert isolated(origin, *nested) == 0
    assert escaped(results) == {}


def test_without_isolation_what_listens_outside_is_reached(
    outside: dict[str, Any], tmp_path: Path, origin: Origin
) -> None:
    results = tmp_path / "results"
    here = ["relay", "tcp of the caller", "tcp by ipv6", "udp of the caller", "an abstract unix socket"]
    here.append("an inherited descriptor")
    given = json.dumps({"relay": origin.port, "outside": outside, "only": here})
    command = [PYTHON, escapes.__file__, str(results), given]
    subprocess.run(command, check=True, pass_fds=[outside["inherited"]], timeout=60)
    assert json.loads(results.read_text()) == dict.fromkeys(here, "reached")


@needs_namespaces
@needs_root
def test_a_user_gets_no_further_and_stays_who_it_is(
    origin: Origin, outside: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.chmod(0o777)
    for module in (isolated_job, escapes):  # the checkout may be for its owner alone
        assert module.__file__ is not None
        copy = folder / Path(module.__file__).name
        copy.write_bytes(Path(module.__file__).read_bytes())
        copy.chmod(0o644)
        monkeypatch.setattr(module, "__file__", str(copy))
    monkeypatch.setattr(sys, "executable", PYTHON)
    results = folder / "results"
    given = json.dumps({"relay": origin.port, "outside": outside, "only": None})
    script = f'id -u >{folder}/id; pwd >>{folder}/id; exec {PYTHON} {escapes.__file__} {results} "$0"'
    assert as_user(1234, folder, lambda: isolated(origin, "sh", "-c", script, given)) == 0
    assert escaped(results) == {}
    assert (folder / "id").read_text().split() == ["1234", str(folder)]
    owner = results.stat()
    assert (owner.st_uid, owner.st_gid) == (1234, 1234)


def as_user(user: int, directory: Path, work: Callable[[], int]) -> int:
    """Done by a fork of this process as another user, which has no more of root."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.chdir(directory)
            status = work()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# --- what a job sees ---


@needs_namespaces
@needs_root
def test_root_may_still_change_owners(origin: Origin, tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert (
        isolated(origin, "sh", "-c", f"echo mine >{file} && chown 1234:1234 {file} && test $HOME = {Path.home()}") == 0
    )
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 1234)


@needs_namespaces
def test_exit_statuses_are_those_of_a_shell(origin: Origin, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    table = {("true",): 0, ("sh", "-c", "exit 7"): 7, ("sh", "-c", "kill -TERM $$"): 128 + signal.SIGTERM}
    table |= {("nonesuch-program",): 127, (str(tmp_path / "text"),): 126}
    assert {command: isolated(origin, *command) for command in table} == table


@needs_namespaces
def test_its_signals_and_descriptors_are_untouched(origin: Origin, tmp_path: Path) -> None:
    script = f"grep SigBlk /proc/self/status >{tmp_path}/status; grep SigIgn /proc/self/status >>{tmp_path}/status"
    script += f"; ls /proc/self/fd >{tmp_path}/descriptors"
    assert isolated(origin, "sh", "-c", script) == 0
    blocked, ignored = (int(line.split()[1], 16) for line in (tmp_path / "status").read_text().splitlines())
    assert blocked == 0
    assert not ignored & (1 << (signal.SIGPIPE - 1))
    assert (tmp_path / "descriptors").read_text().split() == ["0", "1", "2", "3"]  # the last is that of the listing


@needs_namespaces
def test_the_environment_of_the_job_does_not_reach_the_program_that_isolates_it(origin: Origin, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit(77)")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nonexistent", "A": "ä ="}
    script = f'printf %s "$PYTHONHOME $A" >{tmp_path}/seen'
    assert isolated(origin, "sh", "-c", script, environment=environment) == 0
    assert (tmp_path / "seen").read_text() == "/nonexistent ä ="


# --- the relay ---

FETCH = "import sys, urllib.request as r; sys.stdout.buffer.write(r.urlopen(sys.argv[1], timeout=20).read())"


@needs_namespaces
def test_a_megabyte_arrives_whole_and_from_many_connections(origin: Origin, tmp_path: Path) -> None:
    fetch = f"{PYTHON} -c '{FETCH}' http://127.0.0.1:{origin.port}/megabyte"
    script = f"for n in 1 2 3 4 5 6 7 8; do {fetch} >{tmp_path}/$n & done; wait"
    assert isolated(origin, "sh", "-c", script) == 0
    assert {(tmp_path / str(number)).stat().st_size for number in range(1, 9)} == {1 << 20}


@needs_namespaces
def test_the_relay_speaks_tls_to_the_proxy_so_that_the_job_needs_none(tmp_path: Path) -> None:
    certificate, key = make_pair(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    with Origin(server) as secure, serving(secure):
        fetch = (PYTHON, "-c", FETCH, f"http://127.0.0.1:{secure.port}/hello")
        trusting = ssl.create_default_context(cafile=certificate)
        assert run_isolated(fetch, os.environ, [relayed(secure, trusting)]) == 0
        distrusting = ssl.create_default_context()
        assert run_isolated(fetch, os.environ, [relayed(secure, distrusting)]) == 1


@needs_namespaces
def test_a_proxy_that_is_gone_ends_connections_at_once_and_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    fetch = f"{PYTHON} -c '{FETCH}' http://127.0.0.1:{port}/ 2>/dev/null"
    assert run_isolated(["sh", "-c", f"{fetch}; {fetch}"], os.environ, [RelayedProxy("127.0.0.1", port)]) == 1
    report = capsys.readouterr().err
    assert report.count(f"the proxy at 127.0.0.1:{port} can't be reached: Connection refused\n") == 1


MANY = """
import socket, sys
connections = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(200)]
for each in connections:
    each.close()
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 30) as client:
    client.sendall(b"GET /hello HTTP/1.0\\r\\n\\r\\n")
    assert b" 200 " in client.recv(100)
"""


@needs_namespaces
def test_more_connections_than_descriptors_wait_for_each_other(
    origin: Origin, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "CONNECTIONS", 20)
    assert isolated(origin, PYTHON, "-c", MANY, str(origin.port)) == 0
    assert capfd.readouterr().err == ""


ORPHAN = """
import pathlib, socket, sys, time
port, started, ended = int(sys.argv[1]), pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
held = socket.create_connection(("127.0.0.1", port))
held.sendall(b"GET")
started.touch()
try:
    assert held.recv(1) == b""
except ConnectionResetError:
    pass
try:
    socket.create_connection(("127.0.0.1", port))
except ConnectionRefusedError:
    ended.write_text("refused")
"""


@needs_namespaces
def test_what_a_job_leaves_behind_has_no_network(origin: Origin, tmp_path: Path) -> None:
    started, ended = tmp_path / "started", tmp_path / "ended"
    script = f'setsid {PYTHON} -c "$0" {origin.port} {started} {ended} & while ! test -e {started}; do sleep 0.01; done'
    assert isolated(origin, "sh", "-c", script, ORPHAN) == 0
    wait_until(lambda: ended.exists() and ended.read_text() == "refused", "the orphan has lost its connection", 60)


# --- a socket for containers ---


INSIDE = """
import socket, sys, urllib.request
with socket.socket(socket.AF_UNIX) as client:
    client.connect(sys.argv[1])
    client.sendall(b"GET /hello HTTP/1.0\\r\\n\\r\\n")
    while data := client.recv(4096):
        sys.stdout.buffer.write(data)
"""


@needs_namespaces
def test_a_container_without_a_network_reaches_the_proxy_by_the_socket(origin: Origin, folder: Path) -> None:
    path, got = folder / "relay.sock", folder / "got"
    container = ("unshare", "--map-root-user", "--net", "sh", "-c", f'{PYTHON} -c "$0" {path} >{got}', INSIDE)
    modes: list[int] = []
    command = ("sh", "-c", f'stat -c %a {path} >{folder}/mode; exec "$@"', "sh", *container)
    assert run_at_socket(command, os.environ, relayed(origin), path) == 0
    modes.append(int((folder / "mode").read_text(), 8))
    assert got.read_bytes().endswith(b"hello")
    assert modes == [0o600]
    assert not path.exists()


def test_a_socket_replaces_that_of_a_relay_that_was_killed_and_nothing_else(origin: Origin, folder: Path) -> None:
    path = folder / "relay.sock"
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(path))
    assert run_at_socket(["true"], os.environ, relayed(origin), path) == 0
    with socket.socket(socket.AF_UNIX) as used:
        used.bind(str(path))
        used.listen()
        with pytest.raises(IsolationUnavailable, match="another program listens there"):
            run_at_socket(["true"], os.environ, relayed(origin), path)
    path.unlink()
    path.write_text("a file")
    with pytest.raises(IsolationUnavailable, match="there is a file already"):
        run_at_socket(["true"], os.environ, relayed(origin), path)
    assert path.read_text() == "a file"
    long = folder / ("x" * 200)
    with pytest.raises(IsolationUnavailable, match="too long"):
        run_at_socket(["true"], os.environ, relayed(origin), long)


def test_what_has_taken_the_place_of_the_socket_is_left(origin: Origin, folder: Path) -> None:
    path = folder / "relay.sock"
    assert run_at_socket(["sh", "-c", f"rm {path}; echo mine >{path}"], os.environ, relayed(origin), path) == 0
    assert path.read_text() == "mine\n"
    path.unlink()
    assert run_at_socket(["rm", str(path)], os.environ, relayed(origin), path) == 0


def test_an_inner_half_that_is_killed_meanwhile_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with isolation._relay([]) as (relay, link):
        monkeypatch.setattr(isolation, "map_users", lambda _process: link.close())
        link.send(b'{"pid": 1}')
        relay.join()
    with pytest.raises(IsolationUnavailable, match="Broken pipe"):
        relay.check()


# --- where it is forbidden ---


def fake_proc(folder: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return folder


USERNS, APPARMOR = "sys/kernel/unprivileged_userns_clone", "sys/kernel/apparmor_restrict_unprivileged_userns"
FILTERED = {"self/status": "Name:\tpython\nSeccomp:\t2\nSeccomp_filters:\t1\n"}


@pytest.mark.parametrize(
    ("error", "files", "root", "expected"),
    [
        (errno.ENOSPC, {"sys/user/max_user_namespaces": "0\n"}, False, "user.max_user_namespaces = 0"),
        (errno.ENOSPC, {"sys/user/max_net_namespaces": "0\n"}, True, "user.max_net_namespaces = 0"),
        (errno.ENOSPC, {"sys/user/max_user_namespaces": "10\n"}, False, "is reached"),
        (errno.EPERM, {USERNS: "0\n"}, False, "kernel.unprivileged_userns_clone = 0"),
        (errno.EPERM, {USERNS: "0\n", **FILTERED}, True, "--network none"),
        (errno.EACCES, {APPARMOR: "1\n"}, False, "AppArmor"),
        (errno.EPERM, FILTERED, False, "--network none"),
        (errno.EINVAL, {}, False, "this kernel lacks"),
        (errno.EPERM, {}, False, "Operation not permitted"),
    ],
)
def test_the_reason_names_what_forbids_it(
    tmp_path: Path, error: int, files: dict[str, str], root: bool, expected: str
) -> None:
    found = reason("namespace", error, fake_proc(tmp_path, files), root)
    assert expected in found
    assert found.startswith("The command can't be isolated: ")
    assert found.endswith(".")


FORBID = """
import ctypes, struct, sys, os
code = b"".join(struct.pack("=HBBI", *each) for each in
    [(0x20, 0, 0, 0), (0x15, 0, 1, {number}), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)])
buffer = ctypes.create_string_buffer(code, len(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, struct.pack("HP", 4, ctypes.addressof(buffer)), 0, 0) == 0
from api.cli.isolation import *
try:
    run_isolated(["touch", sys.argv[1]], os.environ, [RelayedProxy("127.0.0.1", 9)])
except IsolationUnavailable as unavailable:
    sys.exit(str(unavailable))
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of unshare(2) is that of x86-64")
def test_where_a_container_forbids_namespaces_nothing_runs(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    command = [sys.executable, "-c", FORBID.replace("{number}", "272"), str(ran)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "a filter of system calls, as containers have, forbids namespaces" in ended.stderr
    assert not ran.exists()


def test_threads_of_the_relay_end_with_the_job(origin: Origin, folder: Path) -> None:
    run_at_socket(["true"], os.environ, relayed(origin), folder / "relay.sock")
    assert "relay" not in [each.name for each in threading.enumerate()]
