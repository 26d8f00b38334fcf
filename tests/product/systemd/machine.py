"""A real systemd in namespaces of its own (`tests/product/systemd/boot`), with this checkout installed as a service.

    with booted(furnish) as machine:
        machine.systemctl("start", "proxyfleet")
        with machine.network():
            requests.get("http://127.0.0.1:8080/health")

Only what is below the stage is new there; the rest of this machine is there for reading. With a folder `usr` in the
stage, programs can be installed, too. The kernel's settings can't be written, and the only network is a loopback of its
own.
"""

from __future__ import annotations

import compileall
import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit.folders import FOLDERS, ROOT
from tests.kit.wait import wait_until

BOOT = ROOT / "tests" / "product" / "systemd" / "boot"
UNITS = Path("/usr/lib/systemd/system")
PROGRAMS = ("unshare", "nsenter", "mount", "ip", "awk", "systemctl", "systemd-analyze", "journalctl")
BOOTED_WITHIN = 120.0
PYTHON = "/opt/python"
SITE = "/opt/site-packages"
RELEASES = Path("/opt/proxyfleet/releases")
COPIED = ("passwd", "group", "shadow", "gshadow", "nsswitch.conf", "ld.so.cache", "hosts", "localtime")
NAMESPACES = ("--mount", "--pid", "--net", "--cgroup", "--ipc", "--uts")
CLONE_NEWNET = 0x40000000


def why_not() -> str | None:
    """Why no systemd can be booted here; None if it can."""
    if os.geteuid() != 0:
        return "a real systemd needs root"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or not Path("/lib/systemd/systemd").exists():
        return f"missing: {', '.join(missing) or 'systemd'}"
    probe = (
        "mount -t tmpfs tmpfs /run && mount -t cgroup2 cgroup2 /sys/fs/cgroup && test -w /sys/fs/cgroup/cgroup.procs"
    )
    command = ["unshare", "--fork", "--propagation", "private", *NAMESPACES, "--mount-proc", "sh", "-c", probe]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    return f"no namespaces: {done.stderr.strip()}" if done.returncode else None


class Machine:
    """See the module. `folder` is the test's own; what is below `folder / "stage"` is the new machine's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stage = folder / "stage"
        self._process: subprocess.Popen[bytes] | None = None
        self._systemd: int | None = None
        self._log = folder / "boot.log"

    # --- before it is booted ---

    def prepare(self) -> None:
        """Users, the units of systemd that are wanted, and an interpreter that the service may read."""
        for name in ("units", "etc/systemd", "opt"):
            (self.stage / name).mkdir(parents=True)
        for name in COPIED:
            shutil.copy(f"/etc/{name}", self.stage / "etc" / name)
        (self.stage / "etc/machine-id").write_text(os.urandom(16).hex() + "\n")
        (self.stage / "etc/systemd/journald.conf").write_text("[Journal]\nReadKMsg=no\nAudit=no\nStorage=volatile\n")
        for unit in (*UNITS.glob("*.target"), *UNITS.glob("systemd-journald*.s*")):
            shutil.copy(unit, self.stage / "units" / unit.name)
        (self.stage / "units/test.target").write_text(
            "[Unit]\nRequires=basic.target systemd-journald.service\nAfter=basic.target systemd-journald.service\n"
        )

        if sys.base_prefix != "/usr":  # its own library lies in a directory that only its owner may read
            for unit in ("proxyfleet", "proxyfleet-backup"):
                folder = self.stage / "units" / f"{unit}.service.d"
                folder.mkdir()
                (folder / "python.conf").write_text(f"[Service]\nEnvironment=LD_LIBRARY_PATH={PYTHON}/lib\n")

    def add_release(self, name: str, version: str | None = None) -> Path:
        """A copy of this checkout as a program of its own, which says that it is `version`; its folder."""
        lib = self.stage / "opt/proxyfleet/releases" / name / "lib"
        lib.mkdir(parents=True)
        for package in ("actors", "api", "config"):
            compileall.compile_dir(ROOT / package, quiet=2)  # once, and not at each of many starts
            shutil.copytree(ROOT / package, lib / package, ignore=shutil.ignore_patterns("node_modules"))
        shutil.copy(ROOT / "supervisor.py", lib)
        if version is not None:
            file = lib / "config" / "__init__.py"
            text = file.read_text()
            file.write_text(f'{text}\nVERSION = "{version}"\n')
        program = lib.parent / "bin" / "proxyfleet"
        program.parent.mkdir()
        program.write_text(
            f"#!{interpreter()} -P\nimport sys\n\n"
            f'sys.path[:0] = ["{RELEASES / name / "lib"}", "{SITE}"]\n'
            "from supervisor import main\n\nsys.exit(main())\n"
        )
        program.chmod(0o755)
        return lib.parent

    # --- its life ---

    def boot(self) -> None:
        """Start it; back when systemd says that it runs."""
        places = {str(ROOT): str(ROOT), sysconfig.get_path("platlib"): SITE}
        if sys.base_prefix != "/usr":
            places |= {sys.base_prefix: PYTHON}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(BOOT), str(self.stage), *(f"{source}:{place}" for source, place in places.items())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            wait_until(self._runs, "systemd runs", BOOTED_WITHIN)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log}") from None

    def end(self) -> None:
        """Everything in it ends at once."""
        if self._process is None:
            return
        self._process.kill()  # with it the first process of the namespace, and with that one all
        self._process.wait()
        self._remove_control_groups()

    @property
    def log(self) -> str:
        """What systemd has printed."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def pid(self) -> int:
        """Systemd's process id, on this machine."""
        assert self._systemd is not None, "it is not booted"
        return self._systemd

    # --- what can be done in it ---

    def run(self, *command: str, check: bool = True, timeout: float = 180.0, text: str | None = None) -> str:
        """Run a command in it and return what it printed, errors too. With `check` it must succeed."""
        done = subprocess.run(
            ["nsenter", f"--target={self.pid}", *NAMESPACES, *command],
            env=self._environment(),
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            input=text,
            text=True,
            timeout=timeout,
        )
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{self.journal()}"
        return done.stdout

    def systemctl(self, *arguments: str, check: bool = True) -> str:
        """`systemctl` in it."""
        return self.run("systemctl", "--no-pager", *arguments, check=check)

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.systemctl("show", unit, f"--property={name}", "--value").strip()

    def journal(self, unit: str = "proxyfleet") -> str:
        """What is in the journal of a unit."""
        return self.run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}", check=False)

    def wait_for_entry(self, text: str, unit: str = "proxyfleet") -> None:
        """Return when the journal of a unit has it: what is written arrives there a moment later."""
        wait_until(lambda: text in self.journal(unit), f"the journal has {text!r}", pause=0.1)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file in it; its folder is made."""
        self.run(
            "sh", "-c", 'mkdir -p "$(dirname "$1")" && cat >"$1" && chmod "$2" "$1"', "sh", path, f"{mode:o}", text=text
        )

    def install(self, release: str) -> None:
        """This release is what starts next."""
        self.run("ln", "-sfn", f"releases/{release}", "/opt/proxyfleet/current")

    def drop_in(self, name: str, text: str, unit: str = "proxyfleet.service") -> None:
        """A drop-in for a unit, read at once."""
        self.write(f"/etc/systemd/system/{unit}.d/{name}.conf", text)
        self.systemctl("daemon-reload")

    @contextlib.contextmanager
    def network(self) -> Iterator[None]:
        """Sockets that this thread makes meanwhile are of that machine's network."""
        with open("/proc/thread-self/ns/net") as own, open(f"/proc/{self.pid}/ns/net") as theirs:
            _enter(theirs.fileno())
            try:
                yield
            finally:
                _enter(own.fileno())

    # --- inside ---

    def _runs(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"systemd ended with {self._process.returncode}\n{self.log}"
        if self._systemd is None:
            children = psutil.Process(self._process.pid).children()
            self._systemd = next((child.pid for child in children if _name_of(child) == "systemd"), None)
            return False
        return self.systemctl("is-system-running", check=False).strip() in ("running", "degraded")

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "SYSTEMD_UNIT_PATH": "/etc/systemd/system:/run/systemd/system:/usr/lib/systemd/system",
            "LC_ALL": "C",
            **library_path(),
        }

    def _remove_control_groups(self) -> None:
        assert self._process is not None
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        hierarchy = next(mount[1] for mount in mounts if mount[2] == "cgroup2")
        own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        _remove_tree(Path(hierarchy + own.removeprefix("0::").rstrip("/")) / f"pf-systemd-{self._process.pid}")


@contextlib.contextmanager
def booted(
    furnish: Callable[[Machine], object] = lambda _machine: None, releases: Sequence[str] = ("1", "2")
) -> Iterator[Machine]:
    """A machine that runs, with releases and what `furnish` adds before it is booted. Skips where none can be."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="pf-", dir=FOLDERS))
    machine = Machine(folder)
    try:
        machine.prepare()
        for name in releases:
            machine.add_release(name, f"{name}.0.0")
        furnish(machine)
        machine.boot()
        yield machine
    finally:
        machine.end()
        shutil.rmtree(folder, ignore_errors=True)


def interpreter() -> str:
    """The path in the machine of the interpreter that runs the tests, readable for everybody."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return f"/usr/bin/{name}" if sys.base_prefix == "/usr" else f"{PYTHON}/bin/{name}"


def library_path() -> dict[str, str]:
    """Where the interpreter finds its own library, if it is not the system's."""
    return {} if sys.base_prefix == "/usr" else {"LD_LIBRARY_PATH": f"{PYTHON}/lib"}


def _enter(namespace: int) -> None:
    libc: Any = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _remove_tree(group: Path) -> None:
    """Control groups are folders that only go from the leaves on, once their last process has been reaped."""
    deadline = time.monotonic() + 5
    while group.exists() and time.monotonic() < deadline:
        for folder, _folders, _files in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):  # it still has a process that is ending: tried again
                os.rmdir(folder)
        time.sleep(0.02)


def _name_of(process: psutil.Process) -> str:
    """Empty for one that has ended: those that prepare the namespaces are short."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""
