"""What the data of events state of a change: who made it and which fields, and nothing that receivers may not see."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from config.model.events import EVENT_DATA
from config.model.subscriptions import checked
from tests.kit.api_stage import PASSWORD, Api

SECRET = "a secret that no receiver may see"


def data_of(api: Api, kind: str) -> dict[str, Any]:
    return api.fleet.published(kind)[-1]


def created(api: Api, **fields: Any) -> str:
    body = {"name": "office", "port": 3128, "protocol": "http", **fields}
    response = api.post("/proxies", body, api.token())
    assert response.status_code == 201, response.json
    return str(response.json["data"]["proxy"]["id"])


def test_a_changed_proxy_names_its_fields_and_the_id_of_who_changed_it(api: Api) -> None:
    zoe = api.add_user("zoe", role="operator")
    path = f"/proxies/{created(api)}"
    body = {
        "tags": ["a"],
        "auth": {"enabled": True, "username": "u", "password": SECRET},
        "settings": {"timeout": 7},
        "upstreams": [
            {"protocol": "http", "host": "10.0.0.1", "port": 1, "auth": {"username": "u", "password": SECRET}}
        ],
    }
    assert api.patch(path, body, api.token("zoe")).status_code == 200
    data = data_of(api, "proxy.updated")
    assert data["by"] == {"type": "user", "user_id": zoe.id, "method": "bearer"}
    assert data["changed"] == [
        "auth.enabled",
        "auth.password",
        "auth.username",
        "settings.timeout",
        "tags",
        "upstreams",
    ]
    assert SECRET not in str(api.fleet.events)
    assert "zoe" not in str(data), "names of users are for receivers of events about users"
    api.patch(path, {"tags": []}, api.token())
    assert data_of(api, "proxy.updated")["changed"] == ["tags"], "of this change alone"


def test_creations_starts_and_deletions_name_who_did_it(api: Api) -> None:
    path = f"/proxies/{created(api)}"
    api.post(f"{path}/stop", None, api.token())
    api.request("DELETE", path, api.token())
    (admin,) = [each["id"] for each in api.get("/users", api.token()).json["data"]["users"]]
    for kind in ("proxy.created", "proxy.stopped", "proxy.deleted"):
        assert data_of(api, kind)["by"]["user_id"] == admin
        assert "changed" not in data_of(api, kind)


def test_events_about_users_name_the_user_who_did_it_as_well(api: Api) -> None:
    ada = api.add_user("ada", role="user")
    response = api.patch(f"/users/{ada.id}", {"password": f"{SECRET} 1", "email": "ada@example.com"}, api.token())
    assert response.status_code == 200, response.json
    data = data_of(api, "user.updated")
    assert (data["by"]["username"], data["by"]["method"]) == ("admin", "bearer")
    assert {"email", "password"} <= set(data["changed"])
    assert SECRET not in str(api.fleet.events)
    assert "hash" not in str(data)


def test_a_change_by_an_api_key_names_the_key_and_one_of_the_settings_the_user(api: Api) -> None:
    body = {"name": "robot", "permissions": ["settings.write"]}
    data = api.post("/api-keys", body, api.token()).json["data"]
    key, headers = data["api_key"], {"X-API-Key": data["key"]}
    assert api.patch("/settings", {"logging": {"level": "debug"}}, headers).status_code == 200
    data = data_of(api, "settings.updated")
    assert (data["by"]["method"], data["by"]["key_id"]) == ("api_key", key["id"])
    assert data["changed"] == ["logging.level"]
    assert headers["X-API-Key"] not in str(api.fleet.events)
    assert PASSWORD not in str(api.fleet.events)


def test_data_that_are_not_those_of_the_event_are_refused() -> None:
    data = {"proxy_id": "prx_1", "name": "p", "port": 1, "restarts": 0}
    assert checked("proxy.up", data) == data
    for wrong in ({**data, "password": "x"}, {**data, "port": "1"}, {"proxy_id": "prx_1"}):
        with pytest.raises(ValidationError):
            checked("proxy.up", wrong)


def test_the_description_has_every_event_with_its_data(api: Api) -> None:
    described = api.client.simulate_get("/api/v1/openapi.json").json
    assert described["webhooks"].keys() == EVENT_DATA.keys()
    schema = described["webhooks"]["proxy.down"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    name = schema["properties"]["data"]["$ref"].rpartition("/")[2]
    assert set(described["components"]["schemas"][name]["required"]) == {
        "proxy_id",
        "name",
        "port",
        "restarts",
        "error",
    }
