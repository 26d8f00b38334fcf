"""Which upstream a session has, with a clock of the test's own."""

from __future__ import annotations

import itertools
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from actors.forwarding.access.username_parameters import Parameters
from actors.forwarding.upstreams import sessions as module
from actors.forwarding.upstreams.balancing import score
from actors.forwarding.upstreams.route import has_labels
from actors.forwarding.upstreams.sessions import Rendezvous, UpstreamSessions
from actors.pools.upstream import Upstream
from actors.state.choices import CHOICES_ALONE, SharedChoices
from actors.state.live_state import LiveState
from tests.kit.tables import table
from tests.kit.upstreams import own_upstream, three, three_of_a_pool, up, upstream_entry

SEVEN = Parameters("7", 60.0)


def sessions_of(upstreams: Sequence[Upstream], previous: UpstreamSessions | None = None) -> UpstreamSessions:
    """Those of a process that is alone, or after those that it had of other upstreams."""
    choices = SharedChoices(LiveState(lambda: 0.0)) if previous is None else previous.choices
    return UpstreamSessions(upstreams, choices, previous)


def every(_upstream: Upstream) -> bool:
    return True


def choose(
    sessions: UpstreamSessions, parameters: Parameters = SEVEN, now: float = 0.0, key: str = "alice\0007"
) -> int:
    found = sessions.choose(key, parameters, every, up, now)
    return -1 if found is None else found.index


def test_a_session_is_back_at_its_own_upstream_as_soon_as_that_is_up_again() -> None:
    upstreams = three()
    sessions = sessions_of(upstreams)
    own = choose(sessions)
    assert choose(sessions) == own
    upstreams[own].failed(0.0, "refused")
    other = choose(sessions)
    assert other != own
    assert [choose(sessions, now=now) for now in (1.0, 50.0, 100.0)] == [other] * 3
    upstreams[own].succeeded(101.0)
    assert choose(sessions, now=102.0) == own


def test_with_other_labels_it_is_another_session() -> None:
    countries = ("fr", "de", "de", "de")
    labelled = [upstream_entry(port, labels=(("country", each),)) for port, each in enumerate(countries, 1)]
    sessions = sessions_of([own_upstream(spec, index) for index, spec in enumerate(labelled)])

    def chosen(country: str, rotate: bool) -> Upstream | None:
        parameters = Parameters("7", 60.0, rotate, {"country": country})
        return sessions.choose("alice\0007", parameters, partial(has_labels, parameters), up, 0.0)

    moved = chosen("de", rotate=True)
    assert chosen("fr", rotate=True) is not moved
    assert chosen("de", rotate=False) is moved


def of_pool(sessions: UpstreamSessions, now: float, *tried: Upstream, key: str = "alice\0007") -> int:
    found = sessions.choose(key, SEVEN, every, lambda each: each.eligible(now) and each not in tried, now, tried)
    return -1 if found is None else found.index


@table(
    ("kind", "during"),
    [("429", "nowhere"), ("5xx", "there"), ("doubt", "there"), ("ban", "elsewhere")]
    + [(kind, "elsewhere") for kind in ("connect", "407")],
)
def test_a_session_moves_only_for_an_upstream_that_is_down_or_banned(kind: str, during: str) -> None:
    """A cool-down is no reason: the request fails where the upstream wants to be left alone, and is sent otherwise."""
    upstreams = three_of_a_pool()
    sessions = sessions_of(upstreams)
    own = of_pool(sessions, 0.0)
    assert of_pool(sessions, 0.0) == own
    slot = upstreams[own].slot
    if kind == "ban":
        slot.ban(1.9)
    elif kind == "doubt":
        slot.doubt(0.0, 1.9)
    else:
        slot.failed(0.0, kind, "status", "it failed")
    found = of_pool(sessions, 0.9)
    assert {own: "there", -1: "nowhere"}.get(found, "elsewhere") == during
    assert sessions.stays("alice\0007", SEVEN, every, 0.9)
    slot.succeeded(700.0)
    slot.lift(700.0)
    assert of_pool(sessions, 701.0) == own


def test_a_session_that_has_moved_stays_at_its_stand_in_while_its_own_is_down() -> None:
    """Also where the one that would be the next of its key works again."""
    upstreams = three_of_a_pool()
    sessions = sessions_of(upstreams)
    own = of_pool(sessions, 0.0)
    of_pool(sessions, 0.0)
    upstreams[own].slot.failed(0.0, "connect", "unreachable", "refused")
    second = of_pool(sessions, 0.5)
    upstreams[second].slot.failed(0.5, "connect", "unreachable", "refused")
    third = of_pool(sessions, 0.6)
    assert {own, second, third} == {0, 1, 2}
    upstreams[second].slot.succeeded(0.7)
    assert of_pool(sessions, 0.8) == third
    upstreams[third].slot.failed(0.8, "5xx", "status", "it responds 500")
    assert of_pool(sessions, 0.9) == third


def test_a_request_of_a_session_is_sent_to_its_upstream_alone_but_for_the_first_one() -> None:
    """No target has seen the session before its first request has an end, so that may begin anywhere."""
    upstreams = three_of_a_pool()
    sessions = sessions_of(upstreams)
    first = of_pool(sessions, 0.0)
    second = of_pool(sessions, 0.0, upstreams[first])
    assert second not in (first, -1)
    assert not sessions.stays("alice\0007", SEVEN, every, 0.0)
    assert of_pool(sessions, 1.0) == second
    assert sessions.stays("alice\0007", SEVEN, every, 1.0)
    assert of_pool(sessions, 1.0, upstreams[second]) == -1
    upstreams[second].slot.failed(1.0, "connect", "unreachable", "refused")
    assert of_pool(sessions, 1.0, upstreams[second]) not in (second, -1)


def test_a_session_begins_where_it_can_be_served() -> None:
    upstreams = three_of_a_pool()
    own = of_pool(sessions_of(upstreams), 0.0)
    upstreams[own].slot.failed(0.0, "429", "status", "it responds 429")
    sessions = sessions_of(upstreams)
    began = of_pool(sessions, 1.0)
    assert began not in (own, -1)
    upstreams[own].slot.lift(2.0)
    assert [of_pool(sessions, now) for now in (3.0, 60.0)] == [began] * 2
    assert of_pool(sessions, 121.0) == own


def test_the_other_upstream_fails_as_well() -> None:
    upstreams = three()
    sessions = sessions_of(upstreams)
    for _ in range(3):
        upstreams[choose(sessions)].failed(0.0, "refused")
    assert choose(sessions) == -1
    upstreams[0].succeeded(1.0)
    assert choose(sessions) == 0


def test_rotation_is_in_proportion_to_the_weights_and_never_twice_the_same() -> None:
    sessions = sessions_of(three(2, 1, 1))
    turns = [choose(sessions, Parameters(rotate=True), key="alice\0") for _ in range(400)]
    assert all(one != other for one, other in itertools.pairwise(turns))
    assert 180 <= Counter(turns)[0] <= 200
    alone = three()
    sessions = sessions_of(alone)
    alone[0].failed(0.0, "")
    alone[1].failed(0.0, "")
    assert {choose(sessions, Parameters(rotate=True)) for _ in range(3)} == {2}


def test_a_session_that_rotates_is_where_its_request_has_found_an_upstream() -> None:
    upstreams = three()
    sessions = sessions_of(upstreams)
    moving = Parameters("7", 60.0, rotate=True)
    tried = upstreams[choose(sessions, moving)]
    again = sessions.choose("alice\0007", moving, every, lambda each: each is not tried, 0.0, (tried,))
    assert again not in (tried, None)
    assert choose(sessions) == again.index


def test_sessions_survive_a_changed_list_where_their_upstream_stays() -> None:
    upstreams = three()
    sessions = sessions_of(upstreams)
    moved = choose(sessions, Parameters("7", 60.0, rotate=True))
    successor = sessions_of(upstreams[::-1], sessions)
    assert choose(successor) == moved
    left = [each for each in upstreams if each.index != moved]
    assert choose(sessions_of(left, successor)) in {each.index for each in left}


def test_upstreams_that_are_added_take_no_session_and_one_that_is_removed_leaves_it_to_its_stand_in() -> None:
    upstreams = many(20)
    keys = [f"alice\0{number}" for number in range(50)]
    sessions = sessions_of(upstreams[:2])
    before = {key: choose(sessions, key=key) for key in keys}
    added = sessions_of(upstreams, sessions)
    assert {key: choose(added, key=key) for key in keys} == before
    upstreams[0].failed(0.0, "refused")
    stand_ins = {key: choose(added, key=key, now=1.0) for key in keys if before[key] == 0}
    removed = sessions_of(upstreams[1:], added)
    assert {key: choose(removed, key=key, now=2.0) for key in keys} == before | stand_ins


def test_a_home_that_has_no_longer_the_labels_of_its_session_is_left() -> None:
    upstreams = three()
    german = Parameters("7", 60.0, labels={"country": "de"})
    sessions = sessions_of(upstreams)
    first = sessions.choose("alice\0007", german, every, up, 0.0)

    def other(upstream: Upstream) -> bool:
        return upstream is not first

    successor = sessions_of(upstreams, sessions)
    second = successor.choose("alice\0007", german, other, lambda each: up(each) and other(each), 0.0)
    assert second is not None
    assert second is not first
    assert successor.peek("alice\0007", german, other, lambda each: up(each) and other(each), 0.0) is second


def test_labels_keep_sessions_apart_and_within_what_matches() -> None:
    upstreams = three()
    sessions = sessions_of(upstreams)
    german = Parameters("7", 60.0, labels={"country": "de"})
    for _ in range(3):
        found = sessions.choose("alice\0007", german, lambda each: each.index == 1, up, 0.0)
        assert found is upstreams[1]
    assert sessions.choose("alice\0007", german, lambda _each: False, lambda _each: False, 0.0) is None


def many(count: int, weight: int = 1) -> list[Upstream]:
    return [own_upstream(upstream_entry(number + 1, weight=weight), number) for number in range(count)]


def spread(upstreams: list[Upstream], keys: int) -> dict[int, Upstream]:
    order = Rendezvous(upstreams)
    found = {key: order.first(b"%d" % key) for key in range(keys)}
    return {key: upstream for key, upstream in found.items() if upstream is not None}


def test_sessions_are_spread_by_weight_over_a_long_list() -> None:
    upstreams = many(300)
    upstreams += [own_upstream(upstream_entry(1000 + number, weight=4), 300 + number) for number in range(100)]
    chosen = Counter(each.spec.weight for each in spread(upstreams, 4000).values())
    assert 2100 < chosen[4] < 2480  # 400 of 700


def test_an_upstream_that_goes_moves_its_own_sessions_and_about_as_many_others() -> None:
    upstreams = many(200)
    before, after = spread(upstreams, 2000), spread(upstreams[:-10], 2000)
    moved = [key for key, upstream in before.items() if after[key] is not upstream]
    gone = [key for key, upstream in before.items() if upstream in upstreams[-10:]]
    assert set(gone) <= set(moved)
    assert len(moved) < 350
    assert spread(upstreams[::-1], 2000) == before


def test_the_next_upstream_of_a_key_is_the_next_usable_one() -> None:
    upstreams = many(50)
    order = Rendezvous(upstreams)
    left = set(upstreams)
    while left:
        found = order.first(b"key", left.__contains__)
        assert found is not None
        assert order.first(b"key", left.__contains__) is found
        left.discard(found)
    assert order.first(b"key", left.__contains__) is None
    assert Rendezvous([]).first(b"key") is None


def test_a_new_session_asks_few_of_many_upstreams(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = 0

    def counted(*given: Any) -> float:
        nonlocal scores
        scores += 1
        return score(*given)

    monkeypatch.setattr(module, "score", counted)
    sessions = sessions_of(many(1000))
    for number in range(10):
        choose(sessions, key=f"alice\0{number}")
    assert scores < 10 * 120


def test_what_is_remembered_is_bounded() -> None:
    sessions = sessions_of(three())
    tracemalloc.start()
    for number in range(CHOICES_ALONE + 500):
        key = f"{'a' * 100}{number}\0{'s' * 64}"
        choose(sessions, key=key)
        choose(sessions, Parameters(rotate=True), key=key)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert CHOICES_ALONE * 31 // 32 <= len(sessions.choices._alone) <= CHOICES_ALONE
    assert taken < 6_000_000, taken
