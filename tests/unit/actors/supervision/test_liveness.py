"""The liveness page: slots are separate, are released and used again, and no process can shrink the page."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from actors.supervision.processes import liveness
from actors.supervision.processes.liveness import LivenessPage, deadline_writer, open_page


@pytest.fixture
def page() -> Iterator[LivenessPage]:
    made = LivenessPage()
    yield made
    made.close()


def test_a_deadline_is_in_its_own_slot_alone(page: LivenessPage) -> None:
    one, two = page.acquire(), page.acquire()
    deadline_writer(open_page(page.descriptor), two)(12.5)
    assert (page.deadline(one), page.deadline(two)) == (0.0, 12.5)


def test_a_slot_is_used_again_after_its_release_and_then_has_no_deadline(page: LivenessPage) -> None:
    slots = [page.acquire() for _ in range(100)]
    assert len(set(slots)) == 100
    deadline_writer(open_page(page.descriptor), slots[7])(12.5)
    page.release(slots[7])
    assert page.acquire() == slots[7]
    assert page.deadline(slots[7]) == 0.0


def test_a_full_page_says_so(page: LivenessPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "SLOTS", 2)
    page.acquire(), page.acquire()
    with pytest.raises(OSError, match="no slot is left"):
        page.acquire()


def test_the_page_can_not_be_shrunk_while_others_use_it(page: LivenessPage) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(page.descriptor, 0)
