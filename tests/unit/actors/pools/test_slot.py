"""What a slot says after what processes have learned; compared with a plain model, too."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.pools.slot import KINDS
from actors.pools.state import SharedPoolState, pool_state
from actors.pools.upstream import target_mark
from tests.kit.upstreams import a_slot
from tests.unit.actors.pools.pools import COOLDOWN, pool

SPANS = {kind: (first, longest) for kind, first, longest in COOLDOWN}


def test_nothing_is_known_of_a_new_one() -> None:
    slot = a_slot()
    health = slot.health(5.0)
    assert (health.state, health.cooldown, health.last_error, health.latency) == ("unknown", "", None, None)
    assert slot.eligible(0.0)


def test_a_failure_to_connect_brings_it_down_for_a_cooldown_that_doubles() -> None:
    slot = a_slot()
    assert slot.failed(10.0, "connect", "unreachable", "connection refused")
    assert not slot.eligible(10.9)
    assert slot.eligible(11.0)
    assert not slot.failed(11.0, "connect", "unreachable", "connection refused")
    assert not slot.eligible(12.9)
    assert slot.eligible(13.0)
    now = 13.0
    for _ in range(10):
        slot.failed(now, "connect", "unreachable", "still")
        now = slot.ready_at
    assert slot.cooldown_length("connect") == 60.0
    health = slot.health(now - 0.5)
    assert (health.state, health.since, health.failures) == ("down", 10.0, 12)
    assert (health.error, health.last_error) == ("unreachable", "still")


def test_failures_at_the_same_time_are_one() -> None:
    slot = a_slot()
    for _ in range(5):
        slot.failed(10.0, "connect", "unreachable", "refused")
    assert slot.ready_at == 11.0
    assert slot.cooldown_length("connect") == 1.0


def test_one_trial_at_a_time() -> None:
    slot = a_slot()
    slot.failed(10.0, "connect", "unreachable", "refused")
    slot.begin_trial(11.0, 5.0)
    assert not slot.eligible(12.0)
    assert slot.eligible(16.0)
    assert slot.succeeded(12.0)
    assert slot.eligible(12.0)
    assert slot.cooldown_length("connect") == 0.0


def test_a_429_is_left_alone_whatever_other_requests_say() -> None:
    slot = a_slot()
    slot.succeeded(1.0)
    assert not slot.failed(2.0, "429", "status", "it responds 429")
    slot.succeeded(3.0)
    assert slot.state == "up"
    assert not slot.eligible(31.9)
    assert slot.health(3.0).cooldown == "429"
    assert slot.eligible(32.0)
    slot.failed(32.0, "429", "status", "it responds 429")
    assert not slot.eligible(91.9)
    slot.succeeded(92.0)
    slot.failed(93.0, "429", "status", "it responds 429")
    assert slot.ready_at == 123.0


def test_retry_after_makes_a_cooldown_longer_and_never_shorter() -> None:
    slot = a_slot()
    slot.failed(10.0, "429", "status", "it responds 429", retry_after=400.0)
    assert slot.ready_at == 410.0
    other = a_slot()
    other.failed(10.0, "429", "status", "it responds 429", retry_after=2.0)
    assert other.ready_at == 40.0


def test_a_kind_without_a_cooldown() -> None:
    slot = a_slot({**SPANS, "connect": (0.0, 0.0)})
    assert slot.failed(10.0, "connect", "unreachable", "refused", retry_after=9.0)
    assert slot.eligible(10.0)


def test_a_cooldown_that_begins_with_none() -> None:
    slot = a_slot({**SPANS, "5xx": (0.0, 3.0)})
    now, lengths = 100.0, []
    for _ in range(4):
        slot.failed(now, "5xx", "status", "it responds 502")
        lengths.append(slot.ready_at - now)
        now = slot.ready_at
    assert lengths == [0.0, 1.0, 2.0, 3.0]


def test_it_is_suspected_of_failures_for_three_targets_in_a_row_and_of_none_for_one() -> None:
    slot = a_slot()
    one, two, three = map(target_mark, ("a.example", "b.example", "c.example"))
    assert not any(slot.suspect(5.0, "general failure", each) for each in (one, one, two, one, two))
    assert slot.eligible(5.0)
    assert slot.health(5.0).failures == 5
    slot.succeeded(6.0)
    assert not any(slot.suspect(7.0, "general failure", each) for each in (three, two, two))
    assert slot.suspect(7.0, "general failure", one)
    assert slot.eligible(7.0), "what follows is decided elsewhere"
    slot.failed(7.0, "connect", "ambiguous", "general failure")
    assert slot.suspect(9.0, "general failure", one), "a trial has failed"


@pytest.mark.parametrize(
    ("hosts", "targets"),
    [
        (("a.evil.example", "b.evil.example", "evil.example"), 1),
        (("192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"), 4),
        (("localhost", "", "a.example"), 3),
    ],
)
def test_names_of_one_domain_are_one_target(hosts: tuple[str, ...], targets: int) -> None:
    assert len({target_mark(each) for each in hosts}) == targets
    assert all(0 < target_mark(each) < 2**53 for each in hosts)


def test_a_ban_is_lifted_by_no_success() -> None:
    slot = a_slot()
    slot.ban(100.0)
    slot.succeeded(10.0)
    assert not slot.eligible(99.0)
    assert slot.health(10.0).banned_until == 100.0
    assert slot.eligible(100.0)
    assert slot.health(100.0).banned_until == 0.0


def test_a_good_verdict_ends_ban_and_cooldowns() -> None:
    slot = a_slot()
    slot.failed(10.0, "407", "credentials", "it responds 407")
    slot.failed(10.0, "429", "status", "it responds 429")
    slot.ban(1000.0)
    slot.lift(11.0)
    assert slot.eligible(11.0)
    assert slot.health(11.0).state == "unknown"
    slot.failed(12.0, "429", "status", "it responds 429")
    assert slot.ready_at == 42.0


def test_other_credentials_get_a_trial_at_once_but_a_ban_stays() -> None:
    slot = a_slot()
    slot.failed(10.0, "407", "credentials", "it responds 407")
    slot.ban(20.0)
    slot.reset_cooldowns()
    assert not slot.eligible(19.0)
    assert slot.eligible(20.0)
    assert slot.state == "down"


def test_doubt_ends_with_a_result() -> None:
    slot = a_slot()
    slot.succeeded(1.0)
    slot.doubt(2.0, 5.0)
    assert not slot.eligible(3.0)
    slot.succeeded(3.0)
    assert slot.eligible(3.0)


def test_the_mean_of_latency_follows() -> None:
    slot = a_slot()
    slot.record_latency(1.0, 0.1)
    assert slot.latency == pytest.approx(0.1)
    slot.record_latency(2.0, 0.2)
    assert slot.latency == pytest.approx(0.12)
    assert slot.measured_at == 2.0


@pytest.mark.parametrize("text", ["x" * 500, "ü" * 100, "", "a\0b"])
def test_a_text_of_any_length_is_cut(text: str) -> None:
    slot = a_slot()
    slot.failed(1.0, "connect", "unreachable", text)
    shown = slot.health(1.0).last_error or ""
    assert text.startswith(shown)
    assert len(shown.encode()) <= 256
    slot.failed(1.0, "connect", "unreachable", "short")
    assert slot.health(1.0).last_error == "short"


@dataclass
class Model:
    """The rules of the table, written down plainly."""

    state: str = "unknown"
    until: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    length: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    banned: float = 0.0

    def failed(self, now: float, kind: str) -> None:
        if kind in ("connect", "407"):
            self.state = "down"
        if now >= self.until[kind]:
            first, longest = SPANS[kind]
            self.length[kind] = min(2 * self.length[kind], longest) if self.length[kind] else first
            self.until[kind] = now + self.length[kind]

    def succeeded(self, now: float) -> None:
        self.state = "up"
        for kind in KINDS:
            if kind in ("connect", "407") or now >= self.until[kind]:
                self.until[kind] = self.length[kind] = 0.0

    def lift(self) -> None:
        self.state = "unknown" if self.state == "down" else self.state
        self.banned = 0.0
        self.until, self.length = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0.0)

    def eligible(self, now: float) -> bool:
        return now >= max(self.banned, *self.until.values())


STEPS = st.lists(
    st.tuples(st.sampled_from([*KINDS, "success", "ban", "lift", "wait"]), st.integers(0, 400)), max_size=40
)


@given(STEPS)
def test_it_is_what_the_plain_model_says(steps: list[tuple[str, int]]) -> None:
    slot, model, now = a_slot(), Model(), 1000.0
    for what, amount in steps:
        if what == "wait":
            now += amount
        elif what == "success":
            slot.succeeded(now)
            model.succeeded(now)
        elif what == "ban":
            slot.ban(now + amount)
            model.banned = now + amount
        elif what == "lift":
            slot.lift(now)
            model.lift()
        else:
            slot.failed(now, what, "status", what)
            model.failed(now, what)
        assert (slot.state, slot.eligible(now)) == (model.state, model.eligible(now))
        assert slot.ready_at == max(model.banned, *model.until.values())
        assert {kind: slot.cooldown_length(kind) for kind in KINDS} == model.length


def test_those_that_may_be_used(tmp_path: Path) -> None:
    state: SharedPoolState = pool_state(tmp_path / "pools", pool("a", "b", "c"))
    state.slots[1].failed(10.0, "connect", "unreachable", "refused")
    assert state.eligible(10.5) == [state.slots[0], state.slots[2]]
