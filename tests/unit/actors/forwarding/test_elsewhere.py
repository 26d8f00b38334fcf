"""Limits of two workers in one process, by a clock set by hand: what they count together, and what before."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.bus.loop import Loop
from actors.bus.messages.specs import LimitsSpec, PolicySpec, RuleSpec
from actors.forwarding.access.guess_limit import FAILURES_OF_CLIENT, FAILURES_OF_USER, PAUSE, WITHIN, GuessLimit
from actors.forwarding.access.username_parameters import Parameters
from actors.forwarding.limits.elsewhere import COUNTS_FOR, Elsewhere, SharedKey, join_workers
from actors.forwarding.limits.limits import LimitsOfProxy
from actors.forwarding.limits.meter import Meter
from actors.forwarding.limits.rule_limits import Limited, MatchedRuleLimits
from actors.forwarding.limits.sliding_window import SlidingWindow
from actors.forwarding.limits.usage import WINDOW_MIN
from actors.forwarding.limits.usage_counters import WINDOW_OF_WORKER_MIN, UsageCounters
from actors.forwarding.net.connection_pool import ConnectionPool
from actors.forwarding.net.egress import Requested, Sources
from actors.forwarding.net.timer_wheel import TimerWheel
from actors.forwarding.protocols.failures import Decider
from actors.forwarding.upstreams.balancing import new_policy
from actors.forwarding.upstreams.sessions import UpstreamSessions
from actors.pools.upstream import Upstream
from actors.supervision.processes.columns import WorkerColumns
from actors.workers.keys import SETS, SLOT_SECONDS, WAYS
from tests.kit.clocks import Clock
from tests.kit.forwarding_rig import spec
from tests.kit.upstreams import three, up, upstream_entry

PROXY = "px1"
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
    """Workers of one proxy on one loop."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock(1000.0)
        self.loop = Loop(self.clock)
        self.folder = folder
        self.columns = WorkerColumns(folder, self.clock)
        self.failures: list[str] = []
        self._instances = 0

    def elsewhere(self) -> Elsewhere:
        self._instances += 1
        column = self.columns.allocate(PROXY, self._instances)
        made = join_workers(self.loop, self.folder, PROXY, column, self.failures.append)
        assert made is not None
        return made

    def limits(self, limits: LimitsSpec, shared: bool = True) -> LimitsOfProxy:
        made = LimitsOfProxy(self.loop)
        made.configure(spec(1, limits=limits))
        if shared:
            made.share(self.elsewhere(), 0)
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


def window(world: World, key: SharedKey) -> SlidingWindow:
    return key.window(SlidingWindow(world.loop.now))


# --- requests of a minute ---


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.0, 30.0)), max_size=50), st.integers(1, 8))
def test_never_are_there_more_than_the_limit_in_any_minute_and_places_are_free_soon_after(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, float]], limit: int
) -> None:
    world = World(tmp_path_factory.mktemp("workers") / "w")
    windows = [window(world, world.elsewhere().key("client", CLIENT_IP)) for _ in range(3)]
    admitted: list[float] = []
    passed = 0.0
    for which, seconds in steps:
        passed += seconds
        world.at(passed)
        counted = [moment for moment in admitted if moment > passed - 60]
        counted_late = [moment for moment in admitted if moment > passed - COUNTS_FOR]
        wait = windows[which].try_acquire(limit, world.loop.now)
        if wait:
            assert len(counted_late) >= limit
            assert 1 <= wait <= COUNTS_FOR + 1
            world.at(passed + wait)
            assert windows[which].try_acquire(limit, world.loop.now) == 0
            passed += wait
        else:
            assert len(counted) < limit
        admitted.append(passed)
    world.loop.close()


def test_a_client_waits_until_the_slot_of_its_first_request_is_over(world: World) -> None:
    one, other = (window(world, world.elsewhere().key("client", CLIENT_IP)) for _ in range(2))
    world.at(-1000.0 + 150 * SLOT_SECONDS)
    assert one.try_acquire(2, world.loop.now) == other.try_acquire(2, world.loop.now) == 0
    assert one.try_acquire(2, world.loop.now) == other.try_acquire(2, world.loop.now) == 67


def test_requests_from_before_the_other_worker_count_on(world: World) -> None:
    first = world.limits(LimitsSpec(requests_per_minute=3), shared=False)
    assert [requests(first) for _ in range(2)] == [True, True]
    first.share(world.elsewhere(), 0)
    second = world.limits(LimitsSpec(requests_per_minute=3))
    assert [requests(first), requests(first)] == [True, False]
    assert not requests(second)


def test_what_a_worker_has_counted_is_kept_for_the_next_process(world: World) -> None:
    one, other = (window(world, world.elsewhere().key("client", CLIENT_IP)) for _ in range(2))
    for seconds, each in ((0, one), (5, other), (20, one), (20.5, one)):
        world.at(seconds)
        assert each.try_acquire(200, world.loop.now) == 0
    world.at(40)
    after = SlidingWindow(world.loop.now)
    after.add(one.kept())
    assert after.count(world.loop.now) == 3
    assert [after.try_acquire(4, world.loop.now) > 0 for _ in range(2)] == [False, True]
    assert [after.try_acquire(200, world.loop.now + 1) for _ in range(197)] == [0] * 197
    assert after.try_acquire(200, world.loop.now + 1) > 0


def test_a_key_without_a_place_counts_for_each_worker_alone(world: World) -> None:
    one, other = world.elsewhere(), world.elsewhere()
    key = one.key("client", CLIENT_IP)
    for number in range(WAYS):
        full = SharedKey(world.loop, one._worker, key._digest + SETS * (number + 1))
        full.set_connections(1)
    windows = [window(world, each.key("client", CLIENT_IP)) for each in (one, other)]
    assert [windows[0].try_acquire(2, world.loop.now) for _ in range(3)] == [0, 0, 60]
    assert [windows[1].try_acquire(2, world.loop.now) == 0 for _ in range(3)] == [True, True, False]


# --- connections ---


def test_connections_from_before_the_other_worker_count(world: World) -> None:
    first = world.limits(LimitsSpec(connections=2), shared=False)
    open_now = [Connection(), Connection()]
    for each in open_now:
        first.connection_opened(each)
    first.share(world.elsewhere(), len(open_now))
    second = world.limits(LimitsSpec(connections=2))
    assert second.client_refusal(CLIENT_IP) is not None
    assert second.elsewhere is not None
    assert second.elsewhere.open_connections() == (2, 2)
    first.connection_removed(open_now[0], 1)
    assert second.client_refusal(CLIENT_IP) is None
    assert second.elsewhere.open_connections() == (1, 2)


def test_a_limit_that_is_gone_leaves_nothing_behind(world: World) -> None:
    first, second = (world.limits(LimitsSpec(connections=1)) for _ in range(2))
    first.connection_opened(Connection())
    assert second.client_refusal(CLIENT_IP) is not None
    first.configure(spec(1, limits=LimitsSpec()))
    assert second.client_refusal(CLIENT_IP) is None


def test_users_of_a_back_end_and_credentials_and_rules_are_counted_by_what_they_are(world: World) -> None:
    """The same name is another key for each."""
    elsewhere = world.elsewhere()
    digests = {elsewhere.key(kind, "x")._digest for kind in ("client", "account", "credential", "guest", "rule")}
    assert len(digests) == 5


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


@pytest.mark.parametrize("late", [False, True])
def test_limits_of_a_rule_hold_for_all_workers(world: World, late: bool) -> None:
    limits = LimitsSpec(connections=1)
    limited = Limited(("pol_1", "few"), limits, Decider("office", "few", where="policy office"), "few")
    first, second = MatchedRuleLimits(world.loop), MatchedRuleLimits(world.loop)
    host = world.limits(LimitsSpec())
    meters = [host.meter(), host.meter()]
    if not late:
        first.share(world.elsewhere())
    assert first.admit(meters[0], [limited]) is None
    if late:
        first.share(world.elsewhere())
    second.share(world.elsewhere())
    assert second.admit(meters[1], [limited]) is not None
    first.configure([PolicySpec("pol_1", "office", (RuleSpec("few", limits=LimitsSpec(requests_per_minute=9)),))])
    assert second.admit(meters[1], [limited]) is None


# --- guesses ---


def test_wrong_passwords_add_up_for_a_minute_alone() -> None:
    guesses = GuessLimit()
    for now in (*[0.0] * (FAILURES_OF_USER - 1), WITHIN + 1):
        assert not guesses.failed(CLIENT_IP, "ada", now)
    assert not guesses.paused(CLIENT_IP, "ada", WITHIN + 1)


def test_wrong_passwords_of_a_client_pause_it_at_all_workers(world: World) -> None:
    guesses = [GuessLimit() for _ in range(2)]
    for each in guesses:
        each.share(world.elsewhere(), world.loop.now)
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


def test_wrong_passwords_from_before_count_for_all_workers(world: World) -> None:
    first, second, third = (GuessLimit() for _ in range(3))
    now = world.loop.now
    for number in range(FAILURES_OF_USER):
        first.failed(CLIENT_IP, "ada", now)
        second.failed(CLIENT_IP, "bob", now) if number else None
    for each in (first, second, third):
        each.share(world.elsewhere(), now)
    assert third.paused(CLIENT_IP, "ada", now)
    assert not third.paused(CLIENT_IP, "bob", now)
    assert third.failed(CLIENT_IP, "bob", now)
    assert all(each.paused(CLIENT_IP, "bob", now) for each in (first, second))


# --- joining ---


def test_without_a_valid_file_of_columns_there_is_nothing_to_join(world: World) -> None:
    world.elsewhere()
    (world.folder / PROXY / "columns").write_bytes(b"damaged")
    assert join_workers(world.loop, world.folder, PROXY, 1, world.failures.append) is None
    (world.folder / PROXY / "columns").unlink()
    (world.folder / PROXY / "columns").mkdir()
    assert join_workers(world.loop, world.folder, PROXY, 1, world.failures.append) is None
    assert len(world.failures) == 2


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
        sessions = UpstreamSessions(upstreams)
        sessions.share(world.elsewhere(), name)
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
    own = chosen(UpstreamSessions(three()), 0.0)
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
    both = [Sources(world.loop) for _ in range(2)]
    for each in both:
        each.share(world.elsewhere())
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


def test_round_robin_begins_at_another_place_at_each_worker(world: World) -> None:
    upstreams = [Upstream(upstream_entry(f"up{number}"), number, 0.0) for number in range(10)]
    begins = []
    for _ in range(4):
        policy = new_policy("round_robin", upstreams, world.elsewhere().part)
        first = policy.choose("", lambda _each: True)
        assert first is not None
        begins.append(first.index)
    assert len(set(begins)) == 4


# --- parts of what a process has ---


def test_idle_connections_and_windows_of_quotas_are_divided_among_those_that_live(world: World) -> None:
    loop = world.loop
    pool, usage = ConnectionPool(loop, TimerWheel(loop), 9, 30.0), UsageCounters(loop)

    def on_processes(count: int) -> None:
        pool.divide_among(count)
        usage.workers = count

    elsewhere = world.elsewhere()
    elsewhere.on_processes = on_processes
    elsewhere.open_connections()
    assert (pool._limit, usage.part_of_window(WINDOW_MIN)) == (9, WINDOW_MIN)
    world.elsewhere()
    elsewhere.open_connections()
    assert (pool._limit, usage.part_of_window(WINDOW_MIN)) == (5, WINDOW_MIN // 2)
    pool.set_limits(4, 30.0)
    assert pool._limit == 2
    for _ in range(30):
        world.elsewhere()
    elsewhere.open_connections()
    assert (pool._limit, usage.part_of_window(WINDOW_MIN)) == (1, WINDOW_OF_WORKER_MIN)
