"""A configuration that takes the place of another, by turns of the loop: what is done in each, and what holds when."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.specs import EgressSpec, LimitsSpec, PolicySpec, ProxySpec, RuleSpec
from actors.forwarding.context import ForwardingContext
from actors.forwarding.decision import Subject
from actors.forwarding.fleet_objects import FleetObjects
from actors.forwarding.limits.meter import Meter
from actors.forwarding.open_connections import VISIT_BATCH, ConnectionInfo, OpenConnection
from actors.forwarding.policies import conditions
from actors.forwarding.policies.masks import BATCH, SORTED
from actors.forwarding.protocols.http.targets import parse_authority
from actors.forwarding.reconfiguration import ENTRIES, Configuration, Reconfiguration
from config.net.entries import read_entry
from tests.kit.clocks import Clock
from tests.kit.forwarding_rig import spec

EGRESS = EgressSpec("public_only", (), ())
MANY = 16 * ENTRIES


class Idle:
    """A connection of a user in which nothing happens."""

    client_ip = "192.0.2.1"
    meter: Meter | None = None
    deadline = scheduled_for = float("inf")
    ended: str | None = None
    judged = 0

    def __init__(self, number: int, user: str = "") -> None:
        self.number = number
        self._user = user

    def info(self) -> ConnectionInfo:
        return ConnectionInfo(self.client_ip, self._user, "a.example:443", "tunnel", 0, 0)

    def measure(self, meter: Meter) -> None:
        self.meter = meter

    def end(self, reason: str) -> None:
        self.ended = reason

    def policies_changed(self) -> None:
        self.judged += 1


class World:
    def __init__(self) -> None:
        self.loop = Loop(Clock(100.0))
        self.context = ForwardingContext(self.loop, lambda _row: None, 10, 10.0)
        self.applied: list[str] = []
        self.done: list[str] = []
        self.reconfiguration = Reconfiguration(self.context, lambda configured: self.applied.append(configured.name))

    def configure(self, name: str, objects: FleetObjects | None = None, **changes: Any) -> None:
        wanted: ProxySpec = spec(1, name=name, **changes)
        configuration = Configuration(wanted, EGRESS, objects or FleetObjects())
        self.reconfiguration.configure(configuration, lambda: self.done.append(name))

    def policy(self, name: str, *entries: str, ended: int = 0) -> None:
        """Configure a policy with these destinations."""
        rules = (RuleSpec("nothing", use="deny", destinations=entries),)
        self.configure(name, FleetObjects(policies=(PolicySpec("p", "office", rules, ended=ended),)), policy="office")

    def open(self, count: int, user: str = "") -> list[Idle]:
        made = [Idle(self.context.new_number(), user) for _ in range(count)]
        self.context.connections.update(dict.fromkeys(cast("list[OpenConnection]", made)))
        return made

    def turns_until_done(self, count: int) -> int:
        for turns in range(1_000):
            if len(self.done) == count:
                return turns
            self.loop.turn(0)
        raise AssertionError(f"done: {self.done}")

    @property
    def denied(self) -> list[str]:
        """The names that the policy denies."""
        policies = self.context.policies
        assert policies is not None
        return list(policies.applying("")[0].rules[0].spec.destinations)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.loop.close()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The entries of policies that were read."""
    found: list[str] = []

    def reading(text: str) -> object:
        found.append(text)
        return read_entry(text)

    monkeypatch.setattr(conditions, "read_entry", reading)
    return found


def names(count: int, domain: str = "example") -> list[str]:
    return [f"h{number}.{domain}" for number in range(count)]


# --- compiling ---


def test_the_first_configuration_is_compiled_at_once(world: World) -> None:
    world.policy("first", *names(MANY))
    assert (world.applied, world.done) == (["first"], ["first"])
    assert world.denied == names(MANY)


def test_a_policy_is_compiled_in_batches_and_the_former_one_judges_until_then(world: World, read: list[str]) -> None:
    world.policy("first", "old.example")
    world.policy("second", *names(MANY))
    most = before = 0
    while len(read) < MANY:
        assert world.denied == ["old.example"]
        assert world.done == ["first"]
        most = max(most, len(read) - before)
        before = len(read)
        world.loop.turn(0)
    assert most <= ENTRIES + BATCH
    turns = world.turns_until_done(2)
    assert turns >= 2 * MANY // SORTED // ENTRIES, "tables are filled in batches as well"
    assert world.denied == names(MANY)
    assert world.applied == ["first", "second"]


def test_what_comes_meanwhile_is_compiled_next_and_only_the_newest_of_it(world: World, read: list[str]) -> None:
    world.policy("first", "old.example")
    read.clear()
    for name in ("second", "third", "fourth"):
        world.policy(name, *names(MANY, name))
    world.turns_until_done(4)
    assert world.applied == ["first", "second", "fourth"]
    assert world.done == ["first", "second", "third", "fourth"]
    assert world.denied == names(MANY, "fourth")
    assert not any(each.endswith(".third") for each in read)


def test_a_policy_that_stays_the_same_is_not_compiled_again(world: World, read: list[str]) -> None:
    world.policy("first", *names(MANY))
    read.clear()
    world.policy("second", *names(MANY))
    assert world.done == ["first", "second"]
    assert read == []


def test_entries_of_all_kinds_are_divided(world: World) -> None:
    networks = [f"10.{number >> 8}.{number & 255}.0/24" for number in range(MANY)]
    ports = [f"one.example:{1_000 + number}" for number in range(MANY)]
    paths = tuple(f"/{number}/*" for number in range(MANY))
    rules = (
        RuleSpec("networks", use="deny", destinations=tuple(networks), clients=tuple(networks)),
        RuleSpec("ports", use="deny", destinations=tuple(ports)),
        RuleSpec("paths", use="deny", paths=paths),
        RuleSpec("accounts", use="deny", accounts=tuple(names(MANY))),
    )
    objects = FleetObjects(policies=(PolicySpec("p", "office", rules),))
    batches = world.context.compiling(spec(1, policy="office"), objects)
    sizes = list(batches)
    assert max(sizes) <= BATCH
    read = 4 * MANY + 2 * len(rules)
    assert sum(sizes) >= read + 5 * MANY // SORTED - 5 * BATCH, "each is read, and all are put into tables"


# --- open connections ---


def test_connections_get_their_meter_in_batches_and_done_is_said_after_the_last(world: World) -> None:
    world.configure("first")
    connections = world.open(4 * VISIT_BATCH)
    gone = connections[-1]
    world.configure("second", limits=LimitsSpec(bandwidth_in=1000, connections=7))
    measured = [sum(each.meter is not None for each in connections)]
    world.context.remove(cast("OpenConnection", gone))
    while world.done == ["first"]:
        world.loop.turn(0)
        measured.append(sum(each.meter is not None for each in connections))
    assert max(later - before for before, later in zip([0, *measured], measured, strict=False)) <= VISIT_BATCH
    assert measured[-1] == 4 * VISIT_BATCH - (gone.meter is None)
    assert world.context.limits._counts == {"192.0.2.1": 4 * VISIT_BATCH - 1}


def test_what_takes_the_place_of_a_connection_meanwhile_is_visited_instead(world: World) -> None:
    world.configure("first")
    connections = world.open(2 * VISIT_BATCH)
    world.configure("second", limits=LimitsSpec(bandwidth_in=1000))
    waiting = next(each for each in connections if each.meter is None)
    tunnel = Idle(waiting.number)
    world.context.replace(cast("OpenConnection", waiting), cast("OpenConnection", tunnel))
    world.turns_until_done(2)
    assert tunnel.meter is not None
    assert waiting.meter is None


def test_connections_of_a_former_user_end_in_batches_and_those_of_no_other(world: World) -> None:
    world.configure("first", auth_username="ada", auth_hash="a")
    previous, others = world.open(2 * VISIT_BATCH, "ada"), world.open(10, "bob")
    world.configure("second", auth_username="ada", auth_hash="b")
    [late] = world.open(1, "ada")
    assert 0 < sum(each.ended is not None for each in previous) <= VISIT_BATCH
    world.turns_until_done(2)
    assert {each.ended for each in previous} == {"account_password_changed"}
    assert {each.ended for each in (*others, late)} == {None}


def test_tunnels_are_judged_again_in_batches_where_a_policy_ends_existing_ones(world: World) -> None:
    world.policy("first", "old.example")
    connections = world.open(2 * VISIT_BATCH)
    world.policy("second", "new.example")
    world.policy("third", "newest.example", ended=1)
    assert sum(each.judged for each in connections) == VISIT_BATCH
    world.turns_until_done(3)
    assert {each.judged for each in connections} == {1}


def test_two_configurations_one_after_the_other_are_both_done(world: World) -> None:
    world.configure("first")
    connections = world.open(3 * VISIT_BATCH)
    world.configure("second", limits=LimitsSpec(bandwidth_in=1000))
    world.configure("third", limits=LimitsSpec(bandwidth_in=1000), auth_username="ada", auth_hash="a")
    world.configure("fourth")
    world.turns_until_done(4)
    assert world.applied == ["first", "second", "third", "fourth"]
    assert set(world.done) == set(world.applied)
    assert world.context._unvisited == []
    assert any(each.meter is None for each in connections), "without limits none gets a meter any more"


def test_asking_whether_policies_judge_an_account_changes_nothing(world: World) -> None:
    of_plan: Any = SimpleNamespace(policies=("later",), tags=())
    assert [world.context.judges(each) for each in (None, of_plan, None)] == [False, True, False]
    target = parse_authority(b"a.example:443", 443)
    judge = Subject("192.0.2.7", 3128, "ann", of_plan).judge(world.context, target)
    assert judge is not None
    verdict = judge.by_name()
    assert verdict is not None
    assert verdict.failure is not None
    assert world.context.policies is None
