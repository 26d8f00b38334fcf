"""The loop and the threads of the HTTP server: no request is lost or overtaken, and no connection holds up another."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from api.server.task_threads import TaskThreads
from tests.actor.api.server_stage import LONG, Stage
from tests.kit.wait import wait_until


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


def test_responses_to_requests_that_come_together_keep_their_order(stage: Stage) -> None:
    paths = [f"/{number}" for number in range(300)]
    stage.send(*paths)
    assert stage.bodies(300) == paths


def test_requests_one_after_the_other_are_all_served_and_the_loop_goes_on_watching(stage: Stage) -> None:
    for number in range(300):
        stage.send(f"/{number}")
        assert stage.bodies(1) == [f"/{number}"]
    assert stage.is_watched()


def test_a_request_that_comes_while_another_is_served_waits_for_it(stage: Stage) -> None:
    stage.held()
    stage.send("/next")
    wait_until(lambda: not stage.is_watched(), "what has come is left for later", LONG)
    stage.echo.release.set()
    assert stage.bodies(2) == ["/held", "/next"]


def test_a_client_that_has_closed_its_half_gets_its_response(stage: Stage) -> None:
    stage.held()
    stage.client.shutdown(socket.SHUT_WR)
    wait_until(lambda: not stage.is_watched(), "the end is left for later", LONG)
    stage.echo.release.set()
    assert stage.bodies(1) == ["/held"]
    assert stage.client.recv(1) == b""


def test_a_client_that_is_gone_while_its_request_is_served_is_forgotten_after_it(stage: Stage) -> None:
    stage.held()
    stage.client.close()
    wait_until(lambda: not stage.is_watched(), "the end is left for later", LONG)
    stage.echo.release.set()
    wait_until(lambda: not stage.server._server.active_channels, "the connection is closed", LONG)


class Task:
    """Waits for `others` to be served at the same time."""

    def __init__(self, others: threading.Barrier) -> None:
        self._others = others
        self.served = self.cancelled = False

    def service(self) -> None:
        self._others.wait(LONG)
        self.served = True

    def cancel(self) -> None:
        self.cancelled = True


def test_as_many_tasks_as_the_limit_are_served_at_the_same_time() -> None:
    threads, together = TaskThreads(5), threading.Barrier(5)
    for _ in range(3):
        tasks = [Task(together) for _ in range(5)]
        for each in tasks:
            threads.add_task(each)
        wait_until(lambda these=tasks: all(each.served for each in these), "all are served", LONG)  # type: ignore[misc]
    threads.shutdown(LONG)
    assert not threads.running


def test_what_waits_at_the_end_is_cancelled() -> None:
    threads, together = TaskThreads(1), threading.Barrier(2)
    first, second = Task(together), Task(together)
    threads.add_task(first)
    wait_until(lambda: together.n_waiting == 1, "the first is being served", LONG)
    threads.add_task(second)
    threads.shutdown(0.0)
    assert (second.cancelled, threads.running) == (True, True)
    together.wait(LONG)
    threads.shutdown(LONG)
    assert (first.served, second.served, threads.running) == (True, False, False)


def test_a_task_that_fails_costs_no_thread() -> None:
    class Failing:
        def service(self) -> None:
            raise RuntimeError("a bug")

        def cancel(self) -> None:
            raise AssertionError

    threads, together = TaskThreads(1), threading.Barrier(1)
    task = Task(together)
    threads.add_task(Failing())
    threads.add_task(task)
    wait_until(lambda: task.served, "the next is served", LONG)
    threads.shutdown(LONG)


def test_without_a_thread_for_it_a_task_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads, together = TaskThreads(2), threading.Barrier(1)
    first, second = Task(together), Task(together)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        threads.add_task(first)
    threads.add_task(second)
    wait_until(lambda: first.served and second.served, "both are served", LONG)
    threads.shutdown(LONG)
    assert not threads.running
