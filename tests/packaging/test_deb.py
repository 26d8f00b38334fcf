"""The Debian package on a machine with a real systemd: installed, upgraded and removed by what the page says.

The lines are those of docs/how-to/install.md. There is dpkg in the place of apt, which would ask for its lists first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.environments import INTERPRETER
from tests.kit.folders import ROOT
from tests.packaging.install_page import commands
from tests.product.systemd.machine import Machine, booted
from tests.product.systemd.service import CONFIG, SERVICE, ServiceOn

PROXY = 3128
BUILD = ROOT / "scripts" / "build-deb"
NEEDED = (INTERPRETER.name, "libstdc++6", "systemd", "ca-certificates", "base-files")
DPKG = """\
mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers
cp /opt/debs/status /var/lib/dpkg/status
for each in "$@"; do touch "/var/lib/dpkg/info/$each.list"; done
for each in /. /etc /opt /usr /usr/lib/systemd/system /usr/share/base-files; do
    echo "$each" >>/var/lib/dpkg/info/base-files.list
done
"""
"""What dpkg knows on the machine: that there is what the package depends on, and whose the folders are."""


def build(environment: Path, version: str, folder: Path) -> Path:
    """The package of the environment as this version, which is not compressed."""
    copy = folder / version
    shutil.copytree(environment, copy, symlinks=True)
    (names,) = copy.glob("lib/python3*/site-packages/config/__init__.py")
    names.write_text(f'{names.read_text()}\nVERSION = "{version}"\n')
    done = subprocess.run(
        [str(BUILD), "--environment", str(copy), "--python", str(INTERPRETER), "--out", str(folder / "debs")],
        env={**os.environ, "DPKG_DEB_COMPRESSOR_TYPE": "none"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(copy)
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def packages(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By their versions."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("missing: dpkg-deb")
    folder = tmp_path_factory.mktemp("packages")
    return {version: build(environment, version, folder) for version in ("1.0.0", "2.0.0")}


@pytest.fixture(scope="module")
def machine(packages: dict[str, Path]) -> Iterator[Machine]:
    """A machine that has only the packages, and what they depend on."""

    def furnish(machine: Machine) -> None:
        debs = machine.stage / "opt" / "debs"
        debs.mkdir()
        (machine.stage / "usr").mkdir()
        for package in packages.values():
            shutil.move(package, debs)
        known = subprocess.run(["dpkg-query", "--status", *NEEDED], capture_output=True, text=True, timeout=180)
        assert known.returncode == 0, known.stderr
        (debs / "status").write_text(known.stdout)

    with booted(furnish, releases=()) as machine:
        machine.run("sh", "-euc", DPKG, "sh", *NEEDED)
        yield machine


def as_dpkg(command: str, package: str) -> list[str]:
    """A command of the page, in the words of dpkg and for this package."""
    for line, words in {
        "sudo apt install ./dist/proxyfleet_": ["dpkg", "--force-unsafe-io", "--install", f"/opt/debs/{package}"],
        "sudo apt remove proxyfleet": ["dpkg", "--remove", "proxyfleet"],
        "sudo apt purge proxyfleet": ["dpkg", "--purge", "proxyfleet"],
    }.items():
        if command.startswith(line):
            return words
    return command.removeprefix("sudo ").split()


def left(machine: Machine) -> list[str]:
    """Files that have the name of the product, but for the checkout, which may lie anywhere."""
    usr = ("/usr/bin", "/usr/share", *(f"/usr/lib/{name}" for name in ("systemd", "sysusers.d", "tmpfiles.d")))
    wanted = f"-path {ROOT} -prune -o -name *proxyfleet* -print".split()
    places = ("/etc", "/var", "/opt/proxyfleet", "/run/proxyfleet", *usr)
    found = machine.run("find", *places, *wanted, check=False)
    return [line for line in found.splitlines() if "No such file" not in line]


def test_the_package_installs_upgrades_without_a_refused_connection_and_leaves_nothing(
    machine: Machine, packages: dict[str, Path]
) -> None:
    """One story, since each step begins where the one before has ended."""
    first, second = (package.name for package in packages.values())
    build_it, install, *questions = commands("On Debian and Ubuntu")
    assert (ROOT / build_it).samefile(BUILD)
    print(machine.run(*as_dpkg(install, first)))
    password, *_ = (machine.run(*as_dpkg(each, first)).strip() for each in questions)
    service = ServiceOn(machine, password)
    assert service.state == "active"
    assert machine.systemctl("is-enabled", SERVICE).strip() == "enabled"
    assert machine.run("proxyfleet", "version").split()[1] == "1.0.0"
    assert machine.run("stat", "-c", "%U:%G %a", "/etc/proxyfleet/config.toml").strip() == "root:proxyfleet 640"
    unit = "/usr/lib/systemd/system/proxyfleet.service"
    assert machine.run("cat", unit) == (ROOT / "systemd" / "proxyfleet.service").read_text()
    assert machine.run("dpkg", "--verify", "proxyfleet") == ""

    machine.write("/etc/proxyfleet/config.toml", CONFIG)
    machine.systemctl("reload", SERVICE)
    service.proxy("one", PROXY)
    supervisor = service.pid
    with service.origin() as origin, service.knocking(origin, PROXY) as knocking:
        upgraded = machine.run(*as_dpkg(install, second))
        knocking.wait_for_more()
    assert knocking.failures == []
    assert "Upgraded from 1.0.0 to 2.0.0" in upgraded
    assert (service.state, service.pid) == ("active", supervisor)
    assert machine.run("cat", "/etc/proxyfleet/config.toml") == CONFIG

    remove, purge = commands("Remove the package")
    machine.run(*as_dpkg(remove, second))
    assert (service.state, machine.show(SERVICE, "LoadState")) == ("inactive", "not-found")
    assert machine.run("ls", "/var/lib/proxyfleet/fleet.sqlite").split()
    machine.run(*as_dpkg(purge, second))
    assert left(machine) == []
    assert "proxyfleet" not in machine.run("getent", "passwd")


def test_it_is_not_installed_over_what_the_script_has_installed(machine: Machine, packages: dict[str, Path]) -> None:
    machine.write("/etc/systemd/system/proxyfleet.service", "[Service]\nExecStart=/bin/true\n")
    refused = machine.run(*as_dpkg("sudo apt install ./dist/proxyfleet_", packages["1.0.0"].name), check=False)
    assert "scripts/install-systemd --uninstall first" in refused


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="missing: dpkg-deb")
def test_the_script_says_what_is_wrong_with_how_it_is_called() -> None:
    def said(*arguments: str) -> str:
        done = subprocess.run([str(BUILD), *arguments], capture_output=True, text=True, timeout=180)
        return done.stderr if done.returncode else done.stdout

    assert "unknown option --force" in said("--force")
    assert "--out needs a path" in said("--out")
    assert "no Python of Debian's" in said("--python", "/bin/true")
    assert "--environment DIR" in said("--help")
