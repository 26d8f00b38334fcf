"""The checks of a pool: what they write down for all processes, and which problems they report."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from actors.bus.codec import pack
from actors.bus.messages.common import POOLS, SUPERVISOR
from actors.bus.messages.specs import CheckPoolOnce, CheckPools, EgressSpec
from actors.forwarding.upstreams.attempt import access_to_upstreams
from actors.pools.actor import PoolsActor
from actors.pools.state import pool_state
from actors.process import Boot
from tests.actor.pools.checking import DEADLINE, Checking, pool_of
from tests.kit.settings import boot_settings
from tests.kit.upstream_farm import Farm
from tests.kit.upstreams import closed_port


def test_what_the_checks_find_is_there_for_other_processes(checking: Checking, farm: Farm) -> None:
    spec = pool_of(farm.ports[0], closed_port())
    checking.configure(spec)
    slots = checking.slots_of_another_process(spec)
    checking.until(lambda: [slot.state for slot in slots] == ["up", "down"])
    good, bad = (slot.health(checking.loop.now) for slot in slots)
    assert good.latency is not None
    assert (good.checks >= 1, good.checks_failed, good.last_error) == (True, 0, None)
    assert bad.checks_failed >= 1
    assert bad.error == "unreachable"
    assert "refuses connections" in (bad.last_error or "")


def test_an_upstream_that_comes_back_is_up_again(checking: Checking, farm: Farm) -> None:
    port = farm.ports[0]
    farm.close(port)
    spec = pool_of(port, farm.ports[1])
    checking.configure(spec)
    slot = checking.slots_of_another_process(spec)[0]
    checking.until(lambda: slot.is_down and checking.begun == ["paris/up0"])
    farm.open(port)
    checking.until(lambda: slot.state == "up" and checking.over == ["paris/up0"])
    assert slot.health(checking.loop.now).failures == 0
    assert checking.active == ()


def test_what_a_proxy_finds_out_is_reported_by_the_checks(checking: Checking, farm: Farm) -> None:
    spec = pool_of(*farm.ports, check_enabled=False)
    checking.configure(spec)
    slots = checking.slots_of_another_process(spec)
    slots[2].failed(checking.loop.now, "connect", "handshake", "it closed the connection within the handshake")
    checking.until(lambda: checking.begun)
    assert checking.begun == ["paris/up2"]
    assert checking.active[0].detail.endswith("is down: it closed the connection within the handshake")
    assert farm.total == 0, "nothing is checked where checks are off"


def test_a_check_that_is_asked_for_is_one_of_each_upstream_also_where_checks_are_off(
    checking: Checking, farm: Farm
) -> None:
    spec = pool_of(farm.ports[0], closed_port(), farm.ports[1], check_enabled=False)
    checked = checking.configure(spec)
    slots = checking.slots_of_another_process(spec)
    slots[2].failed(checking.loop.now, "429", "status", "it responds 429")
    checked.check_now()
    checked.check_now()
    checking.until(lambda: [slot.state for slot in slots[:2]] == ["up", "down"])
    for _ in range(20):
        checking.turn()
    assert [slot.health(0.0).checks for slot in slots] == [1, 1, 0], "none that has asked for a pause"


def test_a_pool_without_a_living_upstream_is_a_problem_of_its_own(checking: Checking, farm: Farm) -> None:
    spec = pool_of(*farm.ports[:2], check_enabled=False)
    checking.configure(spec)
    slots = checking.slots_of_another_process(spec)
    for slot in slots:
        slot.failed(checking.loop.now, "connect", "unreachable", "refused")
    checking.until(lambda: len(checking.begun) == 3)
    assert set(checking.begun) == {"paris", "paris/up0", "paris/up1"}
    slots[1].succeeded(checking.loop.now)
    checking.until(lambda: len(checking.over) == 2)
    assert set(checking.over) == {"paris", "paris/up1"}


@pytest.mark.parametrize(("expect", "state"), [(200, "up"), (204, "down")])
def test_a_url_is_requested_through_each_upstream(checking: Checking, farm: Farm, expect: int, state: str) -> None:
    url = "http://check.example/generate_204"
    spec = pool_of(farm.ports[0], check_url=url, check_expect=expect)
    checking.configure(spec)
    (slot,) = checking.slots_of_another_process(spec)
    checking.until(lambda: slot.state == state and slot.health(0.0).checks >= 3)
    health = slot.health(checking.loop.now)
    assert bool(health.latency) is (state == "up")
    assert ("responds 200 through it, not 204" in (health.last_error or "")) is (state == "down")


def test_the_guard_holds_for_the_url_of_a_check(checking: Checking, farm: Farm) -> None:
    spec = pool_of(farm.ports[0], check_url="http://169.254.169.254/latest", check_expect=200)
    checking.configure(spec)
    (slot,) = checking.slots_of_another_process(spec)
    checking.until(lambda: slot.is_down)
    assert farm.total == 0
    assert "the URL of the check is refused" in (slot.last_error or "")


def test_an_upstream_that_asked_for_a_pause_is_not_checked_until_its_end(checking: Checking, farm: Farm) -> None:
    spec = replace(pool_of(*farm.ports[:2], interval=0.02), cooldown=(("429", 1.0, 1.0),))
    checking.slots_of_another_process(spec)[0].failed(checking.loop.now, "429", "status", "it responds 429")
    ends = checking.loop.now + 1.0
    checking.configure(spec)
    checking.until(lambda: farm.connections[farm.ports[1]] >= 5)
    if checking.loop.now < ends:  # else this machine has been busy for a second
        assert farm.connections[farm.ports[0]] == 0
    checking.until(lambda: farm.connections[farm.ports[0]] >= 1)
    assert checking.loop.now >= ends


def test_an_upstream_at_a_private_address_is_not_connected_to(checking: Checking, farm: Farm) -> None:
    checking.dialer.access = access_to_upstreams(EgressSpec("public_only", (), ()))
    spec = pool_of(farm.ports[0])
    checking.configure(spec)
    slot = checking.slots_of_another_process(spec)[0]
    checking.until(lambda: slot.is_down)
    assert farm.total == 0
    assert "its address is refused" in (slot.last_error or "")


def test_a_changed_pool_keeps_what_is_known_and_ends_what_is_gone(checking: Checking, farm: Farm) -> None:
    spec = pool_of(*farm.ports, check_enabled=False)
    checking.configure(spec)
    for slot in checking.slots_of_another_process(spec)[1:]:
        slot.failed(checking.loop.now, "407", "credentials", "it responds 407")
    checking.until(lambda: len(checking.begun) == 2)
    entries = (replace(spec.upstreams.entries[1], password="another"), spec.upstreams.entries[0])
    changed = replace(spec, revision=2, upstreams=replace(spec.upstreams, entries=entries))
    checking.configure(changed)
    checking.until(lambda: checking.over)
    assert checking.over == ["paris/up2"], "it was removed"
    assert checking.begun == ["paris/up1", "paris/up2"], "nothing is reported twice"
    slot = checking.slots_of_another_process(changed)[0]
    assert slot.is_down
    assert slot.eligible(checking.loop.now), "another password gets a trial at once"


@pytest.mark.parametrize("what", ["pool", "upstream"])
def test_what_has_another_name_is_reported_under_that(checking: Checking, farm: Farm, what: str) -> None:
    spec = pool_of(*farm.ports[:2], check_enabled=False)
    checking.configure(spec)
    checking.slots_of_another_process(spec)[0].failed(checking.loop.now, "connect", "unreachable", "refused")
    checking.until(lambda: checking.begun == ["paris/up0"])
    if what == "pool":
        checking.configure(replace(spec, name="lyon", revision=2))
        expected = "lyon/up0"
    else:
        entries = (replace(spec.upstreams.entries[0], name="first"), spec.upstreams.entries[1])
        checking.configure(replace(spec, revision=2, upstreams=replace(spec.upstreams, entries=entries)))
        expected = "paris/first"
    checking.until(lambda: [each.subject for each in checking.active] == [expected])
    assert checking.over == ["paris/up0"]


def test_a_pool_that_is_not_in_use_any_more_has_no_problems(checking: Checking, farm: Farm) -> None:
    spec = pool_of(farm.ports[0], check_enabled=False)
    pool = checking.configure(spec)
    checking.slots_of_another_process(spec)[0].failed(checking.loop.now, "connect", "unreachable", "refused")
    checking.until(lambda: len(checking.begun) == 2)
    checking.pool = None
    pool.end()
    checking.until(lambda: len(checking.over) == 2)
    assert checking.active == ()


def test_a_change_that_concerns_no_check_begins_none_anew(checking: Checking, farm: Farm) -> None:
    spec = pool_of(*farm.ports, interval=60.0)
    pool = checking.configure(spec)
    slots = checking.slots_of_another_process(spec)
    checking.until(lambda: all(slot.state == "up" for slot in slots))
    other = replace(spec, revision=2, cooldown=(), upstreams=replace(spec.upstreams, policy="latency"))
    assert pool.follows(other)
    assert not pool.follows(replace(other, upstreams=replace(other.upstreams, check_interval=1.0)))
    assert not pool.follows(replace(other, name="lyon"))
    assert [slot.health(0.0).checks for slot in slots] == [1, 1, 1]


def test_a_pool_that_is_changed_while_it_is_checked_once_is_checked_as_it_is_then(farm: Farm, tmp_path: Path) -> None:
    actor = PoolsActor(Boot(POOLS, 1, str(tmp_path), str(tmp_path), boot_settings()), [])
    try:
        actor.receive(SUPERVISOR, CheckPools(EgressSpec("public_only", ("127.0.0.0/8",), ()), {}), lambda _reply: None)
        before, after = pool_of(closed_port()), pool_of(farm.ports[0], revision=2)
        for spec in (before, after, replace(after, revision=3)):
            actor.receive(SUPERVISOR, CheckPoolOnce(pack(spec)), lambda _reply: None)
        slots = pool_state(actor.run_dir.pools, after).slots
        end = time.monotonic() + DEADLINE
        while slots[0].state != "up":
            assert time.monotonic() < end
            actor.loop.turn(0.02)
        actor.drain(0.0)
    finally:
        actor.context.destroy(linger=0)  # left to the collector of garbage, it would wait for its sockets for ever
        actor.loop.close()
