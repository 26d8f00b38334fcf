"""Limits of several processes, by a clock set by hand: of the workers of a proxy, and of an account on all proxies."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.specs import AccountSpec, LimitsSpec, PolicySpec, RuleSpec
from actors.forwarding.access.guess_limit import FAILURES_OF_CLIENT, FAILURES_OF_USER, PAUSE, GuessLimit
from actors.forwarding.access.username_parameters import Parameters
from actors.forwarding.limits.limits import LimitsOfProxy
from actors.forwarding.limits.meter import Meter
from actors.forwarding.limits.rule_limits import Limited, MatchedRuleLimits
from actors.forwarding.limits.workers import ProxyWorkers
from actors.forwarding.net.connection_pool import ConnectionPool
from actors.forwarding.net.egress import Requested, Sources
from actors.forwarding.net.timer_wheel import TimerWheel
from actors.forwarding.protocols.failures import Decider
from actors.forwarding.upstreams.balancing import new_policy
from actors.forwarding.upstreams.sessions import UpstreamSessions
from actors.pools.upstream import Upstream
from actors.state.choices import SharedChoices
from actors.state.counts import COUNTED
from actors.state.live_state import LiveState
from actors.state.usage import USAGE
from tests.kit.clocks import Clock
from tests.kit.forwarding_rig import spec
from tests.kit.live_state import Machine
from tests.kit.upstreams import own_upstream, three, up, upstream_entry

CLIENT_IP = "192.0.2.7"


class Connection:
    """A client's, as far as limits need it."""

    client_ip = CLIENT_IP

    def __init__(self) -> None:
        self.meter: Meter | None = None

    def measure(self, meter: Meter) -> None:
        self.meter = meter

    def end(self, reason: str) -> None:
        raise AssertionError(reason)

    def destinations_changed(self) -> None:
        raise AssertionError


class World:
    """ProxyWorkers of one proxy on one loop."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock(1000.0)
        self.loop = Loop(self.clock)
        self.machine = Machine(folder, lambda: self.loop.now)

    def state(self, proxy_id: str = "px1") -> LiveState:
        return self.machine.state(proxy_id)

    def workers(self) -> ProxyWorkers:
        return ProxyWorkers(self.state())

    def limits(self, limits: LimitsSpec, shared: bool = True, **changes: Any) -> LimitsOfProxy:
        state = self.state()
        made = LimitsOfProxy(self.loop, state)
        made.configure(spec(1, limits=limits, **changes))
        if shared:
            made.share(ProxyWorkers(state), 0)
        return made

    def at(self, seconds: float) -> None:
        self.clock.now = self.loop.now = 1000.0 + seconds


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "workers")
    yield made
    made.loop.close()


def requests(limits: LimitsOfProxy) -> bool:
    """Whether one more request of the client is admitted."""
    return Meter(limits.admit_request, limits._inward, limits._outward).admit("", Connection()) is None


# --- requests of a minute ---


def test_requests_from_before_the_other_worker_count_on(world: World) -> None:
    first = world.limits(LimitsSpec(requests_per_minute=3), shared=False)
    assert [requests(first) for _ in range(2)] == [True, True]
    second = world.limits(LimitsSpec(requests_per_minute=3))
    assert [requests(first), requests(first)] == [True, False]
    assert not requests(second)


# --- an account, on several proxies ---

ADA = AccountSpec("acc_1", "ada", None)


def of_ada(**limits: int) -> AccountSpec:
    return replace(ADA, limits=LimitsSpec(**limits))


def admitted(limits: LimitsOfProxy) -> Meter | None:
    """The meter of a connection of ada, if it is admitted."""
    meter = limits.meter()
    return meter if meter.admit("ada", Connection()) is None else None


def test_connections_and_requests_of_an_account_hold_over_proxies_and_workers(world: World) -> None:
    for limit in ({"connections": 2}, {"requests_per_minute": 2}):
        everywhere = [world.machine.state(proxy) for proxy in ("px1", "px1", "px2", "px3")]
        limits = [LimitsOfProxy(world.loop, each) for each in everywhere]
        for each in limits:
            each.configure(spec(1, accounts=(of_ada(**limit),)))
        meters = [admitted(each) for each in limits]
        assert [each is not None for each in meters] == [True, True, False, False]
        if "connections" in limit:
            world.machine.end(everywhere[0])  # killed
            assert admitted(limits[3]) is not None
            assert admitted(limits[2]) is None
            assert meters[1] is not None
            meters[1].close()
        else:
            world.at(COUNTED)
        assert admitted(limits[2]) is not None


def test_an_account_without_limits_takes_no_place_but_where_its_usage_is_counted(world: World) -> None:
    limits = LimitsOfProxy(world.loop, world.state())
    limits.configure(spec(1, accounts=(ADA,)))
    meter = admitted(limits)
    assert meter is not None
    meter.inward.consume(meter.inward.available() and 1000)
    assert {each.name for each in world.machine.folder.iterdir()} == {"processes", USAGE}


# --- connections ---


def test_connections_from_before_the_other_worker_count(world: World) -> None:
    first = world.limits(LimitsSpec(connections=2), shared=False)
    open_now = [Connection(), Connection()]
    for each in open_now:
        first.connection_opened(each)
    first.share(ProxyWorkers(first._state), len(open_now))
    second = world.limits(LimitsSpec(connections=2))
    assert second.client_refusal(CLIENT_IP) is not None
    assert second.workers is not None
    assert second.workers.open_connections() == (2, 2)
    first.connection_removed(open_now[0], 1)
    assert second.client_refusal(CLIENT_IP) is None
    assert second.workers.open_connections() == (1, 2)


def test_each_worker_counts_its_own_connections_once(world: World) -> None:
    first, second = (world.limits(LimitsSpec(connections=4)) for _ in range(2))
    for each in (first, first, second):
        each.connection_opened(Connection())
        assert first.client_refusal(CLIENT_IP) is second.client_refusal(CLIENT_IP) is None
    second.connection_opened(Connection())
    assert None not in (first.client_refusal(CLIENT_IP), second.client_refusal(CLIENT_IP))


def test_a_limit_that_is_gone_leaves_nothing_behind(world: World) -> None:
    first, second = (world.limits(LimitsSpec(connections=1)) for _ in range(2))
    first.connection_opened(Connection())
    assert second.client_refusal(CLIENT_IP) is not None
    first.configure(spec(1, limits=LimitsSpec()))
    assert second.client_refusal(CLIENT_IP) is None


def test_limits_of_a_user_of_a_back_end_hold_for_all_workers(world: World) -> None:
    both = [world.limits(LimitsSpec()) for _ in range(2)]
    meters = []
    for each in both:
        each.guests.admit("ada", LimitsSpec(connections=1, requests_per_minute=3))
        meters.append(each.meter())
    assert meters[0].admit("ada", Connection()) is None
    refused = meters[1].admit("ada", Connection())
    assert refused is not None
    assert refused.rule == "account_connection_limit"
    meters[0].close()
    assert meters[1].admit("ada", Connection()) is None


def test_limits_of_a_rule_hold_for_all_workers(world: World) -> None:
    limits = LimitsSpec(connections=1)
    limited = Limited(("pol_1", "few"), limits, Decider("office", "few", where="policy office"), "few")
    first, second = (MatchedRuleLimits(world.loop, world.state()) for _ in range(2))
    host = world.limits(LimitsSpec())
    meters = [host.meter(), host.meter()]
    assert first.admit(meters[0], [limited]) is None
    assert second.admit(meters[1], [limited]) is not None
    first.configure([PolicySpec("pol_1", "office", (RuleSpec("few", limits=LimitsSpec(requests_per_minute=9)),))])
    assert second.admit(meters[1], [limited]) is None


# --- guesses ---


def test_wrong_passwords_add_up_for_a_minute_alone(world: World) -> None:
    guesses = GuessLimit(world.state())
    for seconds in (*[0.0] * (FAILURES_OF_USER - 1), float(COUNTED)):
        world.at(seconds)
        assert not guesses.failed(CLIENT_IP, "ada", world.loop.now)
    assert not guesses.paused(CLIENT_IP, "ada", world.loop.now)


def test_wrong_passwords_of_a_client_pause_it_at_all_workers(world: World) -> None:
    guesses = [GuessLimit(world.state()) for _ in range(2)]
    begun = [guesses[number % 2].failed(CLIENT_IP, "ada", world.loop.now) for number in range(FAILURES_OF_USER + 1)]
    assert begun == [*[False] * (FAILURES_OF_USER - 1), True, False]
    for each in guesses:
        assert each.paused(CLIENT_IP, "ada", world.loop.now)
        assert not each.paused(CLIENT_IP, "bob", world.loop.now)
        assert not each.paused("192.0.2.8", "ada", world.loop.now)
    for number in range(FAILURES_OF_CLIENT):
        guesses[number % 2].failed(CLIENT_IP, f"user {number}", world.loop.now)
    assert all(each.paused(CLIENT_IP, "bob", world.loop.now) for each in guesses)
    world.at(PAUSE)
    assert not any(each.paused(CLIENT_IP, "ada", world.loop.now) for each in guesses)
    begun = [guesses[number % 2].failed(CLIENT_IP, "ada", world.loop.now) for number in range(FAILURES_OF_USER)]
    assert begun == [*[False] * (FAILURES_OF_USER - 2), True, False]  # of those before only the one in the pause counts
    assert all(each.paused(CLIENT_IP, "ada", world.loop.now) for each in guesses)


def test_wrong_passwords_outlive_the_process(world: World) -> None:
    state = world.state()
    for number in range(FAILURES_OF_USER):
        GuessLimit(state).failed(CLIENT_IP, "ada", world.loop.now)
        GuessLimit(state).failed(CLIENT_IP, "bob", world.loop.now) if number else None
    world.machine.end(state)
    after = GuessLimit(world.state())
    assert after.paused(CLIENT_IP, "ada", world.loop.now)
    assert not after.paused(CLIENT_IP, "bob", world.loop.now)
    assert after.failed(CLIENT_IP, "bob", world.loop.now)


def test_wrong_passwords_of_a_process_alone_pause_and_begin_anew_after_that(world: World) -> None:
    guesses = GuessLimit(LiveState(lambda: world.loop.now))
    for begun in (0.0, PAUSE):
        world.at(begun)
        found = [guesses.failed(CLIENT_IP, "ada", world.loop.now) for _ in range(FAILURES_OF_USER)]
        assert found == [*[False] * (FAILURES_OF_USER - 1), True]
        assert guesses.paused(CLIENT_IP, "ada", world.loop.now)


# --- sessions ---

SEVEN = Parameters("7", 60.0)


def chosen(sessions: UpstreamSessions, now: float, parameters: Parameters = SEVEN) -> int:
    found = sessions.choose("alice\0007", parameters, lambda _each: True, up, now)
    assert found is not None
    return found.index


def both_sessions(world: World, *names: str) -> list[tuple[list[Upstream], UpstreamSessions]]:
    made = []
    for name in names:
        upstreams = three()
        sessions = UpstreamSessions(upstreams, SharedChoices(world.state(), "upstreams", name))
        made.append((upstreams, sessions))
    return made


def test_all_workers_have_the_same_stand_in_for_a_session_and_each_is_back_when_its_upstream_is_up(
    world: World,
) -> None:
    (here, one), (there, other) = both_sessions(world, "pool", "pool")
    own = chosen(one, 0.0)
    assert chosen(other, 0.0) == own
    for upstreams in (here, there):
        upstreams[own].failed(0.0, "refused")
    second = chosen(one, 1.0)
    here[second].failed(1.0, "refused")
    third = chosen(one, 1.1)
    assert len({own, second, third}) == 3
    assert chosen(other, 2.0) == third  # though the second would be usable there
    here[own].succeeded(3.0)
    assert chosen(one, 4.0) == own
    there[own].succeeded(5.0)
    assert chosen(other, 5.0) == own


def test_a_session_that_begins_elsewhere_since_its_first_upstream_cools_down_is_there_at_all_workers(
    world: World,
) -> None:
    (here, one), (_there, other) = both_sessions(world, "pool", "pool")
    own = chosen(UpstreamSessions(three(), SharedChoices(LiveState(world.clock))), 0.0)
    here[own].doubt(0.0, 9.0)
    began = one.choose("alice\0007", SEVEN, lambda _each: True, lambda each: each.eligible(1.0), 1.0)
    assert began is not None
    assert chosen(other, 2.0) == began.index != own


def test_so_is_one_that_has_rotated_and_the_next_one_takes_another(world: World) -> None:
    (_here, one), (_there, other) = both_sessions(world, "pool", "pool")
    rotating = Parameters("7", 60.0, rotate=True)
    before = chosen(one, 0.0)
    for turn, (rotates, follows) in enumerate(((one, other), (other, one), (one, other)), 1):
        after = chosen(rotates, float(turn), rotating)
        assert after != before
        assert chosen(follows, turn + 0.5) == after
        before = after


def test_rotation_without_a_session_is_never_twice_the_same_at_two_workers(world: World) -> None:
    (_here, one), (_there, other) = both_sessions(world, "pool", "pool")
    turns = [chosen((one, other)[number % 2], float(number), Parameters(rotate=True)) for number in range(20)]
    assert all(before != after for before, after in itertools.pairwise(turns))


def test_sessions_of_another_pool_are_others(world: World) -> None:
    (here, one), (_there, other) = both_sessions(world, "pool", "another")
    own = chosen(one, 0.0)
    here[own].failed(0.0, "refused")
    assert chosen(one, 1.0) != own
    assert chosen(other, 2.0) == own


def test_the_address_of_a_rotated_session_is_the_same_at_all_workers(world: World) -> None:
    both = [Sources(world.loop, world.state()) for _ in range(2)]
    for each in both:
        each.configure(spec(1, egress=("203.0.113.0/24",), bind_policy="session"))
    session = Requested(CLIENT_IP, "ada", "7", ttl=60.0)
    first = both[0].key(session, None)
    assert both[1].key(session, None) == first
    both[0].source(both[0].stated(None, None), session._replace(rotate=True), None)
    rotated = both[1].key(session, None)
    assert rotated == both[0].key(session, None) != first
    world.at(59)
    assert both[1].key(session, None) == rotated
    world.at(118)
    assert both[0].key(session, None) == rotated
    world.at(179)
    assert [each.key(session, None) for each in both] == [first, first]


def test_round_robin_begins_at_another_place_at_each_worker() -> None:
    upstreams = [own_upstream(upstream_entry(f"up{number}"), number) for number in range(10)]
    begins = []
    for worker in range(4):
        policy = new_policy("round_robin", upstreams, worker)
        first = policy.choose("", lambda _each: True)
        assert first is not None
        begins.append(first.index)
    assert len(set(begins)) == 4


# --- parts of what a process has ---


def test_idle_connections_are_divided_among_those_that_live(world: World) -> None:
    pool = ConnectionPool(world.loop, TimerWheel(world.loop), 9, 30.0)
    elsewhere = world.workers()
    elsewhere.on_processes = pool.divide_among
    elsewhere.open_connections()
    assert pool._limit == 9
    world.workers()
    elsewhere.open_connections()
    assert pool._limit == 5
    pool.set_limits(4, 30.0)
    assert pool._limit == 2
    for _ in range(30):
        world.workers()
    elsewhere.open_connections()
    assert pool._limit == 1
