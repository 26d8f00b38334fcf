"""One booted systemd for all tests of a worker, with the service installed and its data of each test's own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.machine import ROOT, Machine, why_not
from tests.systemd.service import PASSWORD

CONFIG = """\
[proxy]
egress_allow = ["127.0.0.0/8"]

[security.rate_limiting]
enabled = false
"""


@pytest.fixture(scope="session")
def booted() -> Iterator[Machine]:
    """A machine on which nothing runs yet."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="pf-", dir="/tmp"))
    machine = Machine(folder)
    try:
        machine.prepare()
        machine.add_release("1", "1.0.0")
        machine.add_release("2", "2.0.0")
        for unit in (ROOT / "systemd").glob("proxyfleet*"):
            shutil.copy(unit, machine.stage / "units")
        for folder in ("sysusers.d", "tmpfiles.d"):
            shutil.copytree(ROOT / "systemd" / folder, machine.stage / "etc" / folder)
        machine.boot()
        machine.run("systemd-sysusers", "/etc/sysusers.d/proxyfleet.conf")
        machine.run("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/proxyfleet.conf")
        yield machine
    finally:
        machine.end()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def machine(booted: Machine) -> Iterator[Machine]:
    """The machine with the service stopped, without data and drop-ins of other tests."""
    booted.install("1")
    booted.write("/etc/proxyfleet/config.toml", CONFIG)
    booted.write("/etc/proxyfleet/credentials/admin-password", PASSWORD, 0o600)
    yield booted
    print(booted.journal()[-20_000:])
    booted.systemctl("stop", "proxyfleet.service", check=False)
    booted.systemctl("reset-failed", check=False)
    booted.run(
        "sh", "-c", "rm -rf /var/lib/proxyfleet /etc/systemd/system/proxyfleet.*.d/test-* /run/log/journal/*/*@*"
    )
    booted.systemctl("daemon-reload")
