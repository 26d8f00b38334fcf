"""The command line's client at an API that has had too many requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from api.cli import client
from api.cli.client import ApiClient, Window
from api.cli.errors import CommandError
from api.cli.tokens import CallerCredentials


class Crowded(ThreadingHTTPServer):
    """Refuses as many requests as `refusals` says, then takes them. `asked` are the bodies that came."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.refusals = 0
        self.asked: list[Any] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Crowded

    def do_POST(self) -> None:
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        refused = self.server.refusals > 0
        self.server.refusals -= refused
        error = {"code": "RATE_LIMITED", "message": "Too many requests", "details": {"retry_after": 7}}
        body = {"success": False, "error": error} if refused else {"success": True, "data": {"fine": True}}
        content = json.dumps(body).encode()
        self.send_response(429 if refused else 200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("RateLimit-Policy", '"burst";q=100;w=60, "hourly";q=1000;w=3600')
        self.send_header("RateLimit", '"burst";r=40;t=30, "hourly";r=700;t=1800')
        if refused:
            self.send_header("Retry-After", "7")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Quietly."""


@pytest.fixture
def crowded() -> Iterator[Crowded]:
    with Crowded() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was slept, which takes no time."""
    pauses: list[float] = []
    monkeypatch.setattr(client.time, "sleep", pauses.append)
    return pauses


def new_client(server: Crowded, folder: Path, timeout: float = 30.0) -> ApiClient:
    return ApiClient(server.url, "pf_key", CallerCredentials(folder), timeout)


def test_a_request_too_many_waits_as_the_api_asks_says_so_and_is_made_again(
    crowded: Crowded, slept: list[float], tmp_path: Path
) -> None:
    crowded.refusals = 2
    api, said = new_client(crowded, tmp_path), []
    api.on_wait = said.append
    assert api.post("/things", {"a": 1}) == {"fine": True}
    assert (slept, said, crowded.asked) == ([7, 7], [7, 7], [{"a": 1}] * 3)


def test_a_wait_that_is_longer_than_the_time_out_is_an_error_at_once(
    crowded: Crowded, slept: list[float], tmp_path: Path
) -> None:
    crowded.refusals = 1
    with pytest.raises(CommandError, match="Too many requests"):
        new_client(crowded, tmp_path, timeout=6.0).post("/things", {})
    assert slept == []


def test_a_screen_that_goes_on_meanwhile_does_not_wait(crowded: Crowded, slept: list[float], tmp_path: Path) -> None:
    crowded.refusals = 1
    api = new_client(crowded, tmp_path)
    api.waits = False
    with pytest.raises(CommandError, match="Too many requests"):
        api.post("/things", {})
    assert slept == []


def test_what_is_left_of_both_windows_is_known_after_each_response(crowded: Crowded, tmp_path: Path) -> None:
    api = new_client(crowded, tmp_path)
    api.post("/things", {})
    assert [(each.limit, each.remaining) for each in api.rate_limits] == [(100, 40), (1000, 700)]
    assert all(isinstance(each, Window) for each in api.rate_limits)
    assert api.pause(2.0) == pytest.approx(1800 / 450, rel=0.01)


def test_a_login_asks_for_an_interactive_session(crowded: Crowded, tmp_path: Path) -> None:
    with pytest.raises(KeyError):  # the server plays no sign-in
        new_client(crowded, tmp_path).sign_in("alice", "a password")
    assert crowded.asked == [{"username": "alice", "password": "a password", "session": "interactive"}]
