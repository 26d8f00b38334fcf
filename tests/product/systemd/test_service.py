"""The service under a real systemd: start, credentials, reload, restart, crash, stop, activation, watchdog."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Sequence

from actors.supervision.listeners.descriptor_store import BATCH
from tests.kit.wait import wait_until
from tests.product.systemd.machine import ROOT, Machine
from tests.product.systemd.service import API, CONFIG, PASSWORD, PAUSE, SERVICE, ServiceOn

PROXY, SLEEPER = 3128, 3129
IDLE_STOP = 100.0
"""Seconds that a stop without connections may take on a machine that is busy with other tests, where the service may
drain for 300; it is far below a second on an idle one."""


def refused(machine: Machine, ports: Sequence[int]) -> list[int]:
    """Those of these ports that refuse a connection now."""
    found = []
    with machine.network():
        for port in ports:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=60).close()
            except ConnectionRefusedError:
                found.append(port)
    return found


def test_all_units_are_clean(machine: Machine) -> None:
    names = [path.name for path in sorted((ROOT / "systemd").glob("proxyfleet*"))]
    assert {"proxyfleet.service", "proxyfleet.socket", "proxyfleet-backup.timer"} <= set(names)
    assert machine.run("systemd-analyze", "verify", *(f"/etc/systemd/system/{name}" for name in names)) == ""


def test_the_account_and_the_folders_are_made_by_systemd(machine: Machine) -> None:
    assert machine.run("id", "-nG", "proxyfleet").strip() == "proxyfleet"
    folders = ("/etc/proxyfleet", "/etc/proxyfleet/credentials", "/var/backups/proxyfleet")
    assert machine.run("stat", "-c", "%U:%G %a", *folders).splitlines() == [
        "root:proxyfleet 750",
        "root:root 700",
        "proxyfleet:proxyfleet 700",
    ]


def test_start_is_over_when_the_service_is_ready_and_its_status_says_what_runs(stopped: ServiceOn) -> None:
    stopped.start()
    assert stopped.state == "active"
    assert stopped.health()["status"] == "healthy"
    assert "0 of 0 proxies running" in stopped.machine.show(SERVICE, "StatusText")
    stopped.machine.wait_for_entry("INFO actors.supervision.actor_supervisor: api runs")


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
    started.proxy("low", 80)
    with started.origin() as origin:
        assert started.fetch(origin, 80) == 200


def test_a_reload_takes_over_the_configuration_and_drops_nothing(started: ServiceOn) -> None:
    proxy = started.proxy("one", PROXY)
    with started.origin() as origin, started.knocking(origin, PROXY) as knocking:
        with started.reloaded(f'{CONFIG}\n[logging]\nlevel = "debug"\n'):
            wait_until(lambda: started.api("GET", "/settings")["logging"]["level"] == "debug", "it is debug")
            knocking.wait_for_more()
        wait_until(lambda: started.api("GET", "/settings")["logging"]["level"] == "info", "it is info again")
    assert knocking.failures == []
    assert started.running(proxy["id"]) is not None
    assert started.state == "active"


def test_a_reload_of_a_bad_file_changes_nothing_and_the_status_says_so(started: ServiceOn) -> None:
    def failed() -> bool:
        return "reload failed" in started.machine.show(SERVICE, "StatusText")

    with started.reloaded("[server]\nport = 99999\n"):
        wait_until(failed, "the status says it", pause=PAUSE)
        started.machine.wait_for_entry("server.port")
        assert started.health()["status"] == "healthy"
    wait_until(lambda: not failed(), "the status no longer says it", pause=PAUSE)


def test_a_stopped_or_deleted_proxy_leaves_the_store(started: ServiceOn) -> None:
    one, two = started.proxy("one", PROXY), started.proxy("two", PROXY + 1)
    started.wait_for_stored(3)
    started.api("POST", f"/proxies/{one['id']}/stop")
    started.api("DELETE", f"/proxies/{two['id']}")
    started.wait_for_stored(1)
    assert refused(started.machine, (PROXY, PROXY + 1)) == [PROXY, PROXY + 1]


def test_restarts_under_load_refuse_and_fail_nothing_and_a_sleeping_proxy_wakes_for_waiting_clients(
    started: ServiceOn,
) -> None:
    machine, first = started.machine, started.pid
    started.proxy("one", PROXY)
    sleeper = started.sleeper("two", SLEEPER)
    with started.origin() as origin, started.knocking(origin, PROXY) as knocking:
        machine.systemctl("restart", "--no-block", SERVICE)
        assert started.fetch(origin, SLEEPER) == 200
        started.wait_for_another(first)
        wait_until(lambda: started.sleeps(sleeper["id"]), "it sleeps again")
        knocking.wait_for_more()
        machine.systemctl("restart", SERVICE)
        assert started.sleeps(sleeper["id"])
        assert started.fetch(origin, SLEEPER) == 200
    assert knocking.failures == []
    started.wait_for_stored(3)
    assert started.health()["status"] == "healthy"


def test_a_killed_supervisor_is_started_again_with_all_its_ports_and_no_one_is_refused(started: ServiceOn) -> None:
    """It is killed just after a large range of ports was made, with one proxy under load and one asleep."""
    machine, ports = started.machine, range(20_000, 24_096)
    some = ports[::16]
    started.proxy("one", PROXY)
    sleeper = started.sleeper("two", SLEEPER)
    with started.origin() as origin:
        with started.knocking(origin, PROXY) as knocking:
            body = {"name": "wide", "port": f"{ports[0]}-{ports[-1]}", "protocol": "http"}
            wide = started.api("POST", "/proxies", body)["proxy"]
            killed = started.pid
            machine.run("kill", "-KILL", str(killed))
            assert refused(machine, some) == []
            assert started.fetch(origin, SLEEPER) == 200
            started.wait_for_another(killed)
            assert refused(machine, some) == []
            wait_until(lambda: started.running(wide["id"]), "the wide one runs")
            assert refused(machine, some) == []
            knocking.wait_for_more()
        assert [each for each in knocking.failures if "refused" in each.lower()] == []
        wait_until(lambda: started.sleeps(sleeper["id"]), "it sleeps again")

        stored = 3 + math.ceil(len(ports) / BATCH)  # together, since systemd compares each descriptor with all others
        started.wait_for_stored(stored)
        machine.systemctl("restart", SERVICE)
        assert started.sleeps(sleeper["id"])
        wait_until(lambda: started.running(wide["id"]), "the wide one runs")
        assert started.stored == stored
        assert {started.fetch(origin, port) for port in (ports[0], ports[500], ports[-1], SLEEPER)} == {200}
    assert started.health()["status"] == "healthy"
    started.api("DELETE", f"/proxies/{wide['id']}")
    started.wait_for_stored(3)


def test_a_stop_ends_the_service_for_good(started: ServiceOn) -> None:
    started.proxy("one", PROXY)
    started.wait_for_stored(2)
    machine = started.machine
    began = time.monotonic()
    machine.systemctl("stop", SERVICE)
    assert time.monotonic() - began < IDLE_STOP
    assert started.state == "inactive"
    assert machine.show(SERVICE, "Result") == "success"
    assert started.stored == 0
    assert refused(machine, (PROXY, API)) == [PROXY, API]


def test_a_caller_at_the_socket_unit_starts_the_service_and_the_watchdog_kills_one_that_hangs(
    stopped: ServiceOn,
) -> None:
    machine = stopped.machine
    machine.systemctl("start", "proxyfleet.socket")
    try:
        assert stopped.state == "inactive"
        assert stopped.health()["uptime_seconds"] >= 0  # the caller's response, which may come before all are ready
        wait_until(lambda: stopped.state == "active", "the caller has started it", pause=PAUSE)
        assert stopped.health()["status"] == "healthy"
        machine.drop_in("test-watchdog", "[Service]\nWatchdogSec=5s\n")
        stopped.proxy("one", PROXY)
        with stopped.origin() as origin, stopped.knocking(origin, PROXY) as knocking:
            machine.systemctl("restart", SERVICE)
        assert knocking.failures == []

        first = stopped.pid
        machine.run("kill", "-STOP", str(first))
        stopped.wait_for_another(first)
        machine.wait_for_entry("Watchdog timeout")
        assert stopped.health()["status"] == "healthy"
    finally:
        machine.run("rm", "/etc/systemd/system/proxyfleet.service.d/test-watchdog.conf", check=False)
        machine.systemctl("daemon-reload")
        machine.systemctl("stop", "proxyfleet.socket")
