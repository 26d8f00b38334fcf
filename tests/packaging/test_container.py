"""The image: the Containerfile by hadolint's judgement, where there is hadolint, and our own rules; then what it makes.

No engine for containers is needed. The files of the image are all made by `scripts/packaging/image_root.py`, which runs
here as well, and the product starts in them as an engine starts it: in namespaces of its own, as another user, with a
root that can't be written, and the environment of the Containerfile.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from tests.kit.folders import ROOT
from tests.kit.http_origins import Origin, serving
from tests.kit.ports import free_port
from tests.kit.product import PASSWORD
from tests.kit.wait import wait_until
from tests.packaging.install_page import commands

FOLDER = ROOT / "scripts" / "packaging"
FILE = FOLDER / "Containerfile"
BUILT_FOR = 10001
ENGINE = ("unshare", "nsenter", "mount", "chroot", "setpriv", "ldd")


def instructions() -> list[tuple[str, str]]:
    """Keyword and the rest, one for each instruction; comments left out, continued lines joined."""
    lines = [line for line in FILE.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    pairs = (line.partition(" ") for line in joined.splitlines())
    return [(keyword, rest.strip()) for keyword, _, rest in pairs]


def last(keyword: str) -> str:
    return [rest for each, rest in instructions() if each == keyword][-1]


def last_stage() -> list[tuple[str, str]]:
    found = instructions()
    begins = max(number for number, (keyword, _) in enumerate(found) if keyword == "FROM")
    return found[begins:]


def test_it_is_built_in_an_image_whose_version_is_whole_and_has_nothing_of_that_but_what_it_copies() -> None:
    first, result = (rest.split()[0] for keyword, rest in instructions() if keyword == "FROM")
    assert re.fullmatch(r"docker\.io/library/python:3\.\d+\.\d+-slim-[a-z]+", first)
    assert result == "scratch"
    assert [keyword for keyword, _ in last_stage() if keyword in ("RUN", "COPY", "ADD")] == ["COPY", "COPY"]


def test_it_runs_as_a_numbered_user_that_is_not_root_and_owns_only_the_data() -> None:
    user, _, group = last("USER").partition(":")
    assert int(user) == int(group) == BUILT_FOR
    assert f"\nUSER = {user}\n" in (FOLDER / "image_root.py").read_text()
    assert f"--mode 0700 --owner {user} --group {group} /data/proxyfleet" in FILE.read_text()
    copied = [rest for keyword, rest in last_stage() if keyword == "COPY"]
    assert copied == ["--from=build /image /", f"--from=build --chown={user}:{group} /data /var/lib"]
    assert json.loads(last("VOLUME")) == ["/var/lib/proxyfleet"]


@pytest.mark.parametrize("keyword", ["ENTRYPOINT", "CMD"])
def test_the_program_is_started_without_a_shell_so_that_signals_reach_it(keyword: str) -> None:
    assert json.loads(last(keyword))


def test_it_is_asked_for_its_health_and_stopped_by_the_signal_that_it_knows() -> None:
    options, _, command = last("HEALTHCHECK").partition("CMD ")
    assert json.loads(command)[1:] == ["-m", "api.operator.readiness_probe"]
    assert {"--interval", "--timeout", "--start-period", "--retries"} == set(re.findall(r"--[a-z-]+", options))
    assert last("STOPSIGNAL") == "SIGTERM"


def test_it_names_no_other_host_than_that_of_the_image_and_adds_nothing_from_elsewhere() -> None:
    hosts = set(re.findall(r"[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:io|org|com|net)\b", FILE.read_text()))
    assert hosts == {"docker.io"}
    assert all(keyword != "ADD" for keyword, _ in instructions())
    assert not re.search(r"curl|wget|--index|sudo", FILE.read_text())
    assert not any("apt-get" in rest for _keyword, rest in last_stage()), "the compiler stays in the stage that builds"


def test_secrets_and_data_stay_out_of_the_build() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    assert lines[0] == "*"
    copied = {name for keyword, rest in instructions() if keyword == "COPY" for name in rest.split()[:-1]}
    assert {f"!{name}" for name in copied if not name.startswith(("-", "/"))} == {
        line for line in lines if line.startswith("!")
    }


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run(["hadolint", str(FILE)], capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_page_runs_it_as_it_is_made_to_be_run() -> None:
    build, secret, run, *_ = commands("In a container")
    assert f"--file {FILE.relative_to(ROOT)} " in build
    assert "--format docker" in build, "else podman leaves out the health check"
    assert "podman secret create admin-password" in secret
    (volume,) = json.loads(last("VOLUME"))
    user = last("USER").partition(":")[0]
    for words in (
        "--read-only --tmpfs /tmp",
        "--cap-drop all",
        f"--secret admin-password,uid={user}",
        f":{volume}",
        f"127.0.0.1:8080:{last('EXPOSE')}",
    ):
        assert words in run


def variables() -> dict[str, str]:
    """What the image sets for its processes."""
    return dict(word.split("=", 1) for word in shlex.split(last("ENV")))


@pytest.fixture(scope="module")
def image(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All files of the image; they are made by the interpreter that it gets."""
    if os.geteuid() != 0:
        pytest.skip("what an engine does needs root")
    if missing := [program for program in ENGINE if shutil.which(program) is None]:
        pytest.skip(f"missing: {', '.join(missing)}")
    root = tmp_path_factory.mktemp("image") / "root"
    done = subprocess.run(
        [str(environment / "bin" / "python"), "-EB", str(FOLDER / "image_root.py"), str(environment), str(root)],
        capture_output=True,
        text=True,
        timeout=900,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    (root / json.loads(last("VOLUME"))[0][1:]).mkdir()  # as the Containerfile's second copy does
    return root


def test_all_files_together_have_at_most_150_megabytes_and_only_two_are_programs(image: Path) -> None:
    """The script fails above that; here it has to count the same."""
    files = [path for path in image.rglob("*") if path.is_file() and not path.is_symlink()]
    assert 50e6 < sum(path.stat().st_size for path in files) <= 150e6
    folders = [image / name for name in ("bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin", "opt/proxyfleet/bin")]
    programs = {path.name for folder in folders if folder.is_dir() for path in folder.iterdir()}
    assert {re.sub(r"\d.*", "", name) for name in programs} == {"python", "proxyfleet"}
    assert [path for path in files if path.stat().st_mode & 0o6002] == [], "set-user-ID, or for all to write"


START = """\
root=$1 volume=$2 secrets=$3
shift 3
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mkdir "$root/run/secrets"
mount --bind "$secrets" "$root/run/secrets"
mount --bind "$volume" "$root/var/lib/proxyfleet"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for each in null zero full random urandom; do
    touch "$root/dev/$each"
    mount --bind "/dev/$each" "$root/dev/$each"
done
mkdir "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
exec "$@"
"""
"""What an engine does for `--read-only --tmpfs /tmp` with a volume and secrets, before the product starts."""


class Container:
    """The product in the image, with a new volume."""

    def __init__(self, image: Path, folder: Path) -> None:
        self._image = image
        self.port = free_port()
        self.data, self.secrets, self.log = folder / "volume", folder / "secrets", folder / "log"
        for path in (self.data, self.secrets):
            path.mkdir(mode=0o700)
            os.chown(path, BUILT_FOR, BUILT_FOR)
        (self.secrets / "admin-password").write_text(PASSWORD)
        (self.secrets / "admin-password").chmod(0o444)
        set_here = {"PROXYFLEET_SERVER__PORT": str(self.port), "PROXYFLEET_METRICS__PUBLISH": ""}
        self.environment = {**variables(), **set_here, "PROXYFLEET_PROXY__EGRESS_ALLOW": '["127.0.0.0/8"]'}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start what the image starts, as its user."""
        words = [*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))]
        given = [f"{name}={value}" for name, value in self.environment.items()]
        account = [program("setpriv"), "--no-new-privs", program("chroot"), f"--userspec={last('USER')}", "--groups="]
        inside = ["env", "-i", *given, *account, str(self._image), *self.found(words)]
        isolated = ["unshare", "--fork", "--kill-child", "--propagation", "private", "--mount", "--pid", "--ipc"]
        prepared = ["sh", "-euc", START, "sh", *map(str, (self._image, self.data, self.secrets))]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen([*isolated, *prepared, *inside], stdout=log, stderr=log)
        wait_until(self._ready, "it is ready", 300)

    def found(self, command: list[str]) -> list[str]:
        """The command with the whole path of its program."""
        return [f"{self.environment['PATH']}/{command[0]}", *command[1:]]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """As `podman exec` does."""
        entered = [program("nsenter"), f"--target={self.pid}", "--mount", "--pid", "--ipc", "--root", "--wd=/"]
        account = [f"--setuid={BUILT_FOR}", f"--setgid={BUILT_FOR}"]
        return subprocess.run(
            [*entered, *account, *self.found(list(command))],
            capture_output=True,
            text=True,
            timeout=300,
            env=self.environment,
        )

    @property
    def pid(self) -> int:
        """That of the first process, on this machine."""
        assert self._process is not None
        return psutil.Process(self._process.pid).children()[0].pid

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """`data` of a call as the administrator, which must succeed."""
        url = f"http://127.0.0.1:{self.port}/api/v1{path}"
        response = requests.request(method, url, json=body, auth=("admin", PASSWORD), timeout=120)
        assert response.ok, response.text
        return response.json()["data"]

    def stop(self) -> int:
        """Its exit status after the signal of the Containerfile."""
        assert self._process is not None
        os.kill(self.pid, signal.Signals[last("STOPSIGNAL")])
        return self._process.wait(120)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()
        try:
            return requests.get(f"http://127.0.0.1:{self.port}/readyz", timeout=60).ok
        except requests.ConnectionError:
            return False


def program(name: str) -> str:
    """The path of a program of this machine."""
    found = shutil.which(name)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def container(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    container = Container(image, tmp_path_factory.mktemp("container"))
    try:
        container.start()
        yield container
    finally:
        container.end()


IMPORT_ALL = """\
import importlib, pkgutil, ssl, sqlite3, ctypes, zoneinfo
for name in ("actors", "api", "config"):
    for each in pkgutil.walk_packages(importlib.import_module(name).__path__, name + "."):
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)
import psycopg, opentelemetry.proto.metrics.v1.metrics_pb2
assert psycopg.pq.__impl__ == "binary"
assert len(ssl.create_default_context().get_ca_certs()) > 50
print("all")
"""


@pytest.mark.product
def test_every_module_finds_what_it_imports_in_the_image(container: Container) -> None:
    assert container.run("python", "-c", IMPORT_ALL).stdout == "all\n"


@pytest.mark.product
def test_it_serves_with_a_root_that_can_not_be_written_as_another_user_and_stops_in_good_order(
    container: Container,
) -> None:
    """One story: a start for each step would take longer than all of them."""
    status = Path(f"/proc/{container.pid}/status").read_text()
    assert re.search(rf"^Uid:\t{BUILT_FOR}\t{BUILT_FOR}", status, re.MULTILINE)
    assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
    assert "Read-only file system" in container.run("python", "-c", "open('/opt/proxyfleet/x', 'w')").stderr

    (user,) = container.api("GET", "/users")["users"]
    assert user["username"] == "admin"
    assert not (container.data / "initial-admin-password").exists()
    assert PASSWORD not in container.log.read_text()

    port = free_port()
    container.api("POST", "/proxies", {"name": "one", "port": port, "protocol": "http"})
    origin = Origin()
    with serving(origin):
        response = requests.get(origin.url("/hello"), proxies={"http": f"http://127.0.0.1:{port}"}, timeout=120)
    assert response.status_code == 200

    _options, _, probe = last("HEALTHCHECK").partition("CMD ")
    checked = container.run(*json.loads(probe))
    assert (checked.returncode, "healthy" in checked.stdout) == (0, True), checked.stdout + checked.stderr
    assert container.stop() == 0
