"""Webhooks by the API: what is accepted, stored and returned, and what the sender receives."""

from __future__ import annotations

import base64
import json
import queue
import time
from types import SimpleNamespace
from typing import Any

import pytest

from actors.bus.messages.common import WEBHOOKS, Done, Failed
from actors.bus.messages.events import (
    Deliveries,
    Delivery,
    DeliveryAttempt,
    DisableWebhook,
    Event,
    QueryDeliveries,
    QueryWebhookStatus,
    Redeliver,
    SendTestEvent,
    SetWebhooks,
    WebhookSpec,
    WebhookStatus,
    WebhookStatuses,
    WebhookTried,
)
from api.objects.webhooks.webhook_kind import disable
from api.objects.webhooks.webhook_sender import WebhookLink
from api.store import LedgerError
from config.model.subscriptions import matches
from config.model.webhooks import EVENTS, PATTERNS, masked_url
from tests.kit.api_stage import Api, error_of
from tests.kit.tables import table

HOOK: dict[str, Any] = {"name": "alerts", "url": "https://hooks.example.com/x?y=1", "events": ["proxy.*"]}


class FakeSender:
    """Replies as the sender would."""

    def __init__(self) -> None:
        self.received: list[SetWebhooks] = []
        self.asked: list[Any] = []
        self.deliveries: tuple[Delivery, ...] = ()
        self.statuses: dict[str, WebhookStatus] = {}

    def __call__(self, message: Any) -> Any:
        self.asked.append(message)
        if isinstance(message, SetWebhooks):
            self.received.append(message)
            return Done()
        if isinstance(message, SendTestEvent):
            return WebhookTried(True, 204, 12, None)
        if isinstance(message, QueryWebhookStatus):
            return WebhookStatuses(self.statuses)
        return Deliveries(self.deliveries, len(self.deliveries))

    def spec(self) -> WebhookSpec:
        """The only webhook that it received last."""
        (spec,) = self.received[-1].webhooks
        return spec


@pytest.fixture
def sender(api: Api) -> FakeSender:
    api.fleet.others[WEBHOOKS] = made = FakeSender()
    return made


def create(api: Api, **fields: Any) -> dict[str, Any]:
    made = api.post("/webhooks", {**HOOK, **fields}, api.token())
    assert made.status_code == 201, made.text
    view: dict[str, Any] = made.json["data"]["webhook"]
    return view


def test_a_webhook_is_created_read_changed_and_deleted_and_the_sender_is_notified_of_all(
    api: Api, sender: FakeSender
) -> None:
    token = api.token()
    made = create(api)
    path = f"/webhooks/{made['id']}"
    secret = made.pop("secret")
    assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
    assert {**made, **HOOK, "enabled": True, "headers": {}} == made
    assert (sender.spec().secrets, sender.spec().events) == ((secret,), ("proxy.*",))
    got = api.get(path, token)
    assert got.json["data"]["webhook"] == made
    assert secret not in got.text + api.get("/webhooks", token).text
    changed = api.patch(
        path, {"url": "http://other.example/", "enabled": False}, {**token, "If-Match": got.headers["ETag"]}
    )
    assert changed.json["data"]["webhook"]["url"] == sender.spec().url == "http://other.example/"
    assert not sender.spec().enabled
    assert api.patch(path, {}, {**token, "If-Match": got.headers["ETag"]}).status_code == 412
    assert api.put(path, {"events": ["*", "*"]}, token).json["data"]["webhook"]["events"] == ["*"]
    listed = api.get("/webhooks", token).json["data"]
    assert (listed["total"], listed["webhooks"][0]["id"]) == (1, made["id"])
    assert api.request("DELETE", path, token).json["data"] == {"id": made["id"], "deleted": True}
    assert sender.received[-1].webhooks == ()
    assert api.get(path, token).status_code == 404
    revisions = [message.revision for message in sender.received]
    assert revisions == sorted(set(revisions))


@table(
    ("fields", "at_fault"),
    [
        ({"name": " "}, "name"),
        ({"url": "ftp://example.com/"}, "url"),
        ({"url": "/relative"}, "url"),
        ({"url": "http://user:pass@example.com/"}, "url"),
        ({"url": "http://example.com:0/"}, "url"),
        ({"url": "http://example.com:99999/"}, "url"),
        ({"url": "http://exa mple.com/"}, "url"),
        ({"url": "http://example.com/#x"}, "url"),
        ({"url": "http://[::1/"}, "url"),
        ({"events": []}, "events"),
        ({"events": ["proxy.exploded"]}, "events"),
        ({"events": ["prox*"]}, "events"),
        ({"events": "proxy.down"}, "events"),
        ({"headers": {"Webhook-Signature": "x"}}, "headers"),
        ({"headers": {"content-type": "text/plain"}}, "headers"),
        ({"headers": {"HOST": "x"}}, "headers"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "headers"),
        ({"headers": {"X A": "x"}}, "headers"),
        ({"headers": {"X-A": "x\r\nwebhook-id: y"}}, "headers"),
        ({"headers": {"X-A": "x", "x-a": "y"}}, "headers"),
        ({"enabled": "yes"}, "enabled"),
        ({"enabled": None}, "enabled"),
        ({"secret": "whsec_x"}, "secret"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_bad_webhook_is_refused_by_its_field_at_create_and_at_update(
    api: Api, sender: FakeSender, fields: dict[str, Any], at_fault: str
) -> None:
    before = len(sender.received)
    path = f"/webhooks/{create(api)['id']}"
    for refused in (api.post("/webhooks", {**HOOK, **fields}, api.token()), api.patch(path, fields, api.token())):
        status, code, details = error_of(refused)
        assert (status, code, details["field"].partition(".")[0]) == (400, "INVALID_REQUEST", at_fault)
    assert len(sender.received) == before + 1


@pytest.mark.parametrize("missing", ["name", "url", "events"])
def test_name_url_and_events_are_required(api: Api, missing: str) -> None:
    body = {name: value for name, value in HOOK.items() if name != missing}
    refused = api.post("/webhooks", body, api.token())
    assert error_of(refused)[2] == {"field": missing, "error": "is required"}


@table("event", PATTERNS)
def test_every_event_can_be_subscribed_to(api: Api, event: str) -> None:
    assert create(api, events=[event])["events"] == [event]
    assert any(matches([event], each) for each in EVENTS)


def test_subscriptions_take_a_name_a_group_or_everything() -> None:
    assert matches(["proxy.down"], "proxy.down")
    assert matches(["auth.locked", "proxy.*"], "proxy.down")
    assert matches(["*"], "high_error_rate")
    assert not matches(["proxy.*", "proxy.down"], "user.created")
    assert not matches(["proxy.up"], "proxy.down")
    assert not matches([], "proxy.down")


def test_secrets_and_header_values_are_sealed_on_the_disk_and_absent_from_the_audit_trail(
    api: Api, sender: FakeSender
) -> None:
    made = create(api, headers={"Authorization": "Bearer sesame"})
    stored = "".join(json.dumps(each.body) for each in api.store.find("webhooks"))
    trail = api.get("/audit", api.token()).text
    for text in (made["secret"], made["secret"].removeprefix("whsec_"), "sesame"):
        assert text not in stored
        assert text not in trail
    assert '"webhook.created"' in trail
    assert sender.spec().headers == {"Authorization": "Bearer sesame"}


def test_header_values_are_returned_only_to_callers_who_may_change_them(api: Api, sender: FakeSender) -> None:
    path = f"/webhooks/{create(api, headers={'X-Key': 'sesame'})['id']}"
    api.add_user("ann", role="operator")
    assert api.get(path, api.token()).json["data"]["webhook"]["headers"] == {"X-Key": "sesame"}
    assert api.get(path, api.token("ann")).json["data"]["webhook"]["headers"] == {"X-Key": "***"}


def test_paths_and_queries_of_urls_are_returned_only_to_callers_who_may_change_them(
    api: Api, sender: FakeSender
) -> None:
    url = "https://hooks.example.com/services/T0/sesame?key=sesame"
    path = f"/webhooks/{create(api, url=url)['id']}"
    event = Event("evt_1", "proxy.down", 1.0, {})
    attempt = DeliveryAttempt(1, 1.0, url, {}, 200, 1, "", None)
    sender.deliveries = (Delivery("dlv_1", path.rpartition("/")[2], event, "delivered", 1.0, None, (attempt,)),)
    api.add_user("ann", role="operator")
    for where in (path, "/webhooks", f"{path}/deliveries"):
        assert url in api.get(where, api.token()).text
        view = api.get(where, api.token("ann")).text
        assert "https://hooks.example.com/***" in view
        assert "sesame" not in view
    assert api.patch(path, {"url": url + "2"}, api.token()).status_code == 200
    assert "sesame" not in api.get("/audit", api.token()).text


def test_a_url_without_path_and_query_has_nothing_to_hide() -> None:
    plain = ["https://a", "https://a/", "http://[::1]:8080/"]
    assert [masked_url(each) for each in plain] == plain
    assert masked_url("http://u:p@[::1]:8080/") == "http://[::1]:8080/***"


def test_sending_headers_back_unchanged_is_no_change_for_the_audit_trail(api: Api, sender: FakeSender) -> None:
    path = f"/webhooks/{create(api, headers={'X-Key': 'sesame'})['id']}"
    before = api.get("/audit?action=webhook.updated", api.token()).json["data"]["total"]
    assert api.patch(path, {"headers": {"X-Key": "sesame"}}, api.token()).status_code == 200
    assert api.get("/audit?action=webhook.updated", api.token()).json["data"]["total"] == before


def test_reading_needs_settings_read_and_changing_settings_write(api: Api, sender: FakeSender) -> None:
    path = f"/webhooks/{create(api)['id']}"
    api.add_user("ann", role="operator")
    api.add_user("bob", role="user")
    assert api.get(path, api.token("ann")).status_code == 200
    assert api.get(path).status_code == 401
    assert error_of(api.get(path, api.token("bob")))[2] == {"required_permission": "settings.read"}
    for method, sub in (("POST", "/test"), ("POST", "/rotate-secret"), ("DELETE", ""), ("PATCH", "")):
        refused = api.request(method, path + sub, api.token("ann"))
        assert error_of(refused) == (403, "FORBIDDEN", {"required_permission": "settings.write"}), (method, sub)


def test_events_about_people_need_users_read_also_when_only_the_url_changes(api: Api, sender: FakeSender) -> None:
    api.add_user("ann", role="user", permissions=["settings.read", "settings.write"])
    token = api.token("ann")
    assert api.post("/webhooks", HOOK, token).status_code == 201
    lacking = (403, "FORBIDDEN", {"required_permission": "users.read"})
    for event in ("*", "user.*", "auth.login_failed", "api_key.created"):
        assert error_of(api.post("/webhooks", {**HOOK, "events": [event]}, token)) == lacking
    path = f"/webhooks/{create(api, events=['*'])['id']}"
    assert error_of(api.patch(path, {"url": "http://ann.example/"}, token)) == lacking


def test_a_key_with_a_scope_changes_no_webhook_and_sees_no_delivery(api: Api, sender: FakeSender) -> None:
    path = f"/webhooks/{create(api)['id']}"
    key = api.key(permissions=["*"], scope={"proxies": ["prx_x"]})
    assert api.post("/webhooks", HOOK, key).status_code == 403
    assert api.get(f"{path}/deliveries", key).status_code == 403


def test_a_rotated_secret_leaves_the_older_one_for_a_day(api: Api, sender: FakeSender) -> None:
    made = create(api)
    path = f"/webhooks/{made['id']}"
    rotated = api.post(f"{path}/rotate-secret", None, api.token()).json["data"]["webhook"]
    assert rotated["secret"] != made["secret"]
    assert sender.spec().secrets == (rotated["secret"], made["secret"])
    (until,) = sender.spec().previous_until
    assert until == pytest.approx(time.time() + 86_400, abs=60)
    assert rotated["previous_secret_until"] is not None
    for _ in range(5):
        api.post(f"{path}/rotate-secret", None, api.token())
    assert len(sender.spec().secrets) == 4
    assert len(sender.spec().previous_until) == 3


def test_a_webhook_that_the_sender_gives_up_is_disabled_published_and_enabled_again_by_hand(
    api: Api, sender: FakeSender
) -> None:
    made = create(api)
    path = f"/webhooks/{made['id']}"
    disable(api.services.objects["webhooks"], api.services.publish, made["id"], "the target answered 410", time.time())
    view = api.get(path, api.token()).json["data"]["webhook"]
    assert (view["enabled"], view["disabled_reason"]) == (False, "the target answered 410")
    assert not sender.spec().enabled
    (published,) = api.fleet.published("webhook.disabled")
    assert (published["webhook_id"], published["reason"]) == (made["id"], "the target answered 410")
    (row,) = api.get("/audit?action=webhook.updated", api.token()).json["data"]["audit"]
    assert row["actor"]["type"] == "system"
    again = api.patch(path, {"enabled": True}, api.token()).json["data"]["webhook"]
    assert (again["enabled"], again["disabled_reason"]) == (True, None)


def test_what_was_changed_meanwhile_is_not_disabled_for_an_older_reason(api: Api, sender: FakeSender) -> None:
    made = create(api)
    seen = time.time() - 60
    disable(api.services.objects["webhooks"], api.services.publish, made["id"], "the target answered 410", seen)
    disable(api.services.objects["webhooks"], api.services.publish, "wh_unknown", "the target answered 410", seen)
    assert api.get(f"/webhooks/{made['id']}", api.token()).json["data"]["webhook"]["enabled"]
    assert api.fleet.published("webhook.disabled") == []


def test_a_webhook_that_can_not_be_disabled_in_an_outage_of_the_database_gets_a_reply(api: Api) -> None:
    def away(*_: Any) -> Any:
        raise LedgerError("db: gone")

    webhooks: Any = SimpleNamespace(change=away)
    at_once: Any = SimpleNamespace(call=lambda function: function())
    link = WebhookLink(webhooks, api.services.webhooks, api.services.publish, api.fleet, at_once)  # type: ignore[arg-type]
    replies: queue.Queue[Any] = queue.Queue()
    assert link.receive(DisableWebhook("wh_1", "the target answered 410", time.time()), replies.put)
    assert replies.get(timeout=120) == Failed("db: gone")


def test_a_test_says_how_it_went(api: Api, sender: FakeSender) -> None:
    made = create(api)
    tested = api.post(f"/webhooks/{made['id']}/test", None, api.token())
    assert tested.json["data"] == {"delivered": True, "status_code": 204, "response_time": 12, "error": None}
    assert sender.asked[-1] == SendTestEvent(made["id"], tested.headers["X-Request-Id"])
    assert api.post("/webhooks/wh_x/test", None, api.token()).status_code == 404
    assert last_action(api) == "webhook.tested"


def last_action(api: Api) -> str:
    return str(
        api.get("/audit", api.token(), query_string="limit=1&action=webhook.*").json["data"]["audit"][0]["action"]
    )


def test_deliveries_are_returned_with_their_attempts_and_sent_again(api: Api, sender: FakeSender) -> None:
    made = create(api)
    path = f"/webhooks/{made['id']}/deliveries"
    attempt = DeliveryAttempt(1, 5.0, HOOK["url"], {"webhook-id": "evt_1"}, 500, 31, "sorry", "status 500")
    event = Event("evt_1", "proxy.down", 4.0, {"proxy_id": "prx_1"})
    sender.deliveries = (Delivery("dlv_1", made["id"], event, "waiting", 4.5, 10.0, (attempt,)),)
    page = api.get(f"{path}?limit=1&status=waiting", api.token()).json["data"]
    (view,) = page["deliveries"]
    assert (page["total"], page["has_more"]) == (1, False)
    assert (view["id"], view["event"], view["payload"]["id"]) == ("dlv_1", "proxy.down", "evt_1")
    assert view["attempts"][0]["status_code"] == 500
    assert sender.asked[-1] == QueryDeliveries(made["id"], "waiting", 1, 0)
    again = api.post(f"{path}/dlv_1/redeliver", None, api.token())
    assert again.json["data"]["delivery"] == view
    assert sender.asked[-1] == Redeliver(made["id"], "dlv_1")
    assert last_action(api) == "webhook.redelivered"
    sender.deliveries = ()
    assert api.post(f"{path}/dlv_2/redeliver", None, api.token()).status_code == 404
    assert error_of(api.get(f"{path}?status=lost", api.token()))[2]["field"] == "status"


def test_deliveries_tell_of_people_to_those_alone_who_may_read_users(api: Api, sender: FakeSender) -> None:
    made = create(api)
    api.add_user("operator", permissions=["settings.read", "settings.write"])
    api.add_user("auditor", role="auditor")
    events = {
        "user.created": {"username": "eve"},
        "auth.locked": {"client_ip": "192.0.2.1"},
        "proxy.down": {"name": "p"},
    }
    sender.deliveries = tuple(
        Delivery(f"dlv_{kind}", made["id"], Event(f"evt_{kind}", kind, 4.0, data), "waiting", 4.5, 10.0, ())
        for kind, data in events.items()
    )
    path = f"/webhooks/{made['id']}/deliveries"

    def data_for(name: str) -> dict[str, Any]:
        found = api.get(path, api.token(name)).json["data"]["deliveries"]
        return {each["event"]: each["payload"]["data"] for each in found}

    assert data_for("auditor") == events
    assert data_for("operator") == {"user.created": {}, "auth.locked": {}, "proxy.down": {"name": "p"}}
    again = api.post(f"{path}/dlv_user.created/redeliver", None, api.token("operator"))
    assert again.json["data"]["delivery"]["payload"]["data"] == {}


def test_the_list_says_how_deliveries_go(api: Api, sender: FakeSender) -> None:
    made = create(api)
    sender.statuses[made["id"]] = WebhookStatus(3, 10.0, None, None)
    (view,) = api.get("/webhooks", api.token()).json["data"]["webhooks"]
    assert view["delivery_status"]["waiting"] == 3
    assert view["delivery_status"]["last_success_at"].startswith("1970-01-01T00:00:10")


def test_without_the_sender_webhooks_are_changed_and_returned_but_not_tested(api: Api) -> None:
    made = create(api)
    assert api.get(f"/webhooks/{made['id']}", api.token()).json["data"]["webhook"]["delivery_status"] is None
    assert api.post(f"/webhooks/{made['id']}/test", None, api.token()).status_code == 503
    assert api.get(f"/webhooks/{made['id']}/deliveries", api.token()).status_code == 503
