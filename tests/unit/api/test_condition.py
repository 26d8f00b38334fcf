"""Degraded: one notion of it wherever the API says how a proxy, a helper or a webhook is."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import Any

import pytest

from actors.bus.messages.events import QueryWebhookSender, WebhookSenderState
from actors.bus.messages.problems import Problem
from actors.bus.messages.supervision import RestartProxy, Runtime
from actors.bus.messages.webhooks import WebhookStatus, WebhookStatuses
from api.store.migrations import DATA_FORMAT
from config import VERSION
from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.certificates import make_ended_pair, make_pair

ENDED = Problem("certificate", "the certificate /c.pem ended at 2026-01-01T00:00:00Z", 5.0)
DOWN = Problem("upstream_down", "the upstream p1 is down: refused", 6.0, "p1")


@pytest.fixture
def degraded(api: Api) -> dict[str, Any]:
    """A proxy that runs with two problems."""
    made: dict[str, Any] = api.post("/proxies", PROXY, api.token()).json["data"]["proxy"]
    api.fleet.problems[made["id"]] = (ENDED, DOWN)
    api.services.runtime.changed()
    return made


def test_the_detail_and_the_list_say_degraded_and_why(api: Api, degraded: dict[str, Any]) -> None:
    (listed,) = api.get("/proxies", api.token()).json["data"]["proxies"]
    detail = api.get(f"/proxies/{degraded['id']}", api.token()).json["data"]["proxy"]
    for view in (listed, detail):
        assert view["runtime"]["state"] == "degraded"
        assert view["runtime"]["error"] == f"{ENDED.detail}; {DOWN.detail}"
        assert [(each["reason"], each["upstream"]) for each in view["runtime"]["problems"]] == [
            ("certificate", None),
            ("upstream_down", "p1"),
        ]


def test_health_is_degraded_and_200_and_status_has_name_and_cause(api: Api, degraded: dict[str, Any]) -> None:
    assert (api.get("/health").status_code, api.get("/health").json["data"]["status"]) == (200, "degraded")
    check = api.get("/api/v1/health", api.token()).json["data"]["checks"]["proxy_service"]
    assert (check["status"], check["active_proxies"], check["wanted_proxies"]) == ("degraded", 1, 1)
    assert (check["degraded_proxies"], check["failed_proxies"]) == ([degraded["id"]], [])
    assert check["reasons"] == ["certificate", "upstream_down"]
    status = api.get("/status", api.token()).json["data"]
    assert status["server"]["status"] == "degraded"
    assert (status["proxy"]["wanted_proxies"], status["proxy"]["degraded_proxies"]) == (1, 1)
    first = status["problems"][0]
    assert (first["resource"], first["name"], first["port"], first["error"]) == (
        "proxy",
        degraded["name"],
        degraded["port"],
        ENDED.detail,
    )


def test_a_helper_with_a_problem_degrades_the_product_and_is_not_missing(api: Api) -> None:
    api.fleet.helpers["tls"] = Runtime("degraded", 7, 1.0, 0, ENDED.detail, problems=(ENDED,))
    api.services.runtime.changed()
    check = api.get("/api/v1/health", api.token()).json["data"]["checks"]["proxy_service"]
    assert (check["status"], check["missing_actors"], check["reasons"]) == ("degraded", [], ["certificate"])


@pytest.mark.parametrize(("failed_ago", "succeeded_ago", "status"), [(1, 2, "degraded"), (2, 1, "healthy")])
def test_a_webhook_whose_last_request_failed_degrades_the_product(
    api: Api, failed_ago: int, succeeded_ago: int, status: str
) -> None:
    body = {"name": "w", "url": "https://hooks.example/", "events": ["*"]}
    api.fleet.others["webhooks"] = lambda _message: None
    hook = api.post("/webhooks", body, api.token()).json["data"]["webhook"]
    later = time.time() + 60

    def sender(message: Any) -> Any:
        if isinstance(message, QueryWebhookSender):
            return WebhookSenderState(0, 0)
        how = WebhookStatus(1, later - succeeded_ago, later - failed_ago, "503")
        return WebhookStatuses({hook["id"]: how})

    api.fleet.others["webhooks"] = sender
    report = api.get("/api/v1/health", api.token()).json["data"]
    assert (report["status"], report["checks"]["webhooks"]["status"]) == (status, status)
    problems = api.get("/status", api.token()).json["data"]["problems"]
    assert [(each["resource"], each["name"], each["error"]) for each in problems] == (
        [("webhook", "w", "503")] if status == "degraded" else []
    )


@pytest.mark.parametrize("action", ["restart", "start"])
def test_a_restart_with_a_certificate_that_is_gone_is_refused_and_the_process_goes_on(
    api: Api, tmp_path: Path, action: str
) -> None:
    cert, key = make_pair(tmp_path)
    body = {**PROXY, "protocol": "https", "tls": {"cert_file": cert, "key_file": key}}
    made = api.post("/proxies", body, api.token()).json["data"]["proxy"]
    if action == "start":
        api.post(f"/proxies/{made['id']}/stop", None, api.token())
    Path(cert).unlink()
    status, code, details = error_of(api.post(f"/proxies/{made['id']}/{action}", None, api.token()))
    assert (status, code, details["field"]) == (400, "INVALID_REQUEST", "tls.cert_file")
    assert not any(isinstance(message, RestartProxy) for _to, message in api.fleet.received)
    make_pair(tmp_path)
    assert api.post(f"/proxies/{made['id']}/{action}", None, api.token()).status_code == 200


def test_a_restart_with_a_certificate_that_has_ended_is_refused_while_the_process_has_one_that_has_not(
    api: Api, tmp_path: Path
) -> None:
    cert, key = make_pair(tmp_path)
    body = {**PROXY, "protocol": "https", "tls": {"cert_file": cert, "key_file": key}}
    made = api.post("/proxies", body, api.token()).json["data"]["proxy"]
    make_ended_pair(tmp_path)
    api.fleet.certificate_ends = time.time() + 3600
    status, _, details = error_of(api.post(f"/proxies/{made['id']}/restart", None, api.token()))
    assert (status, details["field"]) == (400, "tls.cert_file")
    assert not any(isinstance(message, RestartProxy) for _to, message in api.fleet.received)
    api.fleet.certificate_ends = time.time() - 3600
    assert api.post(f"/proxies/{made['id']}/restart", None, api.token()).status_code == 200, "none is worse"


def test_the_version_names_release_data_format_and_python(api: Api) -> None:
    assert api.get("/version", api.token()).json["data"] == {
        "version": VERSION,
        "data_format": DATA_FORMAT,
        "python": platform.python_version(),
    }
    assert api.get("/version").status_code == 401
