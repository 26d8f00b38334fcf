"""A proxy with several workers under a real supervisor, with stand-ins for its actors."""

from __future__ import annotations

import os
import resource
import signal
import socket
from collections.abc import Callable

from actors.bus.messages.common import Done
from actors.bus.messages.supervision import ApplyProxies, QueryWorkers, ReplaceProxies, RestartProxy, Runtime, Workers
from actors.state.processes import open_processes, short
from tests.actor.supervision.supervised import Caller, Supervised, greeting, refuses
from tests.kit.ports import free_port
from tests.kit.standin_actors import spec
from tests.kit.wait import wait_until


def pids(runtime: Runtime) -> set[int]:
    return {each.pid for each in runtime.workers if each.pid is not None and each.state == "running"}


def all_run(supervised: Supervised, count: int, but: set[int] | None = None) -> Runtime:
    """The runtime once so many workers run, and no other, none of them one of `but`."""

    def is_so() -> Runtime | None:
        runtime = supervised.runtime("a")
        found = pids(runtime)
        ready = runtime.state == "running" and len(found) == len(runtime.workers) == count
        return runtime if ready and not found & (but or set()) else None

    return wait_until(is_so, f"{count} workers run")


def instances(supervised: Supervised) -> tuple[int, ...]:
    workers = supervised.ask(QueryWorkers(("a", "unknown")))
    assert isinstance(workers, Workers)
    assert workers.instances.keys() <= {"a"}
    return workers.instances.get("a", ())


def living(supervised: Supervised) -> set[int]:
    """The processes that count together."""
    found = open_processes(supervised.directory / "run" / "state" / "processes")
    assert found is not None
    return found.instances()


def test_several_workers_run_on_one_socket_and_count_together(supervised: Supervised) -> None:
    port = free_port()
    supervised.put(spec("a", port, workers=3))
    runtime = all_run(supervised, 3)
    assert [each.index for each in runtime.workers] == [0, 1, 2]
    assert runtime.pid == runtime.workers[0].pid
    assert greeting(port)[0] in pids(runtime)
    serving = instances(supervised)
    assert len(set(serving)) == 3
    assert living(supervised) == set(map(short, serving))


def test_a_proxy_with_one_worker_has_no_row(supervised: Supervised) -> None:
    supervised.put(spec("a", free_port()))
    assert supervised.running("a").workers == ()
    assert len(instances(supervised)) == 1
    assert living(supervised) == set(map(short, instances(supervised)))


def test_a_worker_that_is_killed_is_back_and_no_connection_is_refused(supervised: Supervised) -> None:
    port = free_port()
    supervised.put(spec("a", port, workers=2))
    before = pids(all_run(supervised, 2))
    with Caller(port) as caller:
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        runtime = all_run(supervised, 2, {victim})
    assert caller.failures == []
    assert before - {victim} <= pids(runtime)
    assert runtime.restarts == 1
    assert living(supervised) == set(map(short, instances(supervised)))


def test_a_restart_replaces_all_workers_one_by_one_and_refuses_nothing(supervised: Supervised) -> None:
    port = free_port()
    supervised.put(spec("a", port, workers=2))
    before = pids(all_run(supervised, 2))
    with Caller(port) as caller:
        assert supervised.ask(RestartProxy("a")) == Done()
        runtime = all_run(supervised, 2, before)
    assert caller.failures == []
    assert runtime.restarts == 0


def test_the_number_of_workers_changes_while_clients_come(supervised: Supervised) -> None:
    port = free_port()
    supervised.put(spec("a", port, workers=2))
    before = pids(all_run(supervised, 2))
    with Caller(port) as caller:
        assert supervised.ask(ApplyProxies((spec("a", port, workers=3, revision=2),))) == Done()
        assert before < pids(all_run(supervised, 3))
        assert supervised.ask(ApplyProxies((spec("a", port, workers=1, revision=3),))) == Done()
        runtime = wait_until(
            lambda: found if not (found := supervised.runtime("a")).workers else None, "one worker is left", 60
        )
    assert caller.failures == []
    assert runtime.state == "running"
    assert runtime.pid in before
    assert len(instances(supervised)) == 1


def test_all_workers_stop_with_their_proxy_and_leave_nothing(supervised: Supervised) -> None:
    port = free_port()
    supervised.put(spec("a", port, workers=2))
    all_run(supervised, 2)
    counted = supervised.directory / "run" / "state" / "a"
    counted.touch()  # as a real worker does: the stand-in doesn't count
    assert supervised.ask(ApplyProxies((spec("a", port, workers=2, active=False, revision=2),))) == Done()
    assert refuses(port)
    wait_until(lambda: supervised.runtime("a").state == "stopped", "all have ended")
    wait_until(lambda: not counted.exists(), "what they have counted is gone")
    supervised.put(spec("a", port, workers=2, revision=3))
    all_run(supervised, 2)
    counted.touch()
    assert supervised.ask(ApplyProxies((), ("a",))) == Done()
    assert refuses(port)
    wait_until(lambda: not counted.exists(), "what they have counted is gone")


def test_a_worker_that_drains_counts_until_its_end(supervise: Callable[..., Supervised]) -> None:
    supervised, port = supervise(drain=100.0), free_port()
    supervised.put(spec("a", port, workers=2))
    all_run(supervised, 2)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        _pid, instance, _revision = client.makefile("r").readline().split()
        assert supervised.ask(RestartProxy("a")) == Done()
        wait_until(lambda: int(instance) not in instances(supervised), "it is replaced")
        assert short(int(instance)) in living(supervised)
    wait_until(lambda: short(int(instance)) not in living(supervised), "it counts no more")


def test_a_proxy_that_wakes_while_there_are_no_descriptors_runs_when_there_are_some(
    supervise: Callable[..., Supervised],
) -> None:
    supervised, port = supervise(), free_port()
    pid = supervised.process.pid
    assert supervised.ask(ReplaceProxies((spec("a", port, workers=2, sleep_after=3600),))) == Done()
    assert supervised.runtime("a").state == "sleeping"
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")) + 8, before[1]))
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        wait_until(lambda: supervised.runtime("a").restarts > 0, "it has been tried again")
        assert supervised.log.count("cannot start") < 10
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        assert int(client.makefile("r").readline().split()[0]) in pids(all_run(supervised, 2))
    assert "Traceback" not in supervised.log
