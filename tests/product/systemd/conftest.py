"""One booted systemd for all tests of the service, which runs through them: a start of it takes seconds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.product.systemd.machine import ROOT, Machine, booted
from tests.product.systemd.service import CONFIG, PASSWORD, SERVICE, ServiceOn


def _units(machine: Machine) -> None:
    for unit in (ROOT / "systemd").glob("proxyfleet*"):
        shutil.copy(unit, machine.stage / "units")
    for folder in ("sysusers.d", "tmpfiles.d"):
        shutil.copytree(ROOT / "systemd" / folder, machine.stage / "etc" / folder)


@pytest.fixture(scope="package")
def machine() -> Iterator[Machine]:
    """A machine with the units, their account, and release 1.0.0 as what starts next."""
    with booted(_units) as machine:
        machine.run("systemd-sysusers", "/etc/sysusers.d/proxyfleet.conf")
        machine.run("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/proxyfleet.conf")
        machine.install("1")
        machine.write("/etc/proxyfleet/config.toml", CONFIG)
        machine.write("/etc/proxyfleet/credentials/admin-password", PASSWORD, 0o600)
        yield machine


@pytest.fixture
def stopped(machine: Machine) -> Iterator[ServiceOn]:
    """The service, which does not run."""
    service = ServiceOn(machine)
    machine.systemctl("stop", SERVICE)
    machine.systemctl("reset-failed")  # and counts its starts anew
    yield service
    _tidy(service)


@pytest.fixture
def started(machine: Machine) -> Iterator[ServiceOn]:
    """The service, which runs without a proxy."""
    service = ServiceOn(machine)
    machine.systemctl("reset-failed")
    service.start()
    yield service
    _tidy(service)


def _tidy(service: ServiceOn) -> None:
    """The next test has no proxies of this one."""
    print(service.machine.journal()[-20_000:])
    if service.state == "active":
        service.delete_proxies()
    else:
        service.machine.run("rm", "-rf", "/var/lib/proxyfleet")
