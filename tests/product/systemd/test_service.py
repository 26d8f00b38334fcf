"""The service under a real systemd: start, credentials, reload, restart, crash, watchdog, stop, socket activation."""

from __future__ import annotations

import math
import socket
import time

import pytest
import requests

from actors.supervision.listeners.socket_batch import BATCH
from tests.kit.wait import wait_until
from tests.product.systemd.machine import Machine
from tests.product.systemd.service import API, PASSWORD, SERVICE, ServiceOn

PROXY = 3128
DRAIN, IDLE_STOP = 300, 100.0
"""Seconds that connections may take to finish, and that a stop without any may take on a machine that is busy with
other tests; it is far below a second on an idle one."""


@pytest.fixture
def service(machine: Machine) -> ServiceOn:
    return ServiceOn(machine)


@pytest.fixture
def started(service: ServiceOn) -> ServiceOn:
    service.start()
    return service


def refuses(machine: Machine, port: int) -> bool:
    with machine.network(), socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_start_is_over_when_the_service_is_ready_and_its_status_says_what_runs(service: ServiceOn) -> None:
    service.start()
    assert service.state == "active"
    assert service.health()["status"] == "healthy"
    assert "0 of 0 proxies running" in service.machine.show(SERVICE, "StatusText")


def test_the_first_password_is_a_credential_and_is_written_nowhere(started: ServiceOn) -> None:
    assert started.api("GET", "/users")["users"][0]["username"] == "admin"
    machine = started.machine
    assert machine.run("sh", "-c", "test -e /var/lib/proxyfleet/initial-admin-password || echo none").strip() == "none"
    assert machine.run("grep", "-rl", PASSWORD, "/var/lib/proxyfleet", "/run/proxyfleet", check=False).strip() == ""
    assert PASSWORD not in machine.journal()
    environment = machine.run("sh", "-c", "cat /proc/[0-9]*/environ | tr '\\0' '\\n'")
    assert PASSWORD not in environment


def test_its_processes_are_an_account_of_their_own_with_one_capability_at_most(started: ServiceOn) -> None:
    status = started.machine.run("cat", f"/proc/{started.pid}/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(fields["CapEff"], 16) == 1 << 10  # CAP_NET_BIND_SERVICE, capability.h
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2"
    assert started.machine.run("stat", "-c", "%U %a", "/run/proxyfleet", "/var/lib/proxyfleet").splitlines() == [
        "proxyfleet 700",
        "proxyfleet 700",
    ]


def test_a_proxy_below_port_1024_needs_no_root(started: ServiceOn) -> None:
    with started.origin() as origin:
        proxy = started.proxy("low", 80)
        with started.machine.network():
            response = requests.get(
                origin.url("/hello"), proxies={"http": f"http://127.0.0.1:{proxy['port']}"}, timeout=30
            )
    assert response.status_code == 200


def test_a_restart_under_load_refuses_and_fails_nothing(started: ServiceOn) -> None:
    started.proxy("one", PROXY)
    first = started.pid
    with started.origin() as origin, started.knocking(origin, PROXY) as knocking:
        started.machine.systemctl("restart", SERVICE)
        assert started.pid != first
        knocking.wait_for_more()
        started.machine.systemctl("restart", SERVICE)
    assert knocking.failures == []
    wait_until(lambda: started.stored == 2, "the listeners of the API and of the proxy are stored")


def test_a_killed_supervisor_is_started_again_and_no_one_is_refused(started: ServiceOn) -> None:
    started.proxy("one", PROXY)
    first = started.pid
    with started.origin() as origin, started.knocking(origin, PROXY) as knocking:
        started.machine.run("kill", "-KILL", str(first))
        wait_until(lambda: started.pid not in (0, first) and started.state == "active", "the service is back")
        knocking.wait_for_more()
    assert [each for each in knocking.failures if "refused" in each.lower()] == []


@pytest.mark.parametrize("killed", [False, True], ids=["restarted", "killed"])
def test_a_proxy_stays_asleep_when_the_service_ends_and_wakes_for_waiting_clients(
    started: ServiceOn, killed: bool
) -> None:
    machine, proxy = started.machine, started.proxy("one", PROXY, sleep_after=1)
    wait_until(lambda: started.runtime(proxy["id"])["state"] == "sleeping", "it sleeps")
    first = started.pid
    end = ("kill", "-KILL", str(first)) if killed else ("systemctl", "restart", "--no-block", SERVICE)
    machine.run(*end)
    with started.origin() as origin, machine.network():
        url = origin.url("/hello")
        response = requests.get(url, proxies={"http": f"http://127.0.0.1:{PROXY}"}, timeout=120)
        assert response.status_code == 200
        wait_until(lambda: started.pid not in (0, first) and started.state == "active", "the service is back")
        wait_until(lambda: started.runtime(proxy["id"])["state"] == "sleeping", "it sleeps again")
        machine.systemctl("restart", SERVICE)
        assert started.runtime(proxy["id"])["state"] == "sleeping"
        assert requests.get(url, proxies={"http": f"http://127.0.0.1:{PROXY}"}, timeout=120).status_code == 200
    assert started.health()["status"] == "healthy"


def test_a_supervisor_that_hangs_is_killed_by_the_watchdog_and_started_again(service: ServiceOn) -> None:
    service.machine.drop_in("test-watchdog", "[Service]\nWatchdogSec=5s\n")
    service.start()
    first = service.pid
    service.machine.run("kill", "-STOP", str(first))
    wait_until(lambda: service.pid not in (0, first) and service.state == "active", "the service is back")
    assert "Watchdog timeout" in service.machine.journal()
    assert service.health()["status"] == "healthy"


def test_a_reload_takes_over_the_configuration_and_drops_nothing(started: ServiceOn) -> None:
    proxy = started.proxy("one", PROXY)
    with started.origin() as origin, started.knocking(origin, PROXY) as knocking:
        started.machine.run("sh", "-c", "printf '[logging]\\nlevel = \"debug\"\\n' >>/etc/proxyfleet/config.toml")
        started.machine.systemctl("reload", SERVICE)
        wait_until(lambda: started.api("GET", "/settings")["logging"]["level"] == "debug", "it is debug")
        knocking.wait_for_more()
    assert knocking.failures == []
    assert started.running(proxy["id"]) is not None
    assert started.state == "active"


def test_a_reload_of_a_bad_file_changes_nothing_and_the_status_says_so(started: ServiceOn) -> None:
    started.machine.write("/etc/proxyfleet/config.toml", "[server]\nport = 99999\n")
    started.machine.systemctl("reload", SERVICE)
    wait_until(lambda: "reload failed" in started.machine.show(SERVICE, "StatusText"), "the status says it")
    assert "server.port" in started.machine.journal()
    assert started.health()["status"] == "healthy"


def test_a_stopped_or_deleted_proxy_leaves_the_store(started: ServiceOn) -> None:
    one, two = started.proxy("one", PROXY), started.proxy("two", PROXY + 1)
    wait_until(lambda: started.stored == 3, "the listeners of the API and of both are stored")
    started.api("POST", f"/proxies/{one['id']}/stop")
    started.api("DELETE", f"/proxies/{two['id']}")
    wait_until(lambda: started.stored == 1, "the API's is left")
    assert refuses(started.machine, PROXY)
    assert refuses(started.machine, PROXY + 1)


def test_a_stop_ends_it_for_good_and_soon_when_it_is_idle(service: ServiceOn) -> None:
    config = "/etc/proxyfleet/config.toml"
    service.machine.run("sh", "-c", f"printf '[server]\\ndrain_timeout = {DRAIN}\\n' >>{config}")
    service.start()
    service.proxy("one", PROXY)
    began = time.monotonic()
    service.machine.systemctl("stop", SERVICE)
    assert time.monotonic() - began < IDLE_STOP
    assert service.state == "inactive"
    assert service.machine.show(SERVICE, "Result") == "success"
    assert service.stored == 0
    assert refuses(service.machine, PROXY)
    assert refuses(service.machine, API)


def test_any_who_comes_to_the_socket_unit_starts_the_service(service: ServiceOn) -> None:
    machine = service.machine
    machine.systemctl("start", "proxyfleet.socket")
    try:
        assert service.state == "inactive"
        assert service.health()["status"] == "healthy"
        assert service.state == "active"
        with service.origin() as origin:
            service.proxy("one", PROXY)
            with service.knocking(origin, PROXY) as knocking:
                machine.systemctl("restart", SERVICE)
            assert knocking.failures == []
    finally:
        machine.systemctl("stop", "proxyfleet.socket", SERVICE)


def test_an_upgrade_keeps_the_process_and_refuses_and_fails_nothing(started: ServiceOn) -> None:
    started.proxy("one", PROXY)
    first, machine = started.pid, started.machine
    with started.origin() as origin, started.knocking(origin, PROXY) as knocking:
        machine.install("2")
        said = machine.run(
            "/opt/proxyfleet/current/bin/proxyfleet", "upgrade", "--config", "/etc/proxyfleet/config.toml"
        )
        assert said.startswith("Upgraded from 1.0.0 to 2.0.0")
        knocking.wait_for_more()
    assert knocking.failures == []
    assert (started.pid, started.state, started.health()["version"]) == (first, "active", "2.0.0")
    wait_until(lambda: started.stored == 2, "the listeners of the API and of the proxy are stored")
    machine.systemctl("restart", SERVICE)
    assert started.health()["version"] == "2.0.0"


def test_logs_are_in_the_journal_with_their_level(started: ServiceOn) -> None:
    assert "INFO actors.supervision.actor_supervisor: api runs" in started.machine.journal()


def refused(service: ServiceOn, ports: range) -> list[int]:
    """Those of these ports that refuse a connection now."""
    found = []
    with service.machine.network():
        for port in ports:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=60).close()
            except ConnectionRefusedError:
                found.append(port)
    return found


def test_a_thousand_ports_are_stored_and_the_service_starts_again_with_them(started: ServiceOn) -> None:
    """Together, since systemd compares each descriptor with all others."""
    first, ports = 20_000, 1_000
    stored = 1 + math.ceil(ports / BATCH)
    made = started.proxy("wide", f"{first}-{first + ports - 1}")
    wait_until(lambda: started.stored == stored, "all of them and the listener of the API are stored", 120)
    with started.origin() as origin:
        started.machine.systemctl("restart", SERVICE)
        wait_until(lambda: started.running(made["id"]), "it runs", 120)
        assert started.stored == stored
        with started.machine.network():
            for port in (first, first + 500, first + ports - 1):
                proxies = {"http": f"http://127.0.0.1:{port}"}
                assert requests.get(origin.url("/hello"), proxies=proxies, timeout=30).status_code == 200
    started.api("DELETE", f"/proxies/{made['id']}")
    wait_until(lambda: started.stored == 1, "the API's is left", 120)


def test_a_supervisor_that_is_killed_just_after_a_large_range_was_made_leaves_no_port_of_it_refused(
    started: ServiceOn,
) -> None:
    ports = range(20_000, 24_096)
    body = {"name": "wide", "port": f"{ports[0]}-{ports[-1]}", "protocol": "http"}
    made = started.api("POST", "/proxies", body)["proxy"]
    killed = started.pid
    started.machine.run("kill", "-KILL", str(killed))
    assert refused(started, ports[::16]) == []
    wait_until(lambda: started.pid not in (0, killed), "the service is started again", 120)
    assert refused(started, ports[::16]) == []
    wait_until(lambda: started.running(made["id"]), "it runs", 120)
    assert refused(started, ports[::16]) == []
