"""Rates and sessions: who writes last, who makes room, and what another process reads of them."""

from __future__ import annotations

import pytest

from actors.mapped_file import private
from actors.workers import rates, sessions
from actors.workers.rates import PERIODS_KEPT, RateTable
from actors.workers.sessions import NO_CHOICE, Choice, SessionTable, halves


@pytest.fixture
def rate_table() -> RateTable:
    return RateTable(private(rates.KIND))


@pytest.fixture
def session_table() -> SessionTable:
    return SessionTable(private(sessions.KIND))


def test_what_moved_is_read_for_three_periods(rate_table: RateTable) -> None:
    moved = (1, 2, 3, 4, 5, 6)
    assert rate_table.write(77, 100, moved)
    assert rate_table.read(77, 100) == rate_table.read(77, 100 + PERIODS_KEPT - 1) == moved
    assert rate_table.read(77, 100 + PERIODS_KEPT) is None
    assert rate_table.read(78, 100) is None


def test_the_next_owner_of_a_column_has_moved_nothing(rate_table: RateTable) -> None:
    rate_table.write(77, 100, (1, 0, 0, 0, 0, 0))
    rate_table.clean()
    assert rate_table.read(77, 100) is None


def test_a_bandwidth_in_use_keeps_its_place(rate_table: RateTable) -> None:
    keys = [5 + rates.SETS * number for number in range(1, rates.WAYS + 2)]
    for key in keys[:-1]:
        assert rate_table.write(key, 100, (1, 0, 0, 0, 0, 0))
    assert not rate_table.write(keys[-1], 105, (1, 0, 0, 0, 0, 0))
    assert rate_table.write(keys[-1], 110, (2, 0, 0, 0, 0, 0))
    assert rate_table.read(keys[-1], 110) == (2, 0, 0, 0, 0, 0)


def test_a_session_keeps_its_last_choice(session_table: SessionTable) -> None:
    session = halves(b"0123456789abcdef")
    assert session_table.read(session) == NO_CHOICE
    session_table.write(session, Choice(5, 1000))
    session_table.write(session, Choice(6, 900))
    assert session_table.read(session) == Choice(6, 900)
    assert session_table.read(halves(b"01234567ABCDEFGH")) == NO_CHOICE


def test_the_session_that_ends_first_makes_room(session_table: SessionTable) -> None:
    known = [(9 + sessions.SETS * number, number) for number in range(1, sessions.WAYS + 1)]
    for end, session in enumerate(known):
        session_table.write(session, Choice(1, 5000 - end))
    session_table.write((9, 0), Choice(2, 6000))
    assert session_table.read((9, 0)) == Choice(2, 6000)
    assert [session_table.read(each).end for each in known] == [*range(5000, 4993, -1), 0]
