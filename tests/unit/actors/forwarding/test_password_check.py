"""What a check of a password costs, and which hashes are replaced by one of our own."""

from __future__ import annotations

import bcrypt
import pytest

from actors.forwarding.access.authenticator import CheckedPassword, RefusalTime, check, hash_anew, prehash
from config.passwords import COST, check_password, foreign_hash, hash_password, rounds_of
from tests.kit.tables import table


def own(password: bytes, cost: int) -> bytes:
    return bcrypt.hashpw(prehash(password), bcrypt.gensalt(cost))


def foreign(password: bytes, cost: int) -> bytes:
    return foreign_hash(bcrypt.hashpw(password, bcrypt.gensalt(cost)).decode()).encode()


@table(
    "stored",
    [None, b"", own(b"right", 4), own(b"right", COST), foreign(b"right", 4), foreign(b"right", 8)],
    ids=["unknown", "no password", "ours at cost 4", "ours", "imported at cost 4", "imported at cost 8"],
)
def test_a_refusal_costs_as_many_rounds_as_a_hash_of_our_own(stored: bytes | None) -> None:
    assert check(b"wrong", stored)[:2] == (False, 1 << COST)


def test_a_dearer_hash_costs_what_others_chose() -> None:
    assert check(b"wrong", foreign(b"right", COST)).rounds == 2 << COST


def test_refusals_wait_by_the_time_that_a_round_takes() -> None:
    refusals = RefusalTime()
    refusals.note(CheckedPassword(False, 1000, 1.0))
    assert refusals.wait(CheckedPassword(False, 1000, 1.0), 4000) == 3.0
    assert refusals.wait(CheckedPassword(False, 4000, 4.0), 4000) == 0.0
    assert refusals.wait(CheckedPassword(False, 1000, 1.0), 0) == 0.0


@pytest.mark.parametrize(
    ("password", "stored", "renewable"),
    [
        (b"right", foreign(b"right", 4), True),
        (b"right", own(b"right", 4), False),
        (b"x" * 72, foreign(b"x" * 72, 4), True),
        (b"x" * 72 + b"y", foreign(b"x" * 72, 4), False),  # bcrypt has not read the end
    ],
    ids=["imported", "ours", "as long as bcrypt reads", "longer"],
)
def test_a_hash_from_elsewhere_is_replaced_where_the_whole_password_is_known(
    password: bytes, stored: bytes, renewable: bool
) -> None:
    found = check(password, stored)
    assert (found.matches, found.renewable) == (True, renewable)


def test_the_new_hash_is_one_of_our_own() -> None:
    renewed = hash_anew(b"right").decode()
    assert check_password("right", renewed)
    assert rounds_of(renewed) == 1 << COST
    assert rounds_of("plain:" + renewed) == 2 << COST
    assert (rounds_of(hash_password("right", 5)), rounds_of(None), rounds_of("none")) == (32, 0, 0)
