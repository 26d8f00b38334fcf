"""Passwords are checked rightly by each worker, and only so many requests wait for that."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import bcrypt
import psutil
import pytest

from api.errors import TooBusy
from api.security import password_checker as module
from api.security.password_checker import EACH, PasswordChecker
from api.security.password_worker import NICENESS
from config.passwords import COST, attempts, check_hash, foreign_hash, hash_password
from tests.kit.wait import wait_until

LONG = 120.0
HASHED = hash_password("correct horse", 4)


@pytest.fixture
def hashing() -> Iterator[PasswordChecker]:
    made = PasswordChecker()
    yield made
    made.close()


@pytest.fixture
def crowded(hashing: PasswordChecker, monkeypatch: pytest.MonkeyPatch) -> Iterator[PasswordChecker]:
    """The password of another client is being checked all the time. A process may start as slowly as it likes."""
    monkeypatch.setattr(module, "TIMEOUT", LONG)
    with hashing._places.acquire("another client"):
        yield hashing


def both(hashing: PasswordChecker) -> list[bool]:
    return [hashing.check_password(password, HASHED, "127.0.0.1") for password in ("correct horse", "battery staple")]


def test_a_password_that_comes_alone_needs_no_process(hashing: PasswordChecker) -> None:
    assert both(hashing) == [True, False]
    assert hashing.pid is None


def test_several_at_once_are_checked_by_a_process_that_gives_way(crowded: PasswordChecker) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda _: both(crowded), range(8))) == [[True, False]] * 8
    assert crowded.pid is not None
    process = psutil.Process(crowded.pid)
    assert process.nice() == min(19, NICENESS + os.getpriority(os.PRIO_PROCESS, 0))
    assert process.cpu_affinity() == sorted(module.allowed)


@pytest.mark.parametrize("password", ["correct horse", "pässword\0" + 80 * "x"])
def test_hashes_from_elsewhere_are_checked_by_the_process_too(crowded: PasswordChecker, password: str) -> None:
    plain = bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(4)).decode()
    for stored in (foreign_hash(plain), foreign_hash(hash_password(password, 4))):
        assert crowded.check_password(password, stored, "127.0.0.1")
        assert not crowded.check_password("battery staple", stored, "127.0.0.1")
    assert crowded.pid is not None


def test_what_makes_a_cheap_hash_as_dear_as_ours_never_matches() -> None:
    cheap = bcrypt.hashpw(b"correct horse", bcrypt.gensalt(4)).decode()
    first, second, *padding = attempts("correct horse", foreign_hash(cheap))
    assert (check_hash(*first), check_hash(*second)) == (True, False)
    assert len(padding) == COST - 5, "the two cost twice 2 ** 4 rounds"
    assert not any(check_hash(*each) for each in padding)


def test_hashes_from_elsewhere_wait_as_all_others(hashing: PasswordChecker) -> None:
    stored = foreign_hash(HASHED)
    with ExitStack() as stack:
        for _ in range(EACH):
            stack.enter_context(hashing._places.acquire("192.0.2.1"))
        with pytest.raises(TooBusy):
            hashing.check_password("correct horse", stored, "192.0.2.1")
        assert hashing.check_password("correct horse", stored, "192.0.2.2")


def test_what_is_not_a_hash_is_never_right(crowded: PasswordChecker) -> None:
    assert not crowded.check_password("correct horse", "no hash", "127.0.0.1")
    assert not crowded.check_password("correct horse", "", "127.0.0.1")


def test_a_killed_process_costs_no_client_the_right_result(crowded: PasswordChecker) -> None:
    both(crowded)
    before = crowded.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    assert both(crowded) == [True, False]
    assert crowded.pid not in (None, before)


def test_a_stopped_process_is_replaced_and_holds_up_no_client(crowded: PasswordChecker) -> None:
    both(crowded)
    worker = crowded._worker
    assert worker is not None
    for lane in worker._lanes:
        lane.settimeout(1.0)  # of this process alone: the next one has its time
    stopped = psutil.Process(worker.process.pid)
    stopped.suspend()
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda _: both(crowded), range(8))) == [[True, False]] * 8
    assert crowded.pid not in (None, stopped.pid)
    assert not stopped.is_running()


def test_without_a_process_passwords_are_checked_all_the_same(
    crowded: PasswordChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PROGRAM", ("/nonexistent/python",))
    assert both(crowded) == [True, False]


def test_beyond_as_many_as_may_wait_a_client_is_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    hashing, release, entered = PasswordChecker(at_once=2), threading.Event(), threading.Semaphore(0)

    def slow(_given: bytes, _hashed: bytes) -> bool:
        entered.release()
        return release.wait(LONG)

    monkeypatch.setattr(module, "check_hash", slow)
    monkeypatch.setattr(hashing, "_running", _no_one)
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(hashing.check_password, "any", HASHED, "127.0.0.1") for _ in range(2)]
        for _ in waiting:
            assert entered.acquire(timeout=LONG)
        with pytest.raises(TooBusy) as refused:
            hashing.check_password("correct horse", HASHED, "127.0.0.1")
        release.set()
        assert all(each.result(LONG) for each in waiting)
    assert refused.value.retry_after == 1
    assert hashing.check_password("any", HASHED, "127.0.0.1")


def test_one_client_that_has_all_of_its_places_keeps_no_other_client_out() -> None:
    hashing = PasswordChecker(at_once=3, each=2)
    with hashing._places.acquire("192.0.2.1"), hashing._places.acquire("192.0.2.1"):
        with pytest.raises(TooBusy) as refused:
            hashing.check_password("correct horse", HASHED, "192.0.2.1")
        assert hashing.check_password("correct horse", HASHED, "192.0.2.2")
    assert refused.value.retry_after == 1
    assert hashing.check_password("correct horse", HASHED, "192.0.2.1")
    hashing.close()


def _no_one() -> Callable[[], None] | None:
    return None


def test_the_process_ends_with_the_api(crowded: PasswordChecker) -> None:
    both(crowded)
    assert crowded.pid is not None
    process = psutil.Process(crowded.pid)
    crowded.close()
    wait_until(lambda: not process.is_running(), "the process for hashing has ended")
    assert both(crowded) == [True, False]
