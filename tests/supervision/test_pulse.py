"""The page of pulses: slots are told apart, given back and used again, and nobody can take the page away."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from actors import pulse
from actors.pulse import Pulse, PulsePage, open_page


@pytest.fixture
def page() -> Iterator[PulsePage]:
    made = PulsePage()
    yield made
    made.close()


def test_a_beat_is_seen_in_its_own_slot_alone(page: PulsePage) -> None:
    beats = open_page(page.descriptor)
    one, two = page.take(), page.take()
    Pulse(beats, two).beat()
    assert (page.beats(one), page.beats(two)) == (0, 1)


def test_a_pulse_that_has_beaten_for_ever_begins_anew_and_still_changes(page: PulsePage) -> None:
    beats = open_page(page.descriptor)
    slot = page.take()
    beats[slot] = (1 << 64) - 1
    Pulse(beats, slot).beat()
    assert page.beats(slot) == 0


def test_a_slot_is_nobody_elses_until_it_is_given_back(page: PulsePage) -> None:
    slots = [page.take() for _ in range(100)]
    assert len(set(slots)) == 100
    page.give(slots[7])
    assert page.take() == slots[7]


def test_a_full_page_says_so(page: PulsePage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "SLOTS", 2)
    page.take(), page.take()
    with pytest.raises(OSError, match="no place is left"):
        page.take()


def test_nobody_can_shrink_the_page_under_the_others(page: PulsePage) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(page.descriptor, 0)
