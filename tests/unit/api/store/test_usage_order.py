"""Pages of accounts by what they have used and by when they were used last: no gaps, no repeats, filters hold."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.metrics.usage.account_usage import SCHEMA
from actors.sqlite import open_database
from api.store.accounts import AccountSelection, Position
from api.store.accounts.usage_order import NeverUsed
from config.files.paths import DataDir
from config.model.choices import PERIODS, period_at
from config.model.fleet_accounts import FleetAccountCreate, new_fleet_account
from tests.kit.clocks import Clock, room_in_the_day
from tests.kit.own_accounts import OwnAccounts

FEW = "api.store.accounts.usage_order.FEW"
FIGURES = (5, 0, 30, 30, 30, 12, 7, 7, 1, 0)
"""Of the accounts that the collector knows; several have the same."""


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path)


@pytest.fixture
def store(data: DataDir) -> Iterator[OwnAccounts]:
    store = OwnAccounts(data)
    yield store
    store.close()


def add(store: OwnAccounts, name: str, **fields: Any) -> str:
    record = new_fleet_account(FleetAccountCreate(username=name, **fields), "", time.time())
    store.put("accounts", record.model_dump(mode="json"))
    return record.id


def count(data: DataDir, account: str, used: int, period: str = "total", since: float = 0.0, seen: float = 0.0) -> None:
    database = open_database(data.usage, SCHEMA)
    database.execute(
        "INSERT INTO accounts (id, period, since, used, last_seen) VALUES (?, ?, ?, ?, ?)",
        (account, period, since, used, seen),
    )
    database.close()


def listed(store: OwnAccounts, limit: int, **selection: Any) -> list[str]:
    """The ids of all pages."""
    found: list[str] = []
    after: Position | None = None
    while True:
        documents, after = store.account_page(AccountSelection(**selection), after, limit)
        assert len(documents) == limit or after is None
        found += [each.id for each in documents]
        if after is None:
            return found


@pytest.mark.parametrize("few", [0, 2000])
@pytest.mark.parametrize("sort", ["usage", "last_seen_at"])
def test_pages_have_all_accounts_once_in_order_and_filters_hold(
    data: DataDir, store: OwnAccounts, sort: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FEW, few)
    room_in_the_day()
    now = time.time()
    figures, tagged = {}, set()
    for number, figure in enumerate(FIGURES):
        account = add(store, f"used{number}", tags=["odd"] if number % 2 else [])
        period = PERIODS[number % len(PERIODS)]
        values = {"used": figure} if sort == "usage" else {"used": 100 - figure, "seen": float(figure)}
        count(data, account, period=period, since=period_at(period, now)[0], **values)
        figures[account] = figure
        tagged |= {account} if number % 2 else set()
    for number in range(5):
        account = add(store, f"new{number}", tags=["odd"])
        figures[account] = 0
        tagged.add(account)
    count(data, "acc_that_is_gone", 50, seen=50.0)
    ascending = sorted(figures, key=lambda each: (figures[each], each))
    for limit, (tag, of) in itertools.product((1, 2, 4, 100), ((None, set(figures)), ("odd", tagged))):
        wanted = [each for each in ascending if each in of]
        assert listed(store, limit, sort=sort, tag=tag) == wanted
        assert listed(store, limit, sort=sort, tag=tag, descending=True) == wanted[::-1]


@pytest.mark.parametrize("few", [0, 2000])
def test_rates_of_now_are_an_order_whatever_the_collector_has_on_disk(
    data: DataDir, store: OwnAccounts, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FEW, few)
    accounts = [add(store, f"a{number}", tags=["odd"] if number % 2 else []) for number in range(8)]
    count(data, accounts[0], 1000, seen=1e9)
    for rates in ({accounts[3]: 70, accounts[4]: 70, accounts[6]: 5, "acc_that_is_gone": 9}, {accounts[0]: 1}, {}):
        wanted = sorted(accounts, key=lambda each: (rates.get(each, 0), each))
        odd = [each for each in wanted if accounts.index(each) % 2]
        for limit in (1, 3, 100):
            assert listed(store, limit, sort="rate", figures=rates) == wanted
            assert listed(store, limit, sort="rate", figures=rates, descending=True) == wanted[::-1]
            assert listed(store, limit, sort="rate", figures=rates, tag="odd") == odd


@pytest.mark.parametrize("few", [0, 2000])
def test_a_period_that_has_passed_counts_as_nothing(
    data: DataDir, store: OwnAccounts, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FEW, few)
    room_in_the_day()
    month = period_at("month", time.time())[0]
    past, present = add(store, "past"), add(store, "present")
    count(data, past, 1000, "month", period_at("month", month - 1)[0])
    count(data, present, 1, "month", month)
    for status in (None, "active"):
        assert listed(store, 1, sort="usage", descending=True, status=status) == [present, past]
        assert listed(store, 1, sort="usage", status=status) == [past, present]


def test_without_a_file_of_the_collector_all_count_as_never_used(data: DataDir, store: OwnAccounts) -> None:
    ids = sorted(add(store, name) for name in ("ada", "bob", "eve"))
    for sort in ("usage", "last_seen_at"):
        assert listed(store, 2, sort=sort) == ids
        assert listed(store, 2, sort=sort, q="", descending=True) == ids[::-1]
    assert not data.usage.exists()


@pytest.mark.parametrize("sort", ["usage", "last_seen_at"])
def test_accounts_that_are_used_reset_and_added_between_pages_are_in_their_places(
    data: DataDir, store: OwnAccounts, sort: str
) -> None:
    ids = sorted(add(store, name) for name in ("ada", "bob", "eve"))
    count(data, ids[0], 7, seen=7.0)
    assert listed(store, 2, sort=sort) == [*ids[1:], ids[0]]
    count(data, ids[1], 9, seen=9.0)
    assert listed(store, 2, sort=sort) == [ids[2], ids[0], ids[1]]
    new = add(store, "new")
    assert listed(store, 2, sort=sort) == [*sorted((ids[2], new)), ids[0], ids[1]]
    database = open_database(data.usage, SCHEMA)
    database.execute("UPDATE accounts SET used = 0, last_seen = 0 WHERE id = ?", [ids[0]])
    database.close()
    assert listed(store, 2, sort=sort) == [*sorted((ids[0], ids[2], new)), ids[1]]
    store.delete("accounts", ids[2])
    assert listed(store, 2, sort=sort, descending=True) == [ids[1], *sorted((ids[0], new), reverse=True)]
    for each in data.usage.parent.glob(f"{data.usage.name}*"):
        each.rename(each.with_name(f"gone-{each.name}"))
    count(data, new, 1, seen=1.0)
    assert listed(store, 2, sort=sort) == [*sorted(ids[:2]), new]


def test_whether_the_unused_are_many_is_looked_at_again(
    data: DataDir, store: OwnAccounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FEW, 1)
    clock = Clock(0.0)
    store._never_used = NeverUsed(clock)
    ids = sorted(add(store, name) for name in ("ada", "bob", "eve"))
    count(data, ids[0], 7)
    assert listed(store, 2, sort="usage") == [*ids[1:], ids[0]]
    assert store._never_used._found is None
    count(data, ids[1], 9)
    clock.now = 61.0
    assert listed(store, 2, sort="usage") == [ids[2], ids[0], ids[1]]
    assert store._never_used._found is not None
