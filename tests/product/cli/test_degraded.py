"""What the command line shows of proxies that are degraded."""

from __future__ import annotations

import io
from typing import Any

import pytest

from api.cli.remote.proxies import state
from api.cli.remote.system import status
from api.cli.terminal import Output, style_of

PROBLEM = {"reason": "certificate", "upstream": None, "error": "the certificate ended", "since": "2026-01-01T00:00:00Z"}
FIGURES: dict[str, Any] = {
    "server": {"status": "degraded", "pid": 7, "memory": {"used_bytes": 1, "measure": "pss"}, "cpu": {"usage": "1.0%"}},
    "proxy": {
        "active_proxies": 2,
        "wanted_proxies": 3,
        "degraded_proxies": 1,
        "failed_proxies": 1,
        "active_connections": 0,
        "total_requests": 0,
        "requests_per_second": 0.0,
        "error_rate": "0.00%",
    },
    "network": {"bandwidth_in_bytes": 0, "bandwidth_out_bytes": 0, "bytes_in": 0, "bytes_out": 0},
    "problems": [{"resource": "proxy", "id": "prx_1", "name": "office", "port": 3128, **PROBLEM}],
}
HEALTH = {
    "status": "degraded",
    "version": "1",
    "uptime_seconds": 5,
    "checks": {"proxy_service": {"status": "degraded"}},
}


class Session:
    """A session whose API responds with the data above."""

    def __init__(self) -> None:
        self.text = io.StringIO()
        self.out = Output("table", self.text, self.text)
        self.api = self

    def get(self, path: str) -> dict[str, Any]:
        return {"/health": HEALTH, "/status": FIGURES}[path]


def test_status_says_how_many_should_run_and_do_and_what_is_wrong_with_whom() -> None:
    session: Any = Session()
    status(session)
    lines = session.text.getvalue().splitlines()
    assert "proxies\t2 of 3 run (1 degraded, 1 failed)" in lines
    assert "problem\tproxy office (3128): certificate: the certificate ended" in lines


@pytest.mark.parametrize(
    ("connections", "text"), [(0, "0 open connections"), (1, "1 open connection"), (2, "2 open connections")]
)
def test_status_says_what_is_open_in_processes_of_before_an_upgrade(
    monkeypatch: pytest.MonkeyPatch, connections: int, text: str
) -> None:
    older = {"processes": 1, "connections": connections, "until": "2026-01-01T01:00:00.000Z"}
    monkeypatch.setitem(FIGURES, "server", {**FIGURES["server"], "older_processes": older})
    session: Any = Session()
    status(session)
    assert f"older processes\t1 with {text}, until 2026-01-01T01:00:00.000Z at the latest\n" in session.text.getvalue()


@pytest.mark.parametrize(
    ("runtime", "text"),
    [
        (None, "unknown"),
        ({"state": "running", "problems": []}, "running"),
        ({"state": "degraded", "problems": [PROBLEM, PROBLEM]}, "degraded (certificate)"),
        ({"state": "failed", "problems": [{**PROBLEM, "reason": "listener"}]}, "failed"),
    ],
)
def test_the_state_has_the_reasons_once_and_the_colour_of_its_word(runtime: dict[str, Any] | None, text: str) -> None:
    assert state(runtime) == text
    assert style_of(text) == style_of(text.partition(" ")[0]) != ""
