"""The service under a real systemd."""

from __future__ import annotations

import requests

from tests.systemd.machine import Machine


def test_the_service_starts_and_says_how_it_goes(machine: Machine) -> None:
    machine.systemctl("start", "proxyfleet")
    assert machine.show("proxyfleet", "ActiveState") == "active"
    with machine.network():
        assert requests.get("http://127.0.0.1:8080/health", timeout=10).status_code == 200
    assert "0 of 0 proxies running" in machine.show("proxyfleet", "StatusText")
