"""Import and export of the configuration: the document, the changes, and that an import is atomic."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from threading import Thread
from typing import Any

import pytest

from actors.bus.messages.common import SUPERVISOR, WEBHOOKS
from actors.bus.messages.events import SetWebhooks
from actors.bus.messages.supervision import CancelListeners, ReplaceProxies
from api.import_export import document
from api.import_export.document import _key as derived_key
from api.import_export.minimal import minimal
from api.security import users
from api.store import StoreWriteError
from config.passwords import check_password
from tests.kit.api_stage import PASSWORD, Api, error_of
from tests.kit.tables import table
from tests.unit.api.importing import (
    ACCOUNT,
    CLIENT,
    HEAD,
    HOOK,
    HOOKED,
    PASSPHRASE,
    PERSON,
    RICH,
    SEALED,
    SECRETS,
    UPSTREAM,
    Importing,
)


@pytest.fixture
def here(api: Api) -> Importing:
    return Importing(api)


@pytest.fixture
def filled(here: Importing) -> Importing:
    here.fill()
    return here


@pytest.fixture
def there() -> Iterator[Importing]:
    """Another installation, empty."""
    made = Api()
    yield Importing(made)
    made.close()


def of(response: Any, kind: str, name: str) -> dict[str, Any]:
    return next(each for each in response["changes"] if (each["kind"], each["name"]) == (kind, name))


def fields(response: Any, kind: str, name: str) -> dict[str, tuple[Any, Any]]:
    return {each["field"]: (each["before"], each["after"]) for each in of(response, kind, name)["fields"]}


# --- export -------------------------------------------------------------------------------------------------------


def test_an_export_has_everything_but_secrets_which_are_null(filled: Importing) -> None:
    document = filled.export()
    assert (document["kind"], document["version"]) == ("proxyfleet.config", 1)
    plain, rich = document["proxies"]
    assert (plain["name"], plain["status"], plain["auth"]) == ("plain", "inactive", {"enabled": False})
    assert rich["auth"] == {"enabled": True, "username": "client", "password": None}
    assert [each["password"] for each in rich["accounts"]] == [None, None]
    assert rich["upstreams"][0]["auth"] == {"username": "u", "password": None}
    assert "auth" not in rich["upstreams"][1]
    assert document["users"][1]["permissions"] == ["proxy.read"]
    assert document["users"][0]["permissions"] is None
    assert document["webhooks"][0]["headers"] == {"Authorization": None, "X-Plain": None}
    assert document["settings"] == {"logging": {"level": "warning"}, "proxy": {"default_timeout": 44}}
    text = json.dumps(document)
    assert all(secret not in text for secret in (*SECRETS, "$2b$", "whsec_", "sealed:"))


def test_two_exports_without_a_change_between_are_the_same_with_the_same_etag(filled: Importing) -> None:
    first, second = (filled.api.get("/config/export", filled.headers) for _ in range(2))
    assert first.json["data"] == second.json["data"]
    assert first.headers["etag"] == second.headers["etag"]
    filled.apply(proxies=[{"name": "plain", "tags": ["x"]}])
    assert filled.api.get("/config/export", filled.headers).headers["etag"] != first.headers["etag"]


def test_an_export_with_secrets_wants_a_passphrase_that_is_long_enough(filled: Importing) -> None:
    for headers in ({}, {"X-Passphrase": "short"}, {"X-Passphrase": "\u00ff" * 20}):
        response = filled.api.get("/config/export", {**filled.headers, **headers}, query_string="secrets=encrypted")
        status, _, details = error_of(response)
        assert (status, details["field"]) == (400, "X-Passphrase")
    response = filled.api.get("/config/export", filled.headers, query_string="secrets=plain")
    assert error_of(response)[2]["field"] == "secrets"


def test_who_took_an_export_is_on_record_and_the_passphrase_is_nowhere(filled: Importing) -> None:
    document = filled.export("encrypted", **SEALED)
    assert all(secret not in json.dumps(document) for secret in (*SECRETS, "$2b$", "whsec_"))
    filled.post(document, X_Passphrase=PASSPHRASE)
    rows = filled.api.get("/audit", filled.headers, query_string="action=config.exported").json["data"]["audit"]
    assert [(row["details"], row["actor"]["username"]) for row in rows] == [({"secrets": "encrypted"}, "admin")]
    files = [file for file in filled.api.data.path.rglob("*") if file.is_file()]
    assert all(PASSPHRASE.encode() not in file.read_bytes() for file in files)


def test_an_export_is_of_one_moment_also_while_several_documents_change_together(
    filled: Importing, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, before, other = filled.api.engine.documents.find, filled.export(), Importing(filled.api)
    changed = {"proxies": [{"name": "plain", "tags": ["new"]}], "webhooks": [{**HOOKED, "events": ["*"]}]}
    change = Thread(target=lambda: other.apply(**changed))

    def find_and_change(collection: str, *where: Any, **fields: Any) -> Any:
        found = find(collection, *where, **fields)
        if collection == "proxies" and change.ident is None:
            change.start()
            change.join(1)  # which waits for the export to have been read
        return found

    monkeypatch.setattr(filled.api.engine.documents, "find", find_and_change)
    assert filled.export() == before
    change.join()
    after = filled.export()
    assert (after["proxies"][0]["tags"], after["webhooks"][0]["events"]) == (["new"], ["*"])


# --- from one installation to another -----------------------------------------------------------------------------


def test_with_its_secrets_everything_works_elsewhere_as_it_did_here(filled: Importing, there: Importing) -> None:
    document = filled.export("encrypted", **SEALED)
    response = there.post(document, X_Passphrase=PASSPHRASE)
    assert response.status_code == 200, response.text
    assert response.json["data"]["summary"] == {"create": 4, "update": 2, "delete": 0, "unchanged": 0}
    assert there.export() == filled.export()
    specs = {spec.name: spec for spec in there.api.fleet.desired.values()}
    rich = specs["rich"]
    assert check_password(CLIENT, rich.auth_hash or "")
    assert all(check_password(ACCOUNT, account.password_hash or "") for account in rich.accounts)
    assert rich.upstreams.entries[0].password == UPSTREAM
    assert (rich.active, specs["plain"].active) == (True, False)
    received = [message for to, message in there.api.fleet.received if to == WEBHOOKS]
    ours = filled.api.services.webhooks.sender_config().webhooks[0]
    assert isinstance(received[-1], SetWebhooks)
    assert received[-1].webhooks[0].headers == {"Authorization": HOOK, "X-Plain": "text"}
    assert received[-1].webhooks[0].secrets == ours.secrets
    login = {"username": "someuser", "password": PERSON}
    assert there.api.post("/auth/login", login).status_code == 200


def test_the_same_import_twice_changes_nothing_the_second_time(filled: Importing, there: Importing) -> None:
    document = filled.export("encrypted", **SEALED)
    assert there.post(document, X_Passphrase=PASSPHRASE).status_code == 200
    before, seen = there.content(), len(there.api.fleet.received)
    again = there.post(document, X_Passphrase=PASSPHRASE).json["data"]
    assert (again["changed"], again["summary"]["unchanged"]) == (False, 6)
    assert all(each["action"] == "unchanged" and each["fields"] == [] for each in again["changes"])
    assert there.content() == before
    assert there.api.fleet.received[seen:] == []
    without = {name: value for name, value in document.items() if name != "secrets"}
    assert there.post(without).json["data"]["changed"] is False


def test_clear_passwords_given_again_are_no_change(here: Importing) -> None:
    document = {**HEAD, "proxies": [RICH], "users": [{"username": "x", "password": PASSWORD}], "webhooks": [HOOKED]}
    assert here.post(document).json["data"]["summary"]["create"] == 3
    assert here.post(document).json["data"]["changed"] is False


@pytest.mark.parametrize(
    ("passphrase", "field"), [("another passphrase", "secrets"), (None, "X-Passphrase"), ("short", "X-Passphrase")]
)
def test_secrets_are_not_opened_by_another_passphrase(
    filled: Importing, there: Importing, passphrase: str | None, field: str
) -> None:
    document = filled.export("encrypted", **SEALED)
    response = there.post(document, **({} if passphrase is None else {"X_Passphrase": passphrase}))
    assert (response.status_code, error_of(response)[2]["field"]) == (400, field)


def test_the_key_of_sealed_secrets_costs_what_the_document_says() -> None:
    salt, cost = b"salt" * 4, 2**14
    key = hashlib.scrypt(PASSPHRASE.encode(), salt=salt, n=cost, r=8, p=1, maxmem=2**26, dklen=32)
    assert derived_key(PASSPHRASE, salt, cost) == key


HASH = "$2b$04$" + "a" * 53
UPSTREAM_SECRET = {"protocol": "http", "host": "p.example", "port": 1, "username": "u", "password": "of an upstream"}
HOOK_SECRET = {"name": "h", "url": "https://hooks.example/", "secret": "whsec_" + "A" * 32, "headers": {"X-A": "b"}}


def sealed(secrets: dict[str, Any]) -> dict[str, Any]:
    """A document with these secrets, whatever they are."""
    return {**HEAD, "secrets": document.seal_secrets(document.Secrets.model_construct(**secrets), PASSPHRASE)}


@table(
    "secrets",
    [
        {"users": {"x": "not a hash: é"}},
        {"users": {"x": HASH.replace("04", "31")}},
        {"proxies": {"p": {"auth": "of a client"}}},
        {"proxies": {"p": {"accounts": {"a": HASH.replace("04", "31")}}}},
        {"proxies": {"p": {"upstreams": [{**UPSTREAM_SECRET, "protocol": "gopher"}]}}},
        {"proxies": {"p": {"upstreams": [{**UPSTREAM_SECRET, "port": 65536}]}}},
        {"proxies": {"p": {"upstreams": [{**UPSTREAM_SECRET, "protocol": "socks5", "password": "é" * 200}]}}},
        {"webhooks": [{**HOOK_SECRET, "secret": "not a secret"}]},
        {"webhooks": [{**HOOK_SECRET, "headers": {"X-A": "b\r\nX-Evil: c"}}]},
        {"webhooks": [{**HOOK_SECRET, "headers": {"Host": "other.example"}}]},
    ],
)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_sealed_secrets_are_held_to_the_rules_for_those_in_the_clear(here: Importing, secrets: dict[str, Any]) -> None:
    response = here.post(sealed(secrets), X_Passphrase=PASSPHRASE)
    assert (response.status_code, error_of(response)[2]["field"]) == (400, "secrets.data")


def test_sealed_secrets_that_keep_the_rules_are_taken(here: Importing) -> None:
    good = {
        "users": {"x": HASH},
        "proxies": {"p": {"auth": HASH, "accounts": {"a": HASH}, "upstreams": [UPSTREAM_SECRET]}},
        "webhooks": [HOOK_SECRET],
    }
    assert here.post(sealed(good), X_Passphrase=PASSPHRASE).status_code == 200


def test_without_secrets_what_is_new_says_which_it_needs(filled: Importing, there: Importing) -> None:
    before = there.content()
    status, _, details = error_of(there.post(filled.export()))
    assert status == 400
    assert {each["field"] for each in details["errors"]} == {
        "proxies[1].auth.password",
        "users[1].password",
        "webhooks[0].headers.Authorization",
        "webhooks[0].headers.X-Plain",
    }
    assert there.content() == before


def test_an_upstream_without_its_password_is_not_created(here: Importing) -> None:
    upstream = {"protocol": "http", "host": "p.example", "port": 1, "auth": {"username": "u", "password": None}}
    entry = {"name": "a", "port": 1, "protocol": "http", "upstreams": [upstream]}
    details = error_of(here.post({**HEAD, "proxies": [entry]}))[2]
    assert details["field"] == "proxies[0].upstreams[0].auth.password"
    del upstream["auth"]["password"]  # type: ignore[attr-defined]  # so it never had one
    here.apply(proxies=[entry])


def test_a_passphrase_is_utf_8_in_whatever_alphabet(filled: Importing, there: Importing) -> None:
    sent = "ein schönes Geheimnis 秘密".encode().decode("latin-1")
    document = filled.export("encrypted", **{"X-Passphrase": sent})
    assert there.post(document, X_Passphrase=sent).status_code == 200


# --- the difference -----------------------------------------------------------------------------------------------


def test_a_dry_run_returns_every_field_and_changes_nothing(filled: Importing) -> None:
    before, seen = filled.content(), len(filled.api.fleet.received)
    response = filled.apply(
        "dry_run=true&prune=true",
        proxies=[
            {
                **RICH,
                "port": 3129,
                "auth": {"password": "another one"},
                "accounts": [{"username": "bob", "enabled": False}, {"username": "new", "password": "of the new"}],
                "upstreams": RICH["upstreams"][::-1],  # type: ignore[index]
            },
            {"name": "new", "port": 1, "protocol": "http"},
        ],
        settings={"logging": {"level": "error"}},
    )
    assert (response["dry_run"], response["changed"]) == (True, True)
    assert response["summary"] == {"create": 1, "update": 2, "delete": 1, "unchanged": 0}
    rich = fields(response, "proxy", "rich")
    assert rich["port"] == (3128, 3129)
    assert rich["auth.password"] == ("***", "***")
    assert rich["accounts[bob].enabled"] == (True, False)
    assert rich["accounts[alice]"][1] is None
    assert rich["accounts[new]"][1]["password"] == "***"
    (moved,) = (field for field in rich if field.endswith(".place"))
    assert (moved.partition("[")[0], rich[moved]) == ("upstreams", (2, 1))
    assert rich["accounts[bob].expires_at"] == ("2096-01-01T00:00:00.000Z", None)  # an entry of a list is all of it
    accounts = {"accounts[new]", "accounts[alice]", "accounts[bob].enabled", "accounts[bob].expires_at"}
    assert rich.keys() == {"port", "auth.password", moved, *accounts}
    assert of(response, "proxy", "new")["id"] is None
    assert fields(response, "proxy", "new")["port"] == (None, 1)
    assert of(response, "proxy", "plain")["action"] == "delete"
    assert fields(response, "settings", "settings") == {"logging.level": ("warning", "error")}
    assert filled.content() == before
    assert not [each for _, each in filled.api.fleet.received[seen:] if isinstance(each, ReplaceProxies)]
    assert filled.api.fleet.reserved == {}
    assert filled.api.fleet.events == []


def test_what_is_left_out_stays_and_nothing_is_deleted_without_prune(filled: Importing) -> None:
    before = filled.export()
    response = filled.apply(proxies=[{"name": "plain", "tags": ["tagged"]}], users=[], webhooks=[])
    assert [each["name"] for each in response["changes"]] == ["plain"]
    assert fields(response, "proxy", "plain") == {"tags": ([], ["tagged"])}
    after = filled.export()
    assert after["proxies"][0].pop("tags") == ["tagged"]
    before["proxies"][0].pop("tags")
    assert after == before


def test_prune_deletes_what_a_section_leaves_out_and_touches_no_section_that_is_not_there(filled: Importing) -> None:
    response = filled.apply("prune=true", proxies=[{"name": "rich"}])
    assert response["summary"] == {"create": 0, "update": 0, "delete": 1, "unchanged": 1}
    after = filled.export()
    assert [each["name"] for each in after["proxies"]] == ["rich"]
    assert (len(after["users"]), len(after["webhooks"])) == (2, 1)
    filled.apply("prune=true", users=[{"username": "admin"}], webhooks=[])
    after = filled.export()
    assert (len(after["users"]), len(after["webhooks"])) == (1, 0)
    assert filled.api.post("/auth/login", {"username": "someuser", "password": PERSON}).status_code == 401


# --- all or nothing -----------------------------------------------------------------------------------------------


def test_every_error_is_reported_with_its_field_and_nothing_is_done(filled: Importing) -> None:
    before = filled.content()
    wrong = {
        **HEAD,
        "proxies": [
            {"name": "good", "port": 5, "protocol": "http"},
            {"name": "a", "port": 70000, "protocol": "gopher", "colour": "red"},
            {"name": "b", "auth": {"password": ""}},
        ],
        "users": [{"username": "u", "role": "king"}],
        "settings": {"logging": {"level": "loud"}},
    }
    details = error_of(filled.post(wrong))[2]
    assert {each["field"] for each in details["errors"]} == {
        "proxies[1].port",
        "proxies[1].protocol",
        "proxies[1].colour",
        "proxies[2].auth.password",
        "users[0].role",
        "settings.logging.level",
    }
    wrong = {
        **HEAD,
        "proxies": [
            {"name": "a", "port": 5},
            {"name": "b", "port": 6, "protocol": "socks4", "auth": {"password": "of socks4"}},
            {"name": "rich", "status": "active"},
            {"name": "rich", "status": "inactive"},
            {"name": "c", "port": 7, "protocol": "https"},
        ],
        "users": [{"username": "Someuser"}, {"username": "unknown"}],
        "webhooks": [{"name": "w", "url": "https://w.example"}, {"name": "w", "url": "https://w.example"}],
        "settings": {"auth": {"enabled": False}},
    }
    details = error_of(filled.post(wrong))[2]
    assert {each["field"] for each in details["errors"]} == {
        "settings.auth.enabled",
        "proxies[0].protocol",
        "proxies[1].auth.password",
        "proxies[3].name",
        "proxies[4].tls",
        "users[0].username",
        "users[1].password",
        "webhooks[1]",
        "webhooks[0].events",
        "webhooks[1].events",
    }
    assert filled.content() == before


@table("wrong", [{"kind": "other"}, {"version": 2}, {"proxies": None}, {"users": {}}, {"more": 1}])
def test_a_document_of_another_kind_is_refused_by_its_field(here: Importing, wrong: dict[str, Any]) -> None:
    status, _, details = error_of(here.post({**HEAD, **wrong}))
    assert (status, details["field"]) == (400, next(iter(wrong)))


def test_an_address_that_can_not_be_had_leaves_everything_as_it_was(filled: Importing) -> None:
    before = filled.content()
    filled.api.fleet.taken = {4000, 4001}
    document = {
        **HEAD,
        "proxies": [
            {"name": "good", "port": 3999, "protocol": "http"},
            {"name": "bad", "port": 4000, "protocol": "http"},
            {"name": "rich", "port": 4001},
            {"name": "plain", "port": 4001},
        ],
        "users": [{"username": "new", "password": PASSWORD}],
    }
    details = error_of(filled.post(document))[2]
    assert [each["field"] for each in details["errors"]] == ["proxies[1].port", "proxies[2].port"]
    assert filled.content() == before
    assert filled.api.fleet.reserved == {}
    assert isinstance(filled.api.fleet.received[-1][1], CancelListeners)
    details = error_of(filled.post({**HEAD, "settings": {"server": {"port": 4000}}, "users": document["users"]}))[2]
    assert details["field"] == "settings.server.port"
    assert filled.content() == before


def test_a_store_that_fails_leaves_everything_as_it_was(filled: Importing, monkeypatch: pytest.MonkeyPatch) -> None:
    before = filled.content()

    commit = filled.api.engine.documents.take

    def full(writes: Any) -> Any:
        if any(each.collection == "proxies" for each in writes):
            raise StoreWriteError("no space left")
        return commit(writes)

    with monkeypatch.context() as patched:
        patched.setattr(filled.api.engine.documents, "take", full)
        assert filled.post({**HEAD, "proxies": [{"name": "new", "port": 9, "protocol": "http"}]}).status_code == 500
    assert filled.content() == before
    assert filled.api.fleet.reserved == {}
    rows = filled.api.get("/audit", filled.headers, query_string="limit=2").json["data"]["audit"]
    assert [(row["action"], row["outcome"]) for row in rows] == [
        ("proxy.created", "failed"),
        ("settings.updated", "done"),
    ]


def test_without_a_supervisor_nothing_is_stored(filled: Importing) -> None:
    before = filled.content()
    filled.api.fleet.gone.add(SUPERVISOR)
    assert filled.post({**HEAD, "proxies": [{"name": "new", "port": 9, "protocol": "http"}]}).status_code == 500
    assert filled.content() == before


def test_a_stale_etag_is_refused_and_a_fresh_one_is_not(filled: Importing) -> None:
    etag = filled.api.get("/config/export", filled.headers).headers["etag"]
    filled.apply(proxies=[{"name": "plain", "tags": ["x"]}])
    document = {**HEAD, "proxies": [{"name": "plain", "tags": ["y"]}]}
    assert filled.post(document, If_Match=etag).status_code == 412
    fresh = filled.api.get("/config/export", filled.headers).headers["etag"]
    done = filled.post(document, If_Match=fresh)
    assert done.status_code == 200
    assert done.headers["etag"] == filled.api.get("/config/export", filled.headers).headers["etag"]


# --- what follows -------------------------------------------------------------------------------------------------


def test_a_renamed_proxy_and_two_that_change_places_keep_their_addresses(filled: Importing) -> None:
    filled.apply(proxies=[{"name": "plain", "status": "active"}])
    entry = {name: value for name, value in RICH.items() if name not in ("name", "port")}
    response = filled.apply(
        "prune=true",
        proxies=[{**entry, "name": "renamed", "port": 1080}, {"name": "plain", "port": 3128}],
    )
    assert response["summary"] == {"create": 1, "update": 1, "delete": 1, "unchanged": 0}
    names = {each.id: each.name for each in filled.api.fleet.desired.values()}
    assert {address[1]: names[holder] for address, holder in filled.api.fleet.bound.items()} == {
        1080: "renamed",
        3128: "plain",
    }


def test_each_change_has_its_row_and_its_event(filled: Importing) -> None:
    filled.apply(
        "prune=true",
        proxies=[{"name": "plain", "status": "active"}, {"name": "new", "port": 9, "protocol": "http"}],
        users=[{"username": "admin", "email": "admin@example.com"}, {"username": "x", "password": PASSWORD}],
        settings={"logging": {"level": "error"}},
    )
    published = sorted(event.type for event in filled.api.fleet.events)
    expected = ["proxy.created", "proxy.deleted", "proxy.started", "settings.updated"]
    expected += ["user.created", "user.deleted", "user.updated"]
    assert published == expected
    rows = filled.api.get("/audit", filled.headers, query_string="limit=7").json["data"]["audit"]
    assert sorted(row["action"] for row in rows) == expected
    assert {row["operation"] for row in rows} == {"importConfig"}
    assert len({row["request_id"] for row in rows}) == 1


def test_a_dry_run_and_an_import_without_changes_leave_no_row(filled: Importing) -> None:
    head = filled.api.get("/audit", filled.headers).json["data"]["head"]
    filled.apply("dry_run=true", proxies=[{"name": "new", "port": 9, "protocol": "http"}])
    filled.apply(proxies=[{"name": "plain"}])
    assert filled.api.get("/audit", filled.headers).json["data"]["head"] == head


def test_settings_are_in_force_with_the_import(filled: Importing) -> None:
    filled.apply(settings={"proxy": {"default_timeout": 99}}, proxies=[{"name": "n", "port": 9, "protocol": "http"}])
    assert filled.api.get("/settings", filled.headers).json["data"]["proxy"]["default_timeout"] == 99
    assert next(each for each in filled.export()["proxies"] if each["name"] == "n")["settings"]["timeout"] == 99


def test_a_new_proxy_without_them_gets_what_the_settings_say_new_ones_have(api: Api) -> None:
    plain = api.services.settings
    api.services.apply(replace(plain, proxy=plain.proxy.model_copy(update={"workers": 3, "sleep_after": 600})))
    one = Importing(api)
    own = {"sleep_after": 0, "workers": 1}
    one.apply(
        proxies=[{"name": "n", "port": 9, "protocol": "http"}, {"name": "o", "port": 8, "protocol": "http", **own}]
    )
    found = {each["name"]: (each["sleep_after"], each["workers"]) for each in one.export()["proxies"]}
    assert found == {"n": (600, 3), "o": (0, 1)}
    kept = {each["name"]: (each["sleep_after"], each["workers"]) for each in minimal(one.export())["proxies"]}
    assert kept == found, "another installation may have other settings"
    one.apply(settings={"proxy": {"sleep_after": 60}}, proxies=[{"name": "m", "port": 7, "protocol": "http"}])
    assert {each["name"]: each["sleep_after"] for each in one.export()["proxies"]} == {"n": 600, "o": 0, "m": 60}


def test_a_new_webhook_without_a_secret_gets_one_that_is_returned_once(here: Importing) -> None:
    entry = {"name": "w", "url": "https://w.example", "events": ["*"]}
    assert "secret" not in of(here.apply("dry_run=true", webhooks=[entry]), "webhook", "w")
    secret = of(here.apply(webhooks=[entry]), "webhook", "w")["secret"]
    assert here.api.services.webhooks.sender_config().webhooks[0].secrets == (secret,)
    assert here.apply(webhooks=[{**entry, "secret": secret}])["changed"] is False


def test_another_secret_is_signed_with_beside_the_older_one_for_a_while(filled: Importing) -> None:
    older = filled.api.services.webhooks.sender_config().webhooks[0].secrets
    newer = "whsec_" + "A" * 43 + "="
    response = filled.apply(webhooks=[{"name": "hook", "url": HOOKED["url"], "secret": newer}])
    assert fields(response, "webhook", "hook") == {"secret": ("***", "***")}
    assert filled.api.services.webhooks.sender_config().webhooks[0].secrets == (newer, *older)


def test_webhooks_of_one_name_are_distinguished_by_their_urls(filled: Importing) -> None:
    twin = {"name": "hook", "url": "https://twin.example", "events": ["*"]}
    same = {"name": "hook", "url": HOOKED["url"]}
    response = filled.apply(webhooks=[twin, same])
    assert [each["action"] for each in response["changes"]] == ["create", "unchanged"]
    response = filled.apply("prune=true", webhooks=[same])
    assert [each["action"] for each in response["changes"]] == ["unchanged", "delete"]
    moved = {"name": "hook", "url": "https://moved.example", "headers": {"Authorization": "", "X-New": "y"}}
    response = filled.apply(webhooks=[moved])
    assert fields(response, "webhook", "hook") == {
        "url": (HOOKED["url"], "https://moved.example"),
        "headers.X-Plain": ("***", None),
        "headers.X-New": (None, "***"),
    }


# --- who may ------------------------------------------------------------------------------------------------------


@table(
    ("entry", "field"),
    [
        ({"username": "admin", "status": "disabled"}, "users[0].status"),
        ({"username": "admin", "role": "user"}, "users[0].role"),
        ({"username": "admin", "permissions": ["proxy.read"]}, "users[0].permissions"),
        ({"username": "other", "password": PASSWORD}, "users"),
    ],
)
def test_a_caller_cannot_take_administration_from_themself(here: Importing, entry: dict[str, Any], field: str) -> None:
    before = here.content()
    details = error_of(here.post({**HEAD, "users": [entry]}, "prune=true"))[2]
    assert details["field"] == field
    assert here.content() == before


def test_a_changed_password_and_a_disabled_account_end_all_sign_ins(filled: Importing) -> None:
    filled.api.add_user("other")
    tokens = {name: filled.api.token(name) for name in ("someuser", "other", "admin")}
    filled.apply(
        users=[{"username": "someuser", "password": "another one"}, {"username": "other", "status": "disabled"}]
    )
    responses = {name: filled.api.get("/auth/test", headers).status_code for name, headers in tokens.items()}
    assert responses == {"someuser": 401, "other": 401, "admin": 200}


def test_keys_of_a_pruned_user_go_with_them(filled: Importing) -> None:
    filled.api.key("someuser", permissions=["proxy.read"])
    filled.apply("prune=true", users=[{"username": "admin"}])
    assert filled.api.store.find("api_keys") == []
    assert len(filled.api.fleet.published("api_key.revoked")) == 1


def test_no_file_and_no_response_holds_what_was_imported_in_the_clear(here: Importing) -> None:
    document = {"proxies": [RICH], "users": [{"username": "x", "password": PERSON}], "webhooks": [HOOKED]}
    responses = [here.apply("dry_run=true", document), here.apply("", document), here.export()]
    responses.append(here.api.get("/audit", here.headers).json["data"])
    text = json.dumps(responses)
    files = [file.read_bytes() for file in here.api.data.path.rglob("*") if file.is_file()]
    for secret in SECRETS:
        assert secret not in text
        assert all(secret.encode() not in content for content in files)


def test_an_address_that_a_user_claimed_stays_a_claim_elsewhere(here: Importing, there: Importing) -> None:
    user = users.by_name(here.api.store, "admin")
    assert user is not None
    claimed = user.model_copy(update={"email": "a@example.com", "email_claimed": True})
    here.api.store.put("users", claimed.model_dump(mode="json"))
    document = here.export("encrypted", **SEALED)
    assert document["users"][0]["email_claimed"] is True
    assert there.post(document, X_Passphrase=PASSPHRASE).status_code == 200
    found = users.by_name(there.api.store, "admin")
    assert found is not None
    assert found.email_claimed
    there.headers = there.api.token()
    there.apply(users=[{"username": "admin", "email": "b@example.com"}])
    found = users.by_name(there.api.store, "admin")
    assert found is not None
    assert not found.email_claimed


@pytest.mark.parametrize(
    ("there_it_has", "field", "here_it_has"),
    [
        ({"email_claimed": True}, "email_claimed", False),
        ({"oauth": {"provider": "custom", "issuer": "https://id.example", "subject": "7"}}, "oauth", None),
    ],
)
def test_an_export_takes_away_what_only_the_other_installation_knows_of_a_user(
    here: Importing, there: Importing, there_it_has: dict[str, Any], field: str, here_it_has: Any
) -> None:
    for each, more in ((here, {}), (there, there_it_has)):
        each.apply(users=[{"username": "x", "password": PERSON, "email": "x@example.com", **more}])
    assert there.post(here.export("encrypted", **SEALED), X_Passphrase=PASSPHRASE).status_code == 200
    found = users.by_name(there.api.store, "x")
    assert found is not None
    assert getattr(found, field) == here_it_has


def test_the_first_account_turns_auth_on_also_when_it_is_known_by_a_sealed_password(
    filled: Importing, there: Importing
) -> None:
    document = filled.export("encrypted", **SEALED)
    del document["proxies"][1]["auth"]
    assert there.post(document, X_Passphrase=PASSPHRASE).status_code == 200
    assert next(each for each in there.api.fleet.desired.values() if each.name == "rich").auth_required


def test_too_many_clear_passwords_are_refused_before_any_is_hashed(here: Importing) -> None:
    many = [{"username": f"u{number}", "password": PASSWORD} for number in range(101)]
    details = error_of(here.post({**HEAD, "users": many}))[2]
    assert "at most 100 passwords" in details["error"]
