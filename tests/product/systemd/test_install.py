"""`scripts/install-systemd` on a machine that has never seen the product: install, upgrade, go back, remove."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.cluster import Nodes
from tests.kit.postgresql import needs_postgresql
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.systemd.machine import RELEASES, ROOT, Machine, booted
from tests.product.systemd.service import SERVICE, ServiceOn

SCRIPT = str(ROOT / "scripts" / "install-systemd")


def _broken_release(machine: Machine) -> None:
    broken = machine.add_release("3", "3.0.0")
    (broken / "lib" / "api" / "process.py").write_text("this is no Python")


@pytest.fixture(scope="module")
def bare() -> Iterator[Machine]:
    """A machine without the units, on which environments of two versions lie ready, and a broken one."""
    with booted(_broken_release) as machine:
        yield machine


def _left_of_the_product(machine: Machine) -> list[str]:
    """Files that have its name, but for the checkout, which may lie anywhere on the machine."""
    places = ("/etc", "/var", "/opt/proxyfleet", "/run/proxyfleet")
    wanted = ("-path", str(ROOT), "-prune", "-o", "-name", "*proxyfleet*", "-print")
    found = machine.run("find", *places, *wanted, check=False)
    return [line for line in found.splitlines() if "No such file" not in line]


def test_install_upgrade_go_back_and_remove(bare: Machine) -> None:
    """One story, since each step begins where the one before has ended."""
    service = ServiceOn(bare)
    said = bare.run(SCRIPT, "--environment", str(RELEASES / "1"), "--backup")
    assert "proxyfleet 1.0.0" in said
    assert "/var/lib/proxyfleet/initial-admin-password" in said
    assert service.state == "active"
    assert bare.systemctl("is-enabled", SERVICE).strip() == "enabled"
    assert bare.run("stat", "-c", "%U:%G %a", "/etc/proxyfleet/config.toml").strip() == "root:proxyfleet 640"
    passphrase = "/etc/proxyfleet/credentials/backup-passphrase"
    assert passphrase in said
    assert bare.run("stat", "-c", "%U %a", passphrase).strip() == "root 600"
    first = service.pid

    bare.systemctl("start", "proxyfleet-backup.service")
    archive = bare.run("find", "/var/backups/proxyfleet", "-name", "*.tar.gz").strip()
    elsewhere = ("--data-dir", "/var/elsewhere", "--passphrase-file", passphrase, "--yes")
    assert "Restored" in bare.run(str(RELEASES / "1" / "bin" / "proxyfleet"), "restore", archive, *elsewhere)

    assert "Upgraded from 1.0.0 to 2.0.0" in bare.run(SCRIPT, "--environment", str(RELEASES / "2"))
    assert service.pid == first

    refused = bare.run(SCRIPT, "--environment", str(RELEASES / "3"), check=False)
    assert "The one before goes on" in refused
    assert "api.process" in refused
    assert bare.run("readlink", "-f", "/opt/proxyfleet/current").strip() == str(RELEASES / "2")
    assert (service.state, service.pid) == ("active", first)

    bare.run(SCRIPT, "--uninstall")
    assert service.state == "inactive"
    assert bare.show(SERVICE, "LoadState") == "not-found"
    assert bare.run("ls", "/var/lib/proxyfleet/fleet.sqlite").split()
    bare.drop_in("own", "[Service]\n", "proxyfleet-backup.service")
    bare.run(SCRIPT, "--uninstall", "--purge")
    assert _left_of_the_product(bare) == []
    assert "proxyfleet" not in bare.run("getent", "passwd")


@needs_postgresql
def test_a_machine_joins_a_fleet_before_its_first_start() -> None:
    with booted() as bare, bare.network(), Nodes() as nodes:  # in the machine's own network
        first = nodes.product()
        nodes.init(first)
        line = first.data("POST", "/nodes/tokens", {"name": "fra2"})["line"]
        words = (SCRIPT, "--environment", str(RELEASES / "1"), "--join", "-", "--address", "127.0.0.1")
        refused = bare.run(*words, text=f"{line[:-1]}\n", check=False)
        assert "run this again with a token" in refused
        assert ServiceOn(bare).state == "inactive"
        said = bare.run(*words, text=line)
        assert "This installation is the node fra2 of the fleet" in said
        assert "The password of" not in said, "its users are those of the fleet"
        assert line not in said + bare.journal()
        wait_until(lambda: _state(first, "fra2") == "up", "it is up")
        assert "is a node already" in bare.run(*words, text=line)
        assert ServiceOn(bare).state == "active"


def _state(product: Product, name: str) -> str | None:
    found = {each["name"]: each["state"] for each in product.data("GET", "/nodes")["nodes"]}
    return found.get(name)


def test_it_says_what_is_wrong_with_how_it_is_called(bare: Machine) -> None:
    assert "unknown option --force" in bare.run(SCRIPT, "--force", check=False)
    assert "has no bin/proxyfleet" in bare.run(SCRIPT, "--environment", "/usr", check=False)
    assert "--prefix needs a directory" in bare.run(SCRIPT, "--prefix", check=False)
    assert "--python /path/to/python3.11" in bare.run(SCRIPT, "--python", "/missing", check=False)
    assert "--join needs a token" in bare.run(SCRIPT, "--join", check=False)
    assert "no token on standard input" in bare.run(SCRIPT, "--join", "-", text="", check=False)
    assert "--prefix /" in bare.run(SCRIPT, "--prefix", "/", check=False)
    assert "--uninstall" in bare.run(SCRIPT, "--help")


@pytest.mark.skipif(os.geteuid() != 0 or Path("/run/systemd/system").exists(), reason="root without systemd")
def test_without_systemd_it_names_what_to_do_instead() -> None:
    done = subprocess.run([SCRIPT, "--no-start"], capture_output=True, text=True, timeout=180)
    assert done.returncode == 1
    assert "scripts/serve" in done.stderr
