"""One booted systemd for all tests of a worker, with the service installed and its data of each test's own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.product.systemd.machine import ROOT, Machine, booted
from tests.product.systemd.service import PASSWORD

CONFIG = """\
[proxy]
egress_allow = ["127.0.0.0/8"]

[security.rate_limiting]
enabled = false
"""


def _units(machine: Machine) -> None:
    for unit in (ROOT / "systemd").glob("proxyfleet*"):
        shutil.copy(unit, machine.stage / "units")
    for folder in ("sysusers.d", "tmpfiles.d"):
        shutil.copytree(ROOT / "systemd" / folder, machine.stage / "etc" / folder)


@pytest.fixture(scope="session")
def furnished() -> Iterator[Machine]:
    """A machine with the units and their account, on which nothing runs yet."""
    with booted(_units) as machine:
        machine.run("systemd-sysusers", "/etc/sysusers.d/proxyfleet.conf")
        machine.run("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/proxyfleet.conf")
        yield machine


@pytest.fixture
def machine(furnished: Machine) -> Iterator[Machine]:
    """The machine with the service stopped, without data and drop-ins of other tests."""
    furnished.install("1")
    furnished.write("/etc/proxyfleet/config.toml", CONFIG)
    furnished.write("/etc/proxyfleet/credentials/admin-password", PASSWORD, 0o600)
    yield furnished
    print(furnished.journal()[-20_000:])
    furnished.systemctl("stop", "proxyfleet.service", check=False)
    furnished.systemctl("reset-failed", check=False)
    furnished.run(
        "sh", "-c", "rm -rf /var/lib/proxyfleet /etc/systemd/system/proxyfleet.*.d/test-* /run/log/journal/*/*@*"
    )
    furnished.systemctl("daemon-reload")
