"""The settings: their view, the changes that are allowed, and that a change is atomic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from actors.bus.messages.common import SUPERVISOR
from actors.bus.messages.supervision import ApplyObjects, ApplyOverrides
from api.api_settings import ApiSettings
from api.audit.masking import field_names
from api.store import StoreWriteError
from config.settings.groups import Logging
from config.settings.runtime import InvalidOverride, merge, overlay
from config.settings.settings import Auth, Jwt, ProxyGroup, Server
from tests.kit.api_stage import PROXY, QUIET, Api, error_of, revision_of
from tests.kit.tables import table

SYSTEM = {"type": "system", "user_id": None, "method": None}
SAMPLE = {
    "server": {"host": "127.0.0.1", "port": 8080, "ssl_enabled": False, "max_connections": 1000},
    "logging": {"level": "info", "access": "all", "format": "text", "output": "stderr"},
    "auth": {"enabled": True, "session_timeout": 3600, "max_login_attempts": 5},
    "proxy": {
        "default_timeout": 30,
        "keep_alive_timeout": 60,
        "max_idle_connections": 100,
        "dns_cache_seconds": 30,
        "sleep_after": 0,
        "policy": "",
        "public_name": "",
    },
    "history": {"retention_days": 90, "max_revisions": 10_000},
}


def settings_of(api: Api) -> Any:
    return api.get("/settings", api.token()).json["data"]


def change(api: Api, body: Any, **headers: str) -> Any:
    return api.patch("/settings", body, {**api.token(), **headers})


def test_the_settings_begin_with_the_values_of_the_sample(api: Api) -> None:
    assert settings_of(api) == SAMPLE


def test_configured_settings_are_returned() -> None:
    configured = ApiSettings(
        server=Server(port=1234), logging=Logging(format="json"), auth=Auth(jwt=Jwt(access_token_ttl=9)), security=QUIET
    )
    api = Api(configured)
    assert settings_of(api)["server"]["port"] == 1234
    assert settings_of(api)["logging"]["format"] == "json"
    assert settings_of(api)["auth"]["session_timeout"] == 9
    api.close()


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_change_is_merged_deeply_and_survives_a_restart(api: Api, method: str) -> None:
    body = {"proxy": {"default_timeout": 7}, "auth": {"session_timeout": 60}}
    response = api.request(method, "/settings", api.token(), json=body)
    assert response.status_code == 200
    expected = merge(SAMPLE, body)
    assert response.json["data"] == expected
    assert settings_of(api) == expected
    assert api.store.get("settings", "settings").body == {"id": "settings", **body}  # type: ignore[union-attr]
    (event,) = api.fleet.published("settings.updated")
    assert event["changed"] == ["auth.session_timeout", "proxy.default_timeout"]
    assert event["request_id"] == response.headers["X-Request-Id"]


def test_new_proxies_get_the_new_default_and_old_ones_keep_theirs(api: Api) -> None:
    old = api.post("/proxies", PROXY, api.token()).json["data"]["proxy"]
    change(api, {"proxy": {"default_timeout": 7}})
    new = api.post("/proxies", {**PROXY, "name": "second", "port": 3129}, api.token()).json["data"]["proxy"]
    assert (old["settings"]["timeout"], new["settings"]["timeout"]) == (30, 7)


def test_tokens_live_as_long_as_the_sessions_from_now_on(api: Api) -> None:
    change(api, {"auth": {"session_timeout": 5}})
    body = {"username": "admin", "password": "correct horse"}
    assert api.post("/auth/login", body).json["data"]["expires_in"] == 5


@table(
    ("body", "field"),
    [
        ({"server": {"port": 0}}, "server.port"),
        ({"server": {"port": "80"}}, "server.port"),
        ({"server": {"port": True}}, "server.port"),
        ({"server": {"host": "not a host"}}, "server.host"),
        ({"server": {"port": None}}, "server.port"),
        ({"server": {"port": 81}}, "server.port"),
        ({"server": {"host": "0.0.0.0"}}, "server.host"),
        ({"server": None}, "server"),
        ({"server": []}, "server"),
        ({"server": {"ssl_enabled": True}}, "server.ssl_enabled"),
        ({"server": {"max_connections": 0}}, "server.max_connections"),
        ({"logging": {"level": "loud"}}, "logging.level"),
        ({"logging": {"format": "xml"}}, "logging.format"),
        ({"logging": {"access": "some"}}, "logging.access"),
        ({"logging": {"output": "/etc/passwd"}}, "logging.output"),
        ({"auth": {"enabled": False}}, "auth.enabled"),
        ({"auth": {"session_timeout": 0}}, "auth.session_timeout"),
        ({"auth": {"max_login_attempts": 0}}, "auth.max_login_attempts"),
        ({"proxy": {"default_timeout": 3601}}, "proxy.default_timeout"),
        ({"proxy": {"max_idle_connections": -1}}, "proxy.max_idle_connections"),
        ({"proxy": {"test_url": "http://x/"}}, "proxy.test_url"),
        ({"security": {"https_only": False}}, "security"),
    ],
)
def test_one_bad_field_is_named_and_changes_nothing(api: Api, body: dict[str, Any], field: str) -> None:
    if isinstance(body.get("logging"), dict) or "logging" not in body:
        body = {"auth": {"max_login_attempts": 3}, **body} if "auth" not in body else body
    status, code, details = error_of(change(api, body))
    assert (status, code, details["field"]) == (400, "INVALID_REQUEST", field)
    assert settings_of(api) == SAMPLE
    assert api.store.get("settings", "settings") is None


def test_what_was_read_can_be_sent_back_and_sets_nothing(api: Api) -> None:
    assert api.put("/settings", settings_of(api), api.token()).json["data"] == SAMPLE
    assert api.store.get("settings", "settings") is None
    assert api.fleet.published("settings.updated") == []


def test_without_the_supervisor_nothing_is_stored(api: Api) -> None:
    api.fleet.gone.add(SUPERVISOR)
    assert change(api, {"logging": {"level": "debug"}}).status_code == 500
    assert api.store.get("settings", "settings") is None


def test_a_disk_that_refuses_leaves_everything_as_it_was(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise StoreWriteError("the disk is full")

    token = api.token()
    monkeypatch.setattr(api.engine.documents, "take", refuse)
    assert api.patch("/settings", {"logging": {"level": "debug"}}, token).status_code == 500
    assert (shown_by(api, token), api.fleet.stored) == (SAMPLE, {})


def shown_by(api: Api, headers: dict[str, str]) -> Any:
    return api.get("/settings", headers).json["data"]


def test_a_stale_etag_is_refused_and_a_fresh_one_taken(api: Api) -> None:
    first = api.get("/settings", api.token()).headers["ETag"]
    changed = change(api, {"logging": {"level": "debug"}}, **{"If-Match": first})
    assert changed.status_code == 200
    assert changed.headers["ETag"] != first
    assert error_of(change(api, {"logging": {"level": "error"}}, **{"If-Match": first}))[:2] == (412, "INVALID_REQUEST")
    assert change(api, {"logging": {"level": "error"}}, **{"If-Match": changed.headers["ETag"]}).status_code == 200


def test_the_etag_follows_a_configuration_that_was_read_again(api: Api) -> None:
    first = api.get("/settings", api.token()).headers["ETag"]
    api.services.apply(ApiSettings(logging=Logging(level="debug"), security=QUIET))
    assert api.get("/settings", api.token()).headers["ETag"] != first


def test_reading_and_changing_need_their_permissions(api: Api) -> None:
    api.add_user("reader", permissions=["settings.read"])
    assert api.get("/settings", api.token("reader")).status_code == 200
    status, code, details = error_of(api.patch("/settings", {}, api.token("reader")))
    assert (status, code, details) == (403, "FORBIDDEN", {"required_permission": "settings.write"})


def test_a_file_that_was_read_again_is_on_record_if_it_says_something_else(api: Api) -> None:
    before = api.services.audit.head
    api.services.reread(api.settings)
    assert api.services.audit.head == before
    api.services.reread(replace(api.settings, logging=Logging(level="debug")))
    row = api.get("/audit", api.token()).json["data"]["audit"][0]
    assert (row["action"], row["actor"]["type"]) == ("settings.reread", "system")
    assert (row["before"], row["after"]) == ({"logging": {"level": "info"}}, {"logging": {"level": "debug"}})
    assert api.fleet.published("settings.updated") == [{"changed": ["logging.level"], "source": "file", "by": SYSTEM}]


@pytest.mark.parametrize(
    ("key", "values", "recorded"),
    [("alerts.window", (300, 60), (300, 60)), ("auth.oauth2.client_secret", ("one", "other"), ("***", "***"))],
    ids=["what another actor uses", "a secret"],
)
def test_a_file_that_was_read_again_is_on_record_whatever_it_changes(
    api: Api, key: str, values: tuple[Any, Any], recorded: tuple[Any, Any]
) -> None:
    for value in values:
        plain = {**api.settings.plain(), "alerts": {}}
        *groups, name = key.split(".")
        inner = plain
        for group in groups:
            inner = inner[group]
        inner[name] = value
        api.services.reread(ApiSettings.from_plain(plain))
    row = api.get("/audit", api.token()).json["data"]["audit"][0]
    assert (row["action"], field_names(row["before"]), field_names(row["after"])) == ("settings.reread", [key], [key])
    assert tuple(at(row[side], key) for side in ("before", "after")) == recorded
    assert api.fleet.published("settings.updated")[-1] == {"changed": [key], "source": "file", "by": SYSTEM}


def at(part: Any, key: str) -> Any:
    for name in key.split("."):
        part = part[name]
    return part


def test_stored_values_that_are_no_good_any_more_are_named() -> None:
    with pytest.raises(InvalidOverride, match=r"server\.port"):
        overlay(ApiSettings(), {"server": {"port": 70000}})
    with pytest.raises(InvalidOverride, match="colour"):
        overlay(ApiSettings(), {"colour": {"port": 70000}})


@pytest.mark.parametrize("output", ["stdout", "journald", "jsonl", "stderr"])
def test_the_output_of_the_log_can_be_changed(api: Api, output: str) -> None:
    assert change(api, {"logging": {"output": output}}).json["data"]["logging"]["output"] == output


def test_a_path_for_records_is_returned_and_can_be_sent_back_but_not_set() -> None:
    api = Api(ApiSettings(logging=Logging(output="jsonl:/var/log/access"), security=QUIET))
    assert change(api, settings_of(api)).status_code == 200
    status, _code, details = error_of(change(api, {"logging": {"output": "jsonl:/etc/cron.d/x"}}))
    assert (status, details["field"]) == (400, "logging.output")
    assert change(api, {"logging": {"output": "jsonl"}}).json["data"]["logging"]["output"] == "jsonl"
    api.close()


def test_a_setting_that_is_unset_is_what_the_configuration_says_again(api: Api) -> None:
    api.fleet.events.clear()
    change(api, {"logging": {"level": "debug", "access": "off"}})
    response = api.request("DELETE", "/settings/logging.level", api.token())
    assert response.json["data"]["logging"] == {**SAMPLE["logging"], "access": "off"}  # type: ignore[dict-item]
    assert api.fleet.stored == {"logging": {"access": "off"}}
    assert api.fleet.published("settings.updated")[-1]["changed"] == ["logging.level"]
    assert revision_of(api.get("/settings", api.token())) == revision_of(response)
    row = api.get("/audit", api.token()).json["data"]["audit"][0]
    assert (row["action"], row["before"], row["after"]) == (
        "settings.updated",
        {"logging": {"level": "debug"}},
        {"logging": {"level": None}},
    )
    api.request("DELETE", "/settings/logging.access", api.token())
    assert settings_of(api) == SAMPLE


def test_unsetting_what_was_not_set_changes_nothing_and_what_is_no_setting_is_404(api: Api) -> None:
    token = api.token()
    revision = api.store.revision
    assert api.request("DELETE", "/settings/proxy.default_timeout", token).json["data"] == SAMPLE
    assert api.store.revision == revision
    for name in ("logging", "logging.colour", "proxy.egress_guard", "id"):
        assert api.request("DELETE", f"/settings/{name}", api.token()).status_code == 404


def test_the_sources_name_what_the_api_has_set_and_what_it_hides(api: Api) -> None:
    change(api, {"logging": {"level": "debug"}})
    rows = {row["key"]: row for row in api.get("/settings/sources", api.token()).json["data"]["settings"]}
    configured = {"value": "info", "source": "default", "place": None}
    assert rows["logging.level"] == {
        "key": "logging.level",
        "value": "debug",
        "source": "api",
        "place": None,
        "change": "at_once",
        "waits": False,
        "configured": configured,
    }
    changes = {key: row["change"] for key, row in rows.items() if key in ("alerts.window", "server.tls.enabled")}
    assert changes == {"alerts.window": "reload", "server.tls.enabled": "restart"}
    api.fleet.gone.add(SUPERVISOR)
    assert api.get("/settings/sources", api.token()).status_code == 500


def test_a_setting_is_reset_only_in_the_state_that_was_read(api: Api) -> None:
    change(api, {"server": {"max_connections": 900}})
    stale = {**api.token(), "If-Match": '"1"'}
    name = "/settings/server.max_connections"
    assert api.request("DELETE", name, stale).status_code == 412
    assert api.request("DELETE", name, api.token()).json["data"]["server"]["max_connections"] == 1000


# --- the policy of all proxies --------------------------------------------------------------------------------------

POLICY = {"name": "everywhere", "rules": [{"name": "all", "match": {}, "action": {"use": "deny"}}]}


def test_the_policy_of_all_proxies_is_there_and_stays_while_it_is_named(api: Api) -> None:
    refused = change(api, {"proxy": {"policy": "everywhere"}})
    assert (refused.status_code, error_of(refused)[2]["field"]) == (400, "proxy.policy")
    assert error_of(change(api, {"proxy": {"policy": "no name"}}))[2]["field"] == "proxy.policy"
    api.post("/policies", POLICY, api.token())
    assert change(api, {"proxy": {"policy": "everywhere"}}).json["data"]["proxy"]["policy"] == "everywhere"
    in_use = "the policy 'everywhere' is in use by 1 (setting proxy.policy)"
    deleted = api.request("DELETE", "/policies/everywhere", api.token())
    renamed = api.patch("/policies/everywhere", {"name": "other"}, api.token())
    assert all(error_of(each)[2]["error"].startswith(in_use) for each in (deleted, renamed))
    assert change(api, {"proxy": {"policy": ""}}).status_code == 200
    assert api.request("DELETE", "/policies/everywhere", api.token()).status_code == 200


def test_the_policy_of_the_configuration_is_in_use_too() -> None:
    api = Api(ApiSettings(proxy=ProxyGroup(policy="everywhere"), security=QUIET))
    api.post("/policies", POLICY, api.token())
    used = api.get("/policies/everywhere", api.token()).json["data"]["policy"]["used_by"]
    setting = {"kind": "setting", "id": "proxy.policy", "name": "proxy.policy"}
    assert used == {"total": 1, "first": [setting]}
    assert api.request("DELETE", "/policies/everywhere", api.token()).status_code == 400
    api.close()


def test_an_import_has_the_policy_of_all_proxies_with_the_policy_itself(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervise, seen = api.fleet._supervise, list[type[Any]]()

    def noted(message: Any) -> Any:
        if isinstance(message, (ApplyObjects, ApplyOverrides)):
            seen.append(type(message))
        return supervise(message)

    monkeypatch.setattr(api.fleet, "_supervise", noted)
    head = {"kind": "proxyfleet.config", "version": 1}
    named = {"settings": {"proxy": {"policy": "everywhere"}}}

    def imported(query: str = "", **sections: Any) -> Any:
        return api.post("/config/import", {**head, **sections}, api.token(), query_string=query)

    assert error_of(imported(**named))[2]["field"] == "settings.proxy.policy"
    assert imported(policies=[POLICY], **named).status_code == 200
    assert settings_of(api)["proxy"]["policy"] == "everywhere"
    assert seen == [ApplyObjects, ApplyOverrides], "processes know the policy before it judges"
    revision = api.get("/revisions?limit=1", api.token()).json["data"]["revisions"][0]["revision"]
    pruned = error_of(imported("prune=true", policies=[]))[2]
    expected = "the policy 'everywhere' would be deleted, and the setting proxy.policy names it"
    assert (pruned["field"], pruned["error"]) == ("policies", expected)
    undone = api.post(f"/revisions/{revision}/undo", None, api.token())
    assert undone.status_code == 200, undone.text
    assert seen[2:] == [ApplyOverrides, ApplyObjects], "and lose it when it judges no more"
    assert (settings_of(api)["proxy"]["policy"], api.get("/policies", api.token()).json["data"]["policies"]) == ("", [])
