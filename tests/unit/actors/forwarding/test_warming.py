"""What the zygote runs before it forks actors does what actors do, and leaves nothing behind."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter

import pytest

from actors.bus.records import Row
from actors.forwarding import warming
from config.text.access_fields import ACCESS_FIELDS

METHOD, STATUS = ACCESS_FIELDS.index("method"), ACCESS_FIELDS.index("status_code")


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_clients_of_all_protocols_are_served_and_refused() -> None:
    rows: list[Row] = []
    warming.warm(rows.append)
    seen = Counter((row[METHOD], row[STATUS]) for row in rows)
    assert seen == {("GET", 403): warming.ROUNDS, ("CONNECT", 403): 3 * warming.ROUNDS}


def test_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        warming.warm()
    assert caplog.records == []


def test_no_descriptor_and_no_thread_is_left() -> None:
    warming.warm()  # what is imported at a first use may keep something of its own
    before, threads = descriptors(), threading.active_count()
    warming.warm()
    assert descriptors() == before
    assert threading.active_count() == threads
