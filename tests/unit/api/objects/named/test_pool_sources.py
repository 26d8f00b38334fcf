"""Pools with a source in the API: their upstreams are what was fetched, and no configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actors.bus.codec import unpack
from actors.bus.messages.specs import FleetObject, PoolSpec
from actors.bus.messages.supervision import ApplyObjects
from api.backup.restore import remove_lost_secrets
from api.objects.named.pool_kind import POOLS
from api.objects.named.shared_objects import FETCHED_UPSTREAMS
from config.files.secret_box import SecretBox
from config.model.shared_objects.upstreams import PURPOSE
from config.model.webhooks import opened_headers
from tests.kit.api_stage import Api, error_of
from tests.unit.api.importing import PASSPHRASE, SEALED, Importing

SOURCE: dict[str, Any] = {
    "url": "https://provider.example/exits?key=0123",
    "format": "csv",
    "headers": {"X-Key": "hunter2hunter2"},
}
FETCHED: list[dict[str, Any]] = [
    {"protocol": "http", "host": "a.example", "port": 1, "labels": {"country": "de"}, "name": "de1"},
    {"protocol": "socks5", "host": "b.example", "port": 2, "auth": {"username": "u", "password": "of the provider"}},
]


def made(api: Api, **fields: Any) -> dict[str, Any]:
    response = api.post("/pools", {"name": "exits", "source": SOURCE, **fields}, api.token())
    assert response.status_code == 201, response.json
    data: dict[str, Any] = response.json["data"]
    return data


def keep(api: Api, given: list[dict[str, Any]]) -> int:
    services = api.services
    pool = services.shared_objects.get(POOLS, "exits").record
    return services.pool_sources.keep(pool, given, [each.record for each in services.proxies.all()], 0.0)


def pool(api: Api) -> dict[str, Any]:
    view: dict[str, Any] = api.get("/pools/exits", api.token()).json["data"]["pool"]
    return view


def test_a_pool_is_what_was_fetched(api: Api) -> None:
    first = made(api)
    assert first["warnings"][0]["field"] == "source"
    assert first["pool"]["source"] == {
        "url": SOURCE["url"],
        "format": "csv",
        "protocol": "http",
        "interval": 3600,
        "max_bytes": 4 * 1024 * 1024,
        "headers": {"X-Key": "***"},
    }
    before, first_sent = api.services.revisions.newest, sent(api)
    keep(api, FETCHED)
    view = pool(api)
    assert [(each["name"], each["labels"]) for each in view["upstreams"]] == [
        ("de1", {"country": "de"}),
        ("socks5://b.example:2", {}),
    ]
    assert "of the provider" not in str(view)
    assert (view["upstream_count"], len(view["status"]["upstreams"])) == (2, 2)
    assert view["status"]["source"]["last_error"] is None
    totals = api.get("/overview", api.token()).json["data"]["pools"]
    assert totals == {"total": 1, "by_state": {"unknown": 1}, "upstreams": 2, "usable": 0}
    assert api.services.revisions.newest == before, "it is no revision"
    assert sent(api).revision > first_sent.revision
    assert b"b.example" in sent(api).packed


def sent(api: Api) -> FleetObject:
    """The pool as the supervisor got it last."""
    objects = [message.objects for _, message in api.fleet.received if isinstance(message, ApplyObjects)]
    found: FleetObject = objects[-1][0]
    return found


def test_what_a_provider_sends_does_not_lead_to_own_proxies(api: Api) -> None:
    api.post("/proxies", {"name": "p", "protocol": "http", "host": "127.0.0.1", "port": 8_211}, api.token())
    made(api)
    assert keep(api, [{"protocol": "http", "host": "localhost", "port": 8_211}, FETCHED[0]]) == 1
    assert [each["host"] for each in pool(api)["upstreams"]] == ["a.example"]


def test_what_a_provider_sends_stands_in_the_way_of_no_proxy_and_processes_know_where_it_comes_from(api: Api) -> None:
    made(api)
    keep(api, [{"protocol": "http", "host": "127.0.0.1", "port": 3199}])
    body = {"name": "later", "port": 3199, "protocol": "http", "pool": "exits"}
    assert api.post("/proxies", body, api.token()).status_code == 201
    assert unpack(PoolSpec, sent(api).packed).upstreams.fetched
    assert api.patch("/pools/exits", {"upstreams": []}, api.token()).status_code == 200
    assert not unpack(PoolSpec, sent(api).packed).upstreams.fetched


def test_upstreams_take_the_place_of_a_source_and_it_that_of_upstreams(api: Api) -> None:
    made(api)
    keep(api, FETCHED)
    both = api.patch("/pools/exits", {"upstreams": ["c.example:3"], "source": SOURCE}, api.token())
    assert error_of(both)[2]["field"] == "source"
    assert api.patch("/pools/exits", {"upstreams": ["c.example:3"]}, api.token()).status_code == 200
    view = pool(api)
    assert ([each["host"] for each in view["upstreams"]], view["source"]) == (["c.example"], None)
    api.services.pool_sources.keep_only(set())
    assert not api.store.find(FETCHED_UPSTREAMS)
    missing = api.patch("/pools/exits", {"source": {"format": "csv"}}, api.token())
    assert error_of(missing)[2] == {"field": "source.url", "error": "is required"}


@pytest.mark.parametrize("name", ["upstreams", "entries"])
def test_only_what_has_a_source_is_fetched(api: Api, name: str) -> None:
    kind = {"upstreams": "pools", "entries": "lists"}[name]
    body = {"name": "x", name: [], **({"kind": "domains"} if kind == "lists" else {})}
    api.post(f"/{kind}", body, api.token())
    status, _, details = error_of(api.post(f"/{kind}/x/refresh", None, api.token()))
    assert (status, details["error"]) == (400, f"the {kind[:-1]} 'x' has its {name} itself, and no source")


def test_a_document_has_the_source_and_its_headers_and_not_what_was_fetched(api: Api) -> None:
    made(api)
    keep(api, FETCHED)
    here = Importing(api)
    document = here.export("encrypted", **SEALED)
    (entry,) = document["pools"]
    assert "upstreams" not in entry
    assert entry["source"]["headers"] == {"X-Key": None}
    assert here.post(here.export()).json["data"]["summary"]["update"] == 0
    assert len(pool(api)["upstreams"]) == 2
    there = Importing(Api())
    try:
        assert there.post(document, X_Passphrase=PASSPHRASE).status_code == 200
        source = there.api.services.shared_objects.get(POOLS, "exits").record.source
        assert opened_headers(source.headers, there.api.services.seal) == SOURCE["headers"]
    finally:
        there.api.close()


def test_without_the_keys_headers_are_lost_and_upstreams_are_fetched_once_more(api: Api, tmp_path: Path) -> None:
    made(api)
    keep(api, FETCHED)
    other = SecretBox(tmp_path / "other.key")
    other.seal("", "")
    lost = remove_lost_secrets(api.store, other)
    assert [(each.kind, each.name, each.field) for each in lost] == [("pools", "exits", "source.headers.X-Key")]
    assert not api.store.find(FETCHED_UPSTREAMS)


def test_a_password_stays_sealed_as_it_was(api: Api) -> None:
    made(api)
    keep(api, FETCHED)
    (first,) = api.store.find(FETCHED_UPSTREAMS)
    assert "of the provider" not in str(first.body)
    keep(api, FETCHED)
    (second,) = api.store.find(FETCHED_UPSTREAMS)
    assert first.body["upstreams"] == second.body["upstreams"]
    assert api.services.seal.open(first.body["upstreams"][1]["password"], PURPOSE) == "of the provider"
