"""The loop and the threads of the HTTP server: no request is lost or overtaken, and no connection holds up another."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from api.server.http_server import ApiServer
from api.server.task_threads import TaskThreads
from tests.kit.wait import wait_until

LONG = 30.0


class Echo:
    """Responds with the path, to `/held` only when `release` is set."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.reached = threading.Event()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/held":
            self.reached.set()
            assert self.release.wait(LONG)
        body = f"{path};".encode()
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]


class Stage:
    """A started server, and one connection to it."""

    def __init__(self) -> None:
        self.echo = Echo()
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(listener.getsockname()[1])
        self.server = ApiServer(self.echo, listener, 100)
        self.server.start()
        self.client = socket.create_connection(("127.0.0.1", self.port), LONG)

    def send(self, *paths: str) -> None:
        self.client.sendall(b"".join(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode() for path in paths))

    def bodies(self, count: int) -> list[str]:
        """Of the next responses."""
        received = b""
        while received.count(b";") < count:
            data = self.client.recv(65536)
            assert data, received
            received += data
        return [part.rpartition(b"\r\n\r\n")[2].decode() for part in received.split(b";")[:-1]]

    def held(self) -> None:
        """Return when a request is being served that gets no response yet."""
        self.send("/held")
        assert self.echo.reached.wait(LONG)

    def is_watched(self) -> bool:
        """Whether the loop would notice that the client sends something."""
        (channel,) = tuple(self.server._server.active_channels.values())
        return self.server._map.watches(channel._fileno)

    def close(self) -> None:
        self.echo.release.set()
        self.client.close()
        self.server.close()


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
