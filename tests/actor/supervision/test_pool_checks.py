"""The actor that checks pools runs while a proxy that is active can use one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace

from actors.bus.messages.common import POOLS, PROXY_RESOLVER, Done
from actors.bus.messages.specs import CheckPool, DnsSpec, FleetObject
from actors.bus.messages.supervision import ApplyObjects, ApplyProxies, Runtime
from tests.actor.supervision.supervised import Supervised
from tests.kit.ports import free_port
from tests.kit.standin_actors import spec
from tests.kit.wait import wait_until

POOL = FleetObject("pool:paris", "pool_1", 1, (), b"packed")
POLICY = FleetObject("policy:way", "policy_1", 1, ("pool:paris",), b"packed")


def checks(supervised: Supervised) -> Runtime | None:
    return supervised.fleet().actors.get(POOLS)


def wait_running(supervised: Supervised, but_not: int | None = None) -> int:
    def pid() -> int | None:
        found = checks(supervised)
        return found.pid if found is not None and found.state == "running" and found.pid != but_not else None

    return wait_until(pid, "the checks run")


def wait_gone(supervised: Supervised) -> None:
    wait_until(lambda: checks(supervised) is None, "the checks have ended")


def test_it_runs_while_a_policy_of_a_proxy_names_a_pool_and_comes_back_when_it_dies(supervised: Supervised) -> None:
    assert supervised.ask(ApplyObjects((POOL, POLICY))) == Done()
    proxy = spec("one", free_port())
    supervised.put(proxy)
    assert checks(supervised) is None
    supervised.put(replace(proxy, revision=2, objects=("policy:way",)))
    first = wait_running(supervised)
    os.kill(first, signal.SIGKILL)
    second = wait_running(supervised, but_not=first)
    supervised.put(replace(proxy, revision=3))
    wait_gone(supervised)
    assert second not in [each.pid for each in supervised.family()]
    supervised.put(replace(proxy, revision=4, objects=("pool:paris",)))
    wait_running(supervised)
    assert supervised.ask(ApplyProxies((), ("one",))) == Done()
    wait_gone(supervised)


def test_a_proxy_that_is_stopped_uses_no_pool(supervised: Supervised) -> None:
    supervised.ask(ApplyObjects((POOL,)))
    proxy = spec("one", free_port(), objects=("pool:paris",))
    supervised.put(proxy)
    wait_running(supervised)
    supervised.put(replace(proxy, revision=2, active=False))
    wait_gone(supervised)
    supervised.put(replace(proxy, revision=3))
    wait_running(supervised)


def test_it_is_started_to_check_a_pool_that_no_proxy_uses(supervised: Supervised) -> None:
    supervised.ask(ApplyObjects((POOL,)))
    assert supervised.ask(CheckPool("pool:gone")) == Done()
    assert checks(supervised) is None
    assert supervised.ask(CheckPool("pool:paris")) == Done()
    wait_running(supervised)
    assert supervised.fleet().pools == ()
    supervised.put(spec("one", free_port(), objects=("pool:paris",)))
    assert supervised.fleet().pools == ("paris",)
    assert supervised.end() == 0  # it would run for two minutes more


def test_the_product_runs_without_it(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise(pools="tests.kit.standin_actors:StubbornAtStart")
    supervised.ask(ApplyObjects((POOL,)))
    supervised.put(spec("one", free_port(), objects=("pool:paris",)))
    supervised.running("one")
    wait_until(lambda: (found := checks(supervised)) is not None and found.state == "failed", "the checks have failed")
    supervised.ask(ApplyProxies((), ("one",)))
    wait_gone(supervised)


def test_the_second_resolver_runs_while_a_proxy_that_is_active_names_name_servers(supervised: Supervised) -> None:
    def runs() -> bool:
        found = supervised.fleet().actors.get(PROXY_RESOLVER)
        return found is not None and found.state == "running"

    named = replace(spec("named", free_port()), dns=DnsSpec(("192.0.2.53",)))
    supervised.put(spec("plain", free_port()))
    assert PROXY_RESOLVER not in supervised.fleet().actors
    supervised.put(named)
    wait_until(runs, "it runs")
    supervised.put(replace(named, revision=2, dns=DnsSpec()))
    wait_until(lambda: PROXY_RESOLVER not in supervised.fleet().actors, "it has ended")
    supervised.put(replace(named, revision=3))
    wait_until(runs, "it runs again")
    supervised.ask(ApplyProxies((), ("named",)))
    wait_until(lambda: PROXY_RESOLVER not in supervised.fleet().actors, "it has ended again")
