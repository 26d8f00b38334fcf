"""The supervisor as a real process with stand-ins for its actors: what it promises when things die."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import replace

import psutil
import pytest

from actors.bus.messages.common import Done, Failed
from actors.bus.messages.specs import FleetObject, ProxySpec
from actors.bus.messages.supervision import (
    ApplyObjects,
    ApplyProxies,
    CancelListeners,
    DesiredRevisions,
    ListenerRefused,
    ListenerReserved,
    QueryDesired,
    ReplaceProxies,
    ReserveListener,
    RestartProxy,
    Runtime,
)
from actors.supervision.listeners.descriptor_store import name_of
from actors.supervision.proxies.reconcile import BIND_BATCH
from actors.supervision.supervisor import SAME_SIGNAL
from tests.actor.supervision.manager import Manager
from tests.actor.supervision.supervised import Caller, Supervised, greeting, refuses
from tests.kit.ports import free_port, free_ports
from tests.kit.standin_actors import spec
from tests.kit.wait import wait_until


def left(family: list[psutil.Process]) -> list[str]:
    """Those that still live, with their state; a zombie waits for its reaper and does nothing more."""
    alive = []
    for process in family:
        try:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(f"{process.name()}: {process.status()}")
        except psutil.NoSuchProcess:
            continue
    return alive


def test_a_proxy_put_runs_and_its_process_serves(supervised: Supervised) -> None:
    port = free_port()
    supervised.put(spec("one", port))
    runtime = supervised.running("one")
    assert greeting(port)[0] == runtime.pid
    assert runtime.restarts == 0


def test_an_actor_killed_is_back_at_once_and_no_connection_is_refused(supervised: Supervised) -> None:
    port = free_port()
    supervised.put(spec("one", port))
    first = supervised.running("one").pid
    assert first is not None
    with Caller(port) as caller:
        wait_until(lambda: caller.pids, "the caller gets through")
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: caller.pids[-1] != first, "another process serves")
    assert caller.failures == []
    runtime = supervised.running("one", but_not=first)
    assert runtime.restarts == 1
    assert f"name of one ({port}) died" in supervised.log


def test_a_restart_refuses_and_drops_nothing_and_lets_the_old_process_finish(supervised: Supervised) -> None:
    port = free_port()
    supervised.put(spec("one", port))
    before = supervised.running("one")
    first = before.pid
    with socket.create_connection(("127.0.0.1", port), timeout=60) as old, Caller(port) as caller:
        old_lines = old.makefile("r")
        assert int(old_lines.readline().split()[0]) == first
        assert supervised.ask(RestartProxy("one")) == Done()
        second = supervised.running("one", but_not=first).pid
        wait_until(lambda: caller.pids and caller.pids[-1] == second, "the new process serves")
        old.sendall(b"still there?\n")
        assert old_lines.readline() == "still there?\n"
    assert caller.failures == []
    wait_until(lambda: not psutil.pid_exists(first or 0), "the old process has ended")
    assert supervised.runtime("one").restarts == 0
    assert supervised.runtime("one").since > before.since


def test_ten_restarts_under_load_refuse_and_drop_nothing(supervised: Supervised) -> None:
    port = free_port()
    supervised.put(spec("one", port))
    served = supervised.running("one").pid
    with Caller(port) as caller:
        for _ in range(10):
            wait_until(lambda: caller.pids and caller.pids[-1] == served, "it serves")  # noqa: B023
            assert supervised.ask(RestartProxy("one")) == Done()
            served = supervised.running("one", but_not=served).pid
    assert caller.failures == []
    assert len(set(caller.pids)) >= 10


def test_a_reload_while_connections_drain_cuts_no_one(supervise: Callable[..., Supervised]) -> None:
    supervised, port = supervise(drain=30), free_port()
    supervised.put(spec("one", port))
    supervised.running("one")
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection, connection.makefile("r") as lines:
        lines.readline()
        for number, said in ((signal.SIGTERM, "draining"), (signal.SIGHUP, "ignoring SIGHUP")):
            supervised.process.send_signal(number)
            wait_until(lambda: said in supervised.log or supervised.process.poll() is not None, said)  # noqa: B023
        connection.sendall(b"still there?\n")
        assert lines.readline() == "still there?\n"
    assert supervised.process.wait(60) == 0


def test_a_stopped_proxy_refuses_connections_when_the_reply_comes(supervised: Supervised) -> None:
    port = free_port()
    supervised.put(spec("one", port))
    supervised.running("one")
    supervised.put(spec("one", port, active=False, revision=2))
    assert refuses(port)
    wait_until(lambda: supervised.runtime("one").state == "stopped", "it has stopped")
    supervised.put(spec("one", port, revision=3))
    supervised.running("one")
    assert greeting(port)[2] == 3


def test_a_stopping_proxy_lets_its_connections_finish_until_the_deadline(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise(drain=8.0)
    port = free_port()
    supervised.put(spec("one", port))
    supervised.running("one")
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        lines = client.makefile("r")
        lines.readline()
        supervised.put(spec("one", port, active=False, revision=2))
        assert supervised.runtime("one").state == "draining"
        client.sendall(b"hello\n")
        assert lines.readline() == "hello\n"
        assert lines.readline() == ""
    wait_until(lambda: supervised.runtime("one").state == "stopped", "it has stopped")


def test_a_removed_proxy_is_gone_and_an_older_put_does_not_bring_it_back(supervised: Supervised) -> None:
    port = free_port()
    supervised.put(spec("one", port))
    supervised.running("one")
    assert supervised.ask(ApplyProxies((), ("one",))) == Done()
    assert refuses(port)
    assert supervised.ask(ApplyProxies((spec("one", port),))) == Done()
    assert "one" not in supervised.fleet().proxies


def test_an_older_revision_is_ignored_and_a_newer_one_reaches_the_process(supervised: Supervised) -> None:
    port = free_port()
    supervised.put(spec("one", port, revision=5))
    supervised.running("one")
    supervised.put(spec("one", port, revision=4))
    supervised.put(spec("one", port, revision=6))
    wait_until(lambda: greeting(port)[2] == 6, "the newer revision is in force")


def an_object(key: str, *names: str, revision: int = 1, content: str = "") -> FleetObject:
    return FleetObject(key, f"id of {key}", revision, names, (content or key).encode())


def objects_at(port: int) -> dict[str, str]:
    """The objects that the process of a proxy has, by key."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client, client.makefile("r") as lines:
        lines.readline()
        client.sendall(b"objects\n")
        found: dict[str, str] = json.loads(lines.readline())
        return found


def naming(proxy: ProxySpec, *keys: str) -> ProxySpec:
    return replace(proxy, objects=keys)


def test_a_process_has_what_its_proxy_names_when_the_change_is_acknowledged(supervised: Supervised) -> None:
    ports = [free_port(), free_port()]
    policy, pool = an_object("policy:p", "pool:a"), an_object("pool:a")
    assert supervised.ask(ApplyObjects((policy, pool, an_object("pool:b")))) == Done()
    supervised.put(naming(spec("one", ports[0]), "policy:p"))
    supervised.put(spec("two", ports[1]))
    supervised.running("one")
    supervised.running("two")
    assert [objects_at(port) for port in ports] == [{"policy:p": "policy:p", "pool:a": "pool:a"}, {}]
    for revision in range(2, 12):
        changed = an_object("pool:a", revision=revision, content=f"content {revision}")
        assert supervised.ask(ApplyObjects((changed,))) == Done()
        assert objects_at(ports[0])["pool:a"] == f"content {revision}"
    assert supervised.ask(ApplyObjects((an_object("pool:a", revision=3, content="late"),))) == Done()
    assert objects_at(ports[0])["pool:a"] == "content 11"
    assert objects_at(ports[1]) == {}


def test_another_process_of_a_proxy_has_its_objects_and_so_has_one_that_is_changed(supervised: Supervised) -> None:
    port = free_port()
    supervised.ask(ApplyObjects((an_object("pool:a"),)))
    supervised.put(naming(spec("one", port), "pool:a"))
    first = supervised.running("one").pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    supervised.running("one", but_not=first)
    assert objects_at(port) == {"pool:a": "pool:a"}
    supervised.put(naming(spec("one", port, revision=2), "pool:a"))
    wait_until(lambda: greeting(port)[2] == 2, "the change has arrived")
    assert objects_at(port) == {"pool:a": "pool:a"}
    supervised.put(spec("one", port, revision=3))
    wait_until(lambda: objects_at(port) == {}, "the proxy names nothing any more")


def test_what_is_replaced_as_a_whole_is_all_there_is(supervised: Supervised) -> None:
    port = free_port()
    supervised.ask(ApplyObjects((an_object("pool:a"), an_object("pool:b"))))
    proxy = naming(spec("one", port), "pool:a", "pool:b")
    supervised.put(proxy)
    supervised.running("one")
    assert supervised.ask(ApplyObjects((), ("id of pool:b",))) == Done()
    assert objects_at(port).keys() == {"pool:a"}
    assert supervised.ask(ReplaceProxies((proxy,), (an_object("pool:b"),))) == Done()
    assert objects_at(port).keys() == {"pool:b"}


def test_of_all_proxies_only_those_are_sent_that_the_supervisor_does_not_have(supervised: Supervised) -> None:
    kept, gone, new = free_port(), free_port(), free_port()
    supervised.put(spec("kept", kept))
    supervised.put(spec("gone", gone))
    pid = supervised.running("kept").pid
    assert supervised.ask(QueryDesired()) == DesiredRevisions({"kept": 1, "gone": 1})
    refused = supervised.ask(ReplaceProxies((), (), ("kept", "stranger")))
    assert isinstance(refused, Failed)
    assert supervised.ask(QueryDesired()) == DesiredRevisions({"kept": 1, "gone": 1})
    assert supervised.ask(ReplaceProxies((spec("new", new, revision=7),), (), ("kept",))) == Done()
    assert supervised.ask(QueryDesired()) == DesiredRevisions({"kept": 1, "new": 7})
    supervised.running("new")
    assert supervised.running("kept").pid == pid
    assert refuses(gone)


def test_hundreds_that_sleep_listen_and_of_them_only_changes_are_reported(supervised: Supervised) -> None:
    ports = list(free_ports(3 * BIND_BATCH))
    specs = tuple(spec(f"p{number:03}", port, sleep_after=3600) for number, port in enumerate(ports))
    assert supervised.ask(ReplaceProxies(specs)) == Done()
    assert not any(map(refuses, ports[-3:]))  # which wakes them
    for number in (-1, -2, -3):
        supervised.running(specs[number].id)
    first = supervised.asleep_since(0)
    assert (first.asleep_all, len(first.asleep)) == (True, len(ports) - 3)
    assert first.proxies.keys() == {each.id for each in specs[-3:]}
    assert not refuses(ports[0])
    supervised.running("p000")
    second = supervised.asleep_since(first.asleep_step)
    assert (second.asleep_all, second.asleep, second.woken) == (False, {}, ("p000",))
    assert second.proxies.keys() == first.proxies.keys() | {"p000"}
    assert supervised.runtime("p001").state == "sleeping"


def test_a_port_in_use_is_refused_by_name(supervised: Supervised) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        refused = supervised.ask(ReserveListener("one", "127.0.0.1", port))
    assert isinstance(refused, ListenerRefused)
    assert refused.field == "port"
    assert "already in use" in refused.error


def test_a_proxy_whose_port_is_taken_fails_and_runs_when_the_port_is_free(supervised: Supervised) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert supervised.ask(ReplaceProxies((spec("one", port),))) == Done()
        runtime = supervised.runtime("one")
        assert runtime.state == "failed"
        assert "already in use" in (runtime.error or "")
    supervised.running("one")


def test_processes_that_hang_or_are_stopped_are_killed_and_replaced_and_the_others_stay(supervised: Supervised) -> None:
    ports = {name: free_port() for name in ("hung", "stopped", "good")}
    for name, port in ports.items():
        supervised.put(spec(name, port))
    before = {name: supervised.running(name).pid or 0 for name in ports}
    with socket.create_connection(("127.0.0.1", ports["hung"]), timeout=60) as client:
        client.sendall(b"hang\n")
        os.kill(before["stopped"], signal.SIGSTOP)
        for name in ("hung", "stopped"):
            wait_until(lambda name=name: supervised.runtime(name).pid != before[name], "it was killed", pause=0.2)
    for name in ("hung", "stopped"):
        supervised.running(name, but_not=before[name])
    assert supervised.runtime("good").pid == before["good"]
    assert "silent" in supervised.log


def test_a_dead_zygote_is_replaced_and_its_children_live_on(supervised: Supervised) -> None:
    port, other = free_port(), free_port()
    supervised.put(spec("one", port))
    first = supervised.running("one").pid
    assert first is not None
    zygote = supervised.zygote()
    zygote.kill()
    wait_until(lambda: not zygote.is_running(), "the zygote is gone")
    supervised.put(spec("two", other))
    supervised.running("two")
    assert greeting(port)[0] == first
    os.kill(first, signal.SIGKILL)
    supervised.running("one", but_not=first)
    wait_until(lambda: len(left(supervised.family())) == len(supervised.family()), "no zombie is left")


def test_every_other_actor_killed_is_back(supervised: Supervised) -> None:
    killed = ("metrics", "logs", "webhooks", "resolver", "api")

    def all_run() -> dict[str, Runtime] | None:
        found = supervised.fleet().actors
        return found if all(found[name].pid for name in killed) else None

    before = wait_until(all_run, "all of them run")
    for name in killed:
        pid = before[name].pid
        assert pid  # 0 would be all of this test's group
        os.kill(pid, signal.SIGKILL)

    def all_back() -> bool:
        try:
            now = supervised.fleet().actors
        except (OSError, ValueError):
            return False  # the API's stand-in is just being started again
        return all(now[name].state == "running" and now[name].pid != before[name].pid for name in killed)

    wait_until(all_back, "all of them run again")


def test_an_actor_that_dies_at_every_start_is_tried_again_with_growing_delays(
    supervise: Callable[..., Supervised],
) -> None:
    supervised = supervise(forwarding="tests.kit.standin_actors:StubbornAtStart")
    supervised.put(spec("one", free_port()))
    wait_until(lambda: supervised.runtime("one").restarts >= 3, "three restarts")
    assert supervised.runtime("one").restarts < 10
    assert "ended with status 1" in (supervised.runtime("one").error or supervised.log)


def test_the_supervisor_killed_leaves_no_process_and_no_port(supervised: Supervised) -> None:
    ports = [free_port() for _ in range(3)]
    for port in ports:
        supervised.put(spec(f"p{port}", port))
        supervised.running(f"p{port}")
    with socket.create_connection(("127.0.0.1", ports[0]), timeout=60) as client:
        client.sendall(b"hang\n")  # one of them can't even notice
        wait_until(lambda: len(supervised.family()) == 9, "all have been started")
        family = supervised.family()
        supervised.process.kill()
        supervised.process.wait()
        wait_until(lambda: not left(family), f"no process is left of {family}")
    # the last thread of a process may close its sockets a moment after the first one is a zombie
    wait_until(lambda: all(refuses(port) for port in [*ports, supervised.port]), "no port is left")
    starts = supervised.log.count("ready")
    supervised.start()
    wait_until(lambda: supervised.log.count("ready") > starts, "the next start succeeds")


def test_a_zygote_that_hangs_is_killed_and_another_makes_what_was_asked_for(supervised: Supervised) -> None:
    port = free_port()
    supervised.put(spec("one", port))
    first = supervised.running("one").pid
    assert first is not None
    zygote = supervised.zygote()
    zygote.suspend()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not left([zygote]), "the zygote is killed")
    supervised.running("one", but_not=first)
    assert "the zygote has not replied" in supervised.log


def test_a_service_manager_is_notified_of_start_life_and_end_and_keeps_the_sockets(
    supervise: Callable[..., Supervised], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = Manager(tmp_path_factory.mktemp("m"))
    manager.always()
    monkeypatch.setenv("NOTIFY_SOCKET", str(manager.address))
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)

    def notified(text: str) -> bool:
        manager.listen()
        return any(text in each.splitlines() for each in manager.received)

    try:
        supervised, port = supervise(), free_port()
        wait_until(lambda: notified("READY=1"), "it reports that it is ready")
        wait_until(lambda: notified("WATCHDOG=1"), "it reports that it lives")
        supervised.put(spec("one", port))
        supervised.running("one")
        listening = sorted(name_of("127.0.0.1", each) for each in (port, supervised.port))
        wait_until(lambda: manager.names() == listening, "the manager has both sockets")
        supervised.process.send_signal(signal.SIGHUP)
        wait_until(lambda: notified("RELOADING=1"), "it reloads")
        begun = next(number for number, each in enumerate(manager.received) if "RELOADING=1" in each)
        wait_until(lambda: any("READY=1" in each for each in manager.received[begun:]), "it has reloaded")
        assert supervised.end() == 0
        assert notified("STOPPING=1")
        assert manager.names() == listening
        assert not refuses(port)
        assert not refuses(supervised.port)
    finally:
        manager.close()


def test_sigterm_drains_and_ends_with_status_0(supervised: Supervised) -> None:
    port = free_port()
    supervised.put(spec("one", port))
    supervised.running("one")
    family = supervised.family()
    assert supervised.end() == 0
    wait_until(lambda: not left(family), "all have ended")
    assert refuses(port)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(supervise: Callable[..., Supervised], number: signal.Signals) -> None:
    """The same one counts when some time has passed: at once it is the first one, sent to the group as well."""
    supervised = supervise(drain=60.0)
    port = free_port()
    supervised.put(spec("one", port))
    supervised.running("one")
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.makefile("r").readline()
        supervised.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "draining" in supervised.log, "it drains")
        assert supervised.process.poll() is None

        def taken() -> bool:
            if "again" not in supervised.log:
                supervised.process.send_signal(number)
            return "again" in supervised.log

        wait_until(taken, "the second one counts", pause=2 * SAME_SIGNAL)
        assert supervised.process.wait(60) == 1


def test_a_second_instance_reports_the_process_that_has_the_directory(supervised: Supervised) -> None:
    first = supervised.process
    second = supervised.start()
    assert second.wait(60) != 0
    assert f"in use by process {first.pid}" in supervised.log
    supervised.process = first


def test_a_restart_of_an_unknown_proxy_is_refused(supervised: Supervised) -> None:
    assert supervised.ask(RestartProxy("unknown")) == Failed("the proxy is not active", "proxy_id")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_the_whole_group_do_not_end_the_zygote(supervised: Supervised, number: signal.Signals) -> None:
    zygote = supervised.zygote()
    zygote.send_signal(number)
    supervised.put(spec("one", free_port()))
    supervised.running("one")
    assert zygote.is_running()


def test_proxies_that_swap_addresses_in_one_message_listen_where_the_other_did(supervised: Supervised) -> None:
    ports = {"one": free_port(), "two": free_port()}
    for name, port in ports.items():
        supervised.put(spec(name, port))
    before = {name: supervised.running(name).pid for name in ports}
    swapped = (spec("one", ports["two"], revision=9), spec("two", ports["one"], revision=9))
    assert supervised.ask(ApplyProxies(swapped, ("gone",))) == Done()
    assert supervised.ask(ApplyProxies((spec("one", ports["one"]),))) == Done(), "a revision that is outdated"
    after = {name: supervised.running(name, but_not=before[name]).pid for name in ports}
    assert (greeting(ports["two"])[0], greeting(ports["one"])[0]) == (after["one"], after["two"])


def test_a_whole_desired_state_moves_a_proxy_and_renames_another_and_refuses_no_connection(
    supervised: Supervised,
) -> None:
    here, there, kept = free_port(), free_port(), free_port()
    supervised.put(spec("mover", here))
    supervised.put(spec("old", kept))
    mover, old = supervised.running("mover"), supervised.running("old")
    with Caller(kept) as caller:
        wait_until(lambda: caller.pids, "the old proxy serves")
        assert isinstance(supervised.ask(ReserveListener("mover", "127.0.0.1", there, ("old",))), ListenerReserved)
        assert isinstance(supervised.ask(ReserveListener("new", "127.0.0.1", kept, ("old",))), ListenerReserved)
        assert greeting(here)[0] == mover.pid  # nothing has moved yet
        assert (
            supervised.ask(ReplaceProxies((spec("mover", there, revision=9), spec("new", kept, revision=9)))) == Done()
        )
        moved = supervised.running("mover", but_not=mover.pid)
        new = supervised.running("new")
        assert greeting(there)[0] == moved.pid
        assert refuses(here)
        wait_until(lambda: caller.pids and caller.pids[-1] == new.pid, "the new proxy serves")
    assert caller.failures == []
    assert set(caller.pids) == {old.pid, new.pid}
    assert supervised.fleet().proxies.keys() == {"mover", "new"}


def test_a_cancelled_reservation_is_closed_at_once(supervised: Supervised) -> None:
    port = free_port()
    assert isinstance(supervised.ask(ReserveListener("one", "127.0.0.1", port)), ListenerReserved)
    assert supervised.ask(CancelListeners(("one", "unknown"))) == Done()
    assert refuses(port)
