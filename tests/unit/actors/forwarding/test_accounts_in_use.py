"""Accounts of the shared table while thousands of them change at once: the work of a turn, and what requests meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import cast

import pytest

from actors.accounts.records import CredentialRecord
from actors.bus.loop import TURN_MAX, UNCHECKED, Loop
from actors.bus.messages.specs import AccountSpec
from actors.forwarding.limits import accounts_in_use
from actors.forwarding.limits.accounts import Account
from actors.forwarding.limits.accounts_in_use import POLL, UPDATED_AT_ONCE, AccountsInUse, FoundAccount, UnreadableError
from actors.forwarding.limits.limits import LimitsOfProxy
from actors.forwarding.limits.meter import MeteredConnection
from actors.forwarding.limits.usage import UsageCounters
from actors.forwarding.protocols import failures
from actors.state.live_state import LiveState
from tests.kit.clocks import Clock
from tests.kit.forwarding_rig import spec

PLAN = "plan_1"
MANY = 5 * UPDATED_AT_ONCE


class Table:
    """A table of accounts with one plan; `read` are the ids that were asked for."""

    def __init__(self, count: int) -> None:
        self.specs = {f"acc_{number}": AccountSpec(f"acc_{number}", f"user{number}", None) for number in range(count)}
        self.credentials: dict[str, CredentialRecord] = {}
        self.read: list[str] = []
        self.unreadable = False
        self.on_read: Callable[[], None] = lambda: None

    def named(self, username: str) -> FoundAccount | None:
        found = next((each for each in self.specs.values() if each.username == username), None)
        return None if found is None else FoundAccount(found, PLAN)

    def account(self, identifier: str) -> FoundAccount | None:
        if self.unreadable:
            raise UnreadableError
        self.read.append(identifier)
        self.on_read()
        found = self.specs.get(identifier)
        return None if found is None else FoundAccount(found, PLAN)

    def credential_by_id(self, identifier: str) -> CredentialRecord | None:
        if self.unreadable:
            raise UnreadableError
        self.read.append(identifier)
        return self.credentials.get(identifier)

    def refresh(self) -> None:
        """Nothing is found out by itself."""

    def change_plan(self, **changes: object) -> None:
        self.specs = {each: replace(of_it, **changes) for each, of_it in self.specs.items()}  # type: ignore[arg-type]


class Client:
    """A connection, which notes how it was ended."""

    client_ip = "192.0.2.1"
    ended: str | None = None

    def end(self, reason: str) -> None:
        self.ended = reason

    def destinations_changed(self) -> None:
        """All of them are allowed."""


class World:
    def __init__(self, count: int) -> None:
        self.clock = Clock(100.0)
        self.loop = Loop(self.clock)
        self.table = Table(count)
        self.limits = LimitsOfProxy(self.loop)
        self.limits.in_use.source = self.table
        self.limits.configure(spec(1, auth_required=True))
        for each in self.table.specs.values():
            assert self.limits.account(each.username) is not None

    def request(self, user: str, record: CredentialRecord | None = None) -> tuple[Client, object]:
        """A request of this user on a new connection: the connection, and why it was refused."""
        client = Client()
        holder = cast("MeteredConnection", client)
        return client, self.limits.admit_request(self.limits.meter(), user, holder, record)

    def turn(self) -> int:
        """How many were read in one turn."""
        before = len(self.table.read)
        self.loop.turn(0)
        return len(self.table.read) - before


@pytest.fixture
def world() -> Iterator[World]:
    made = World(MANY)
    yield made
    made.loop.close()


def test_a_changed_plan_of_many_accounts_is_applied_in_batches(world: World) -> None:
    clients = [world.request(f"user{number}")[0] for number in range(MANY)]
    world.table.change_plan(enabled=False)
    world.limits.in_use.changed({("plan", PLAN)})
    assert len(world.table.read) == UPDATED_AT_ONCE
    batches = []
    while batches[-1:] != [0]:
        batches.append(world.turn())
    assert batches == [UPDATED_AT_ONCE] * 4 + [0]
    assert sorted(world.table.read) == sorted(world.table.specs), "each was read once"
    assert {each.ended for each in clients} == {"account_disabled"}


def test_a_request_between_two_batches_meets_the_new_rule(world: World) -> None:
    last = f"user{MANY - 1}"
    open_before, refusal = world.request(last)
    assert refusal is None
    world.table.change_plan(enabled=False)
    world.limits.in_use.changed(None)
    waiting = next(reversed(world.limits.in_use.outdated))
    user = world.table.specs[waiting].username
    assert world.request(user)[1] == failures.ACCOUNT_DISABLED
    assert waiting not in world.limits.in_use.outdated
    assert world.limits.user_refusal(last, "192.0.2.1") == failures.ACCOUNT_DISABLED
    world.turn()
    assert open_before.ended == "account_disabled"
    assert world.table.read.count(waiting) == 1


def test_a_name_that_another_account_has_now_is_that_accounts_at_once(world: World) -> None:
    world.table.specs["acc_new"] = AccountSpec("acc_new", "user7", None, enabled=False)
    del world.table.specs["acc_7"]
    world.limits.in_use.outdated["acc_7"] = world.limits.in_use._update_account
    assert world.request("user7")[1] == failures.ACCOUNT_DISABLED


def test_a_credential_that_waits_is_brought_up_to_date_for_its_next_request(world: World) -> None:
    record = CredentialRecord("crd_1", "acc_1", "", "", 0.0)
    world.table.credentials["crd_1"] = record
    assert world.request("user1", record)[1] is None
    world.limits.in_use.changed(None)
    assert "crd_1" in world.limits.in_use.outdated
    expired = world.table.credentials["crd_1"] = record._replace(expires_at=1.0)
    assert world.request("user1", expired)[1] == failures.CREDENTIAL_EXPIRED


def test_what_can_not_be_read_is_refused_until_it_can_and_then_applied(world: World) -> None:
    world.table.change_plan(enabled=False)
    world.table.unreadable = True
    with pytest.raises(UnreadableError):
        world.limits.in_use.changed(None)
    assert world.request("user1")[1] == failures.ACCOUNTS_UNAVAILABLE
    world.table.unreadable = False
    world.clock.now += POLL
    while world.limits.in_use.outdated:
        assert world.turn() <= 2 * UPDATED_AT_ONCE
    assert world.request("user1")[1] == failures.ACCOUNT_DISABLED


def test_a_second_change_while_the_first_is_applied_adds_no_work_to_a_turn(world: World) -> None:
    for _ in range(3):
        world.limits.in_use.changed(None)
    assert len(world.table.read) == UPDATED_AT_ONCE
    assert world.turn() == UPDATED_AT_ONCE


def test_a_slow_machine_updates_as_many_as_a_turn_has_time_for(world: World) -> None:
    world.table.on_read = lambda: world.clock.advance(TURN_MAX / 20)
    world.limits.in_use.changed(None)
    batches = [len(world.table.read)]
    while batches[-1]:
        batches.append(world.turn())
    assert sum(batches) == MANY
    assert all(UNCHECKED <= each <= 20 + UNCHECKED for each in batches[:-1])


def test_accounts_that_are_not_used_are_dropped_as_a_turn_has_time_for() -> None:
    clock = Clock(100.0)
    loop, usage = Loop(clock), UsageCounters(Loop(clock))
    by_name: dict[str, Account] = {}
    state = LiveState(clock)

    def new(kind: type[Account], of_it: AccountSpec) -> Account:
        return kind(loop, of_it, 0.0, usage.acquire(of_it.id), partial(state.account, of_it.id))

    def dropped(_account: Account) -> None:
        clock.advance(TURN_MAX / 20)

    held = AccountsInUse(loop, by_name, new, lambda _account: None, dropped)
    held.source = table = Table(350)
    for each in table.specs.values():
        assert held.account(each.username) is not None
    clock.advance(accounts_in_use.IDLE + accounts_in_use.SWEEP)
    left = [350]
    while left[-1]:
        loop.turn(0)
        left.append(len(list(held)))
    assert all(UNCHECKED <= before - after <= 20 + 2 * UNCHECKED for before, after in pairwise(left[:-1]))
    assert not by_name
    loop.close()


def test_an_account_with_a_connection_is_not_dropped() -> None:
    world = World(20)
    busy = world.request("user3")[0]
    world.clock.now += accounts_in_use.IDLE + accounts_in_use.SWEEP
    for _ in range(20):
        world.loop.turn(0)
    assert list(world.limits.accounts) == ["user3"]
    assert busy.ended is None
    world.loop.close()


def test_a_sweep_that_has_ended_is_followed_by_another() -> None:
    world = World(3)
    for _ in range(2):
        assert world.limits.account("user1") is not None
        world.clock.now += accounts_in_use.IDLE + accounts_in_use.SWEEP
        world.loop.turn(0)
        assert list(world.limits.in_use) == []
    world.loop.close()
