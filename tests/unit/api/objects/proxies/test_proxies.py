"""Proxies, as a client of the API sees them."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path
from typing import Any

import pytest
from falcon.testing import Result

from actors.bus.messages.common import SUPERVISOR
from actors.bus.messages.specs import ClientTlsSpec
from actors.bus.messages.supervision import ApplyProxies, AwaitProxy, ReserveListener, RestartProxy
from api.history.document_changes import DocumentChange
from api.objects.proxies import supervisor_link
from api.objects.proxies.proxy_specs import spec_of
from tests.kit.api_stage import PROXY, Api, error_of, revision_of
from tests.kit.certificates import make_pair
from tests.kit.client_certificates import Authority
from tests.kit.standin_actors import stats_of
from tests.kit.tables import table
from tests.kit.wait import wait_until
from tests.unit.api.creating import create


def test_create_binds_then_stores_then_notifies_the_supervisor(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    kinds = [type(message) for _, message in api.fleet.received]
    assert kinds == [ReserveListener, ApplyProxies, AwaitProxy]
    assert api.store.get("proxies", proxy["id"]) is not None
    assert api.fleet.desired[proxy["id"]].active
    assert [each["proxy_id"] for each in api.fleet.published("proxy.created")] == [proxy["id"]]


def test_create_fills_in_the_defaults(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    assert proxy["host"] == "127.0.0.1"
    assert proxy["status"] == "active"
    assert proxy["settings"] == {"timeout": 30, "keep_alive": True, "max_connections": 1000}
    assert proxy["auth"] == {"enabled": False, "username": None}
    assert proxy["tags"] == []


def test_a_description_is_kept_changed_and_emptied(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers, description="For the crawler; ask the data team.")
    assert proxy["description"] == "For the crawler; ask the data team."
    path = f"/proxies/{proxy['id']}"
    for given in ("Of a previous owner", ""):
        assert api.patch(path, {"description": given}, headers).json["data"]["proxy"]["description"] == given
    for wrong in ("x" * 501, "two\nlines", " ", 7):
        refused = api.patch(path, {"description": wrong}, headers)
        assert refused.status_code == 400
        assert error_of(refused)[2]["field"] == "description"


def test_detail_shows_runtime_stats_and_etag(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    api.fleet.stats[proxy["id"]] = stats_of(
        requests=3,
        errors=1,
        active_connections=2,
        connections=3,
        bytes_in=1024,
        bytes_out=2048,
        response_seconds=0.5,
        last_request=1_700_000_000.0,
    )
    response = api.get(f"/proxies/{proxy['id']}", headers)
    detail = response.json["data"]["proxy"]
    assert detail["runtime"]["state"] == "running"
    assert detail["runtime"]["pid"] == 4711
    assert detail["stats"]["total_requests"] == 3
    assert detail["stats"]["bytes_transferred"] == "3.00 KB"
    assert detail["stats"]["uptime"] == "0m"
    assert detail["stats"]["last_request"] == "2023-11-14T22:13:20.000Z"
    stored = api.store.get("proxies", proxy["id"])
    assert stored is not None
    assert revision_of(response) == stored.revision


def test_without_collector_or_supervisor_configurations_are_still_returned(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    api.fleet.gone = {"metrics", "supervisor"}
    detail = api.get(f"/proxies/{proxy['id']}", headers).json["data"]["proxy"]
    assert detail["runtime"] is None
    assert detail["stats"]["total_requests"] == 0


BAD_BODIES = [
    ({"name": None}, "name"),
    ({"name": ""}, "name"),
    ({"name": "a\nb"}, "name"),
    ({"name": 7}, "name"),
    ({"name": "x" * 101}, "name"),
    ({"port": 0}, "port"),
    ({"port": 65536}, "port"),
    ({"port": "80"}, "port"),
    ({"port": 80.5}, "port"),
    ({"port": "0-80"}, "port"),
    ({"port": "65000-65536"}, "port"),
    ({"port": "20001-20000"}, "port"),
    ({"port": "20000-24096"}, "port"),
    ({"port": "20000-"}, "port"),
    ({"port": ["20000-20001"]}, "port"),
    ({"port": True}, "port"),
    ({"protocol": "ftp"}, "protocol"),
    ({"protocol": "quic"}, "protocol"),
    ({"protocol": "https"}, "tls"),
    ({"host": "not a host"}, "host"),
    ({"host": "127.1"}, "host"),
    ({"host": "fe80::1%lo"}, "host"),
    ({"tags": "one"}, "tags"),
    ({"tags": [1]}, "tags[0]"),
    ({"settings": {"timeout": 0}}, "settings.timeout"),
    ({"settings": {"timeout": 3601}}, "settings.timeout"),
    ({"settings": {"timeout": True}}, "settings.timeout"),
    ({"settings": {"keep_alive": 1}}, "settings.keep_alive"),
    ({"settings": {"max_connections": 0}}, "settings.max_connections"),
    ({"settings": {"speed": 1}}, "settings.speed"),
    ({"settings": []}, "settings"),
    ({"auth": {"enabled": True, "username": "u"}}, "auth.password"),
    ({"auth": {"enabled": True, "username": "a:b", "password": "p"}}, "auth.username"),
    ({"auth": {"password": None}}, "auth.password"),
    ({"auth": {"enabled": "yes"}}, "auth.enabled"),
    ({"status": "active"}, "status"),
    ({"id": "x"}, "id"),
    ({"upstreams": {}}, "upstreams"),
]


@table(("fields", "field"), BAD_BODIES, ids=[f"{name}-{body}" for body, name in BAD_BODIES])
def test_create_with_a_bad_field_is_400_naming_it(
    api: Api, headers: dict[str, str], fields: dict[str, Any], field: str
) -> None:
    status, code, details = error_of(api.post("/proxies", {**PROXY, **fields}, headers))
    assert (status, code, details["field"]) == (400, "INVALID_REQUEST", field)
    assert details["error"]
    assert api.store.find("proxies") == []


@pytest.mark.parametrize("missing", ["name", "port", "protocol"])
def test_create_without_a_required_field_is_400(api: Api, headers: dict[str, str], missing: str) -> None:
    body = {name: value for name, value in PROXY.items() if name != missing}
    assert error_of(api.post("/proxies", body, headers))[2] == {"field": missing, "error": "is required"}


def test_several_bad_fields_are_all_named(api: Api, headers: dict[str, str]) -> None:
    details = error_of(api.post("/proxies", {"port": 0, "protocol": "http", "x": 1}, headers))[2]
    assert {each["field"] for each in details["errors"]} == {"name", "port", "x"}


def test_a_refused_address_is_400_and_nothing_is_stored(api: Api, headers: dict[str, str]) -> None:
    create(api, headers)
    status, code, details = error_of(api.post("/proxies", {**PROXY, "name": "second"}, headers))
    assert (status, code, details["field"]) == (400, "INVALID_REQUEST", "port")
    assert len(api.store.find("proxies")) == 1


def test_a_taken_name_is_400_at_create_and_at_update(api: Api, headers: dict[str, str]) -> None:
    create(api, headers)
    other = create(api, headers, name="second", port=3129)
    assert error_of(api.post("/proxies", {**PROXY, "port": 3130}, headers))[2]["field"] == "name"
    assert error_of(api.patch(f"/proxies/{other['id']}", {"name": "first"}, headers))[2]["field"] == "name"
    assert api.patch(f"/proxies/{other['id']}", {"name": "second"}, headers).status_code == 200


def test_of_many_creates_at_once_with_one_name_one_succeeds(api: Api, headers: dict[str, str]) -> None:
    def one(number: int) -> int:
        return api.post("/proxies", {**PROXY, "port": 4000 + number}, headers).status_code

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(one, range(16)))
    assert statuses == [201] + [400] * 15
    assert len(api.store.find("proxies")) == 1


def test_a_supervisor_that_does_not_reply_is_logged(
    api: Api, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    api.fleet.gone.add(SUPERVISOR)
    body = {"name": "office", "port": 3128, "protocol": "http"}
    assert api.post("/proxies", body, headers).status_code == 500
    assert "supervisor cannot be reached: it is not on the bus" in caplog.text
    assert "Unreachable(" not in caplog.text


def test_without_a_supervisor_nothing_is_stored(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    api.fleet.gone = {"supervisor"}
    before = api.store.revision
    path = f"/proxies/{proxy['id']}"
    responses = [
        api.post("/proxies", {**PROXY, "name": "second", "port": 3129}, headers),
        api.patch(path, {"name": "renamed"}, headers),
        api.post(f"{path}/stop", None, headers),
        api.post(f"{path}/start", None, headers),
        api.post(f"{path}/restart", None, headers),
        api.request("DELETE", path, headers),
    ]
    assert [response.status_code for response in responses] == [500] * 6
    assert {response.json["error"]["code"] for response in responses} == {"INTERNAL_ERROR"}
    assert api.store.revision == before


def test_a_create_without_a_reply_of_the_supervisor_can_be_repeated(
    api: Api, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_link, "RETRY_INTERVAL", 0.01)
    keyed = {**headers, "Idempotency-Key": "one"}
    with api.fleet.silent_after(0):  # it binds the socket, but its reply is never received
        assert api.post("/proxies", PROXY, keyed).status_code == 500
    assert api.store.find("proxies") == []
    with api.fleet.silent_after(1):
        made = api.post("/proxies", PROXY, keyed)
    again = api.post("/proxies", PROXY, keyed)
    assert [each.status_code for each in (made, again)] == [201, 201]
    proxy_id = made.json["data"]["proxy"]["id"]
    assert again.json["data"]["proxy"]["id"] == proxy_id
    wait_until(lambda: proxy_id in api.fleet.desired, "the supervisor knows the proxy")


def test_of_all_proxies_only_those_are_sent_that_the_supervisor_does_not_have(
    api: Api, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_link, "PROXIES_MOST", 1)
    kept, changed = (create(api, headers, name=name, port=port)["id"] for name, port in (("kept", 3129), ("new", 3130)))
    known = {kept: api.fleet.desired[kept].revision, changed: api.fleet.desired[changed].revision - 1, "prx_gone": 1}
    sent = api.services.link.desired_state(known)
    assert (sent.unchanged, [each.id for each in sent.specs]) == ((kept,), [changed])
    assert {each.id for each in api.services.link.desired_state().specs} == {kept, changed}
    api.services.link.apply([DocumentChange("proxies", each, None, None) for each in (kept, changed)])
    assert (api.fleet.received[-1][1].unchanged, api.fleet.received[-1][1].specs) == ((kept, changed), ())


@pytest.mark.parametrize("operation", ["start", "stop", "restart", "delete"])
def test_a_change_that_is_stored_succeeds_and_a_silent_supervisor_is_notified_later(
    api: Api, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setattr(supervisor_link, "RETRY_INTERVAL", 0.01)
    path = f"/proxies/{create(api, headers)['id']}"
    if operation in ("start", "restart"):
        api.post(f"{path}/stop", None, headers)
    with api.fleet.silent_after(1):
        call = ("DELETE", path) if operation == "delete" else ("POST", f"{path}/{operation}")
        assert api.request(*call, headers).status_code == 200
    active = operation in ("start", "restart")
    wait_until(lambda: [spec.active for spec in api.fleet.desired.values()] in ([active], []), "the supervisor knows")
    assert api.fleet.bound == ({("127.0.0.1", PROXY["port"]): path.rpartition("/")[2]} if active else {})


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_update_is_partial_and_keeps_the_rest(api: Api, headers: dict[str, str], method: str) -> None:
    proxy = create(api, headers, tags=["a"], settings={"timeout": 5})
    body = {"name": "renamed", "settings": {"max_connections": 7}}
    response = api.request(method, f"/proxies/{proxy['id']}", headers, json=body)
    detail = response.json["data"]["proxy"]
    assert detail["name"] == "renamed"
    assert detail["settings"] == {"timeout": 5, "keep_alive": True, "max_connections": 7}
    assert detail["tags"] == ["a"]
    spec = api.fleet.desired[proxy["id"]]
    assert (spec.name, spec.max_connections) == ("renamed", 7)
    assert response.headers["ETag"] == f'"{spec.revision}"'
    assert len(api.fleet.published("proxy.updated")) == 1


def test_auth_merges_and_a_password_not_given_stays(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers, auth={"enabled": True, "username": "u", "password": "p" * 100})
    first = api.fleet.desired[proxy["id"]]
    api.patch(f"/proxies/{proxy['id']}", {"auth": {"username": "v"}}, headers)
    second = api.fleet.desired[proxy["id"]]
    assert (second.auth_username, second.auth_hash) == ("v", first.auth_hash)
    api.patch(f"/proxies/{proxy['id']}", {"auth": {"enabled": False}}, headers)
    assert api.fleet.desired[proxy["id"]].auth_username is None
    api.patch(f"/proxies/{proxy['id']}", {"auth": {"enabled": True}}, headers)
    assert api.fleet.desired[proxy["id"]].auth_hash == first.auth_hash


def test_no_response_and_no_file_holds_a_proxy_password(api: Api, headers: dict[str, str]) -> None:
    secret = "pass-phrase-of-a-proxy"
    proxy = create(api, headers, auth={"enabled": True, "username": "u", "password": secret})
    responses = [api.get("/proxies", headers), api.get(f"/proxies/{proxy['id']}", headers)]
    assert all(secret not in response.text and "hash" not in response.text for response in responses)
    assert all(secret.encode() not in file.read_bytes() for file in api.data.path.glob("fleet.sqlite*"))


def test_an_active_proxy_moves_and_stays_where_it_is_if_the_new_address_is_refused(
    api: Api, headers: dict[str, str]
) -> None:
    proxy = create(api, headers)
    path = f"/proxies/{proxy['id']}"
    for change in ({"port": 3129}, {"protocol": "socks5"}, {"port": "3130-3132", "host": "127.0.0.2"}):
        assert api.patch(path, change, headers).status_code == 200
    bound = {("127.0.0.2", port): proxy["id"] for port in (3130, 3131, 3132)}
    assert (api.fleet.bound, api.fleet.desired[proxy["id"]].protocol) == (bound, "socks5")
    api.fleet.taken.add(4000)
    assert error_of(api.patch(path, {"port": 4000}, headers))[2] == {"field": "port", "error": "port 4000 is in use"}
    assert (api.fleet.bound, api.fleet.reserved) == (bound, {})
    assert api.get(path, headers).json["data"]["proxy"]["port"] == "3130-3132"


def test_an_inactive_proxy_takes_an_address_when_it_starts(api: Api, headers: dict[str, str]) -> None:
    path = f"/proxies/{create(api, headers)['id']}"
    api.post(f"{path}/stop", None, headers)
    api.fleet.taken.add(3129)
    assert api.patch(path, {"port": 3129}, headers).status_code == 200
    assert error_of(api.post(f"{path}/start", None, headers))[2]["field"] == "port"


def test_a_proxy_that_moves_into_its_own_upstream_is_refused(api: Api, headers: dict[str, str]) -> None:
    upstream = {"protocol": "http", "host": "127.0.0.1", "port": 3200}
    proxy = create(api, headers, upstreams=[upstream])
    refused = error_of(api.patch(f"/proxies/{proxy['id']}", {"port": 3200}, headers))
    assert (refused[0], refused[2]["field"]) == (400, "upstreams[0].port")
    assert api.fleet.bound == {("127.0.0.1", 3128): proxy["id"]}


def test_a_port_in_use_names_the_proxy_that_has_it_to_who_may_see_that(api: Api, headers: dict[str, str]) -> None:
    create(api, headers, name="wide", port="21300-21349")
    other = create(api, headers)
    named = "port 21340 is in use by the proxy 'wide' (21300-21349)"
    body = {"name": "new", "port": 21340, "protocol": "http"}
    document = {"kind": "proxyfleet.config", "version": 1, "proxies": [body]}
    path = f"/proxies/{other['id']}"
    everyone = (
        api.post("/proxies", body, headers),
        api.patch(path, {"port": 21340}, headers),
        api.post("/config/import", document, headers),
    )
    assert [error_of(each)[2]["error"] for each in everyone] == [named] * 3
    key = api.key(permissions=["proxy.write", "proxy.read"], scope={"proxies": [other["id"]]})
    assert error_of(api.patch(path, {"port": 21340}, key))[2]["error"] == "port 21340 is in use"


def test_stop_start_and_restart_are_idempotent(api: Api, headers: dict[str, str]) -> None:
    path = f"/proxies/{create(api, headers)['id']}"

    def act(action: str) -> tuple[bool, str]:
        data = api.post(f"{path}/{action}", None, headers).json["data"]
        assert data["message"]
        return data["changed"], data["proxy"]["status"]

    assert [act("stop"), act("stop")] == [(True, "inactive"), (False, "inactive")]
    assert [act("start"), act("start")] == [(True, "active"), (False, "active")]
    assert act("restart") == (True, "active")
    assert act("stop") == (True, "inactive")
    assert act("restart") == (True, "active")
    kinds = [event.type for event in api.fleet.events]
    assert kinds[1:] == ["proxy.stopped", "proxy.started", "proxy.restarted", "proxy.stopped", "proxy.restarted"]
    assert sum(isinstance(message, RestartProxy) for _, message in api.fleet.received) == 1


def test_start_with_the_port_taken_meanwhile_is_400_and_the_status_stays(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    api.post(f"/proxies/{proxy['id']}/stop", None, headers)
    create(api, headers, name="thief")
    response = error_of(api.post(f"/proxies/{proxy['id']}/start", None, headers))
    assert (response[0], response[2]["field"]) == (400, "port")
    assert api.get(f"/proxies/{proxy['id']}", headers).json["data"]["proxy"]["status"] == "inactive"


def test_delete_removes_record_and_process(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    path = f"/proxies/{proxy['id']}"
    assert api.request("DELETE", path, headers).json["data"] == {"id": proxy["id"], "deleted": True}
    assert any(isinstance(message, ApplyProxies) and message.gone for _, message in api.fleet.received)
    assert api.get(path, headers).status_code == 404
    assert api.request("DELETE", path, headers).status_code == 404


def test_if_match_refuses_a_stale_change(api: Api, headers: dict[str, str]) -> None:
    path = f"/proxies/{create(api, headers)['id']}"
    tag = api.get(path, headers).headers["ETag"]
    assert api.request("PATCH", path, {**headers, "If-Match": tag}, json={"name": "a"}).status_code == 200
    assert api.request("PATCH", path, {**headers, "If-Match": tag}, json={"name": "b"}).status_code == 412
    assert api.request("DELETE", path, {**headers, "If-Match": '"no"'}).status_code == 412
    assert api.request("DELETE", path, {**headers, "If-Match": "*"}).status_code == 200


def test_list_is_paged_and_filtered(api: Api, headers: dict[str, str]) -> None:
    made = [create(api, headers, name=f"p{number}", port=4000 + number) for number in range(5)]
    api.post(f"/proxies/{made[0]['id']}/stop", None, headers)
    page = api.get("/proxies?page=2&per_page=2", headers).json["data"]
    assert [each["name"] for each in page["proxies"]] == ["p2", "p3"]
    wanted = {"page": 2, "per_page": 2, "total": 5, "pages": 3, "has_next": True, "has_prev": True}
    assert page["pagination"] == wanted
    assert [each["name"] for each in api.get("/proxies?status=inactive", headers).json["data"]["proxies"]] == ["p0"]
    assert api.get("/proxies?protocol=socks5", headers).json["data"]["proxies"] == []
    assert api.get("/proxies?page=99", headers).json["data"]["proxies"] == []
    assert set(page["proxies"][0]) >= {"id", "auth_enabled", "tags", "stats", "runtime", "created_at", "updated_at"}


@table(
    "query",
    [
        "page=0", "page=x", "per_page=0", "per_page=101", "per_page=+5", "status=up", "protocol=", "page=1&page=2",
        "stat=active",
    ],
)  # fmt: skip
def test_a_bad_filter_is_400_naming_it(api: Api, headers: dict[str, str], query: str) -> None:
    response = error_of(api.get(f"/proxies?{query}", headers))
    assert (response[0], response[2]["field"]) == (400, query.partition("=")[0])


@table("action", ["", "/start", "/stop", "/restart", "/test"])
def test_an_unknown_proxy_is_404(api: Api, headers: dict[str, str], action: str) -> None:
    response = api.request("POST" if action else "GET", f"/proxies/prx_none{action}", headers)
    assert error_of(response)[:2] == (404, "NOT_FOUND")


# --- names in the TLS handshakes of tunnels ---


def test_what_becomes_of_the_name_in_a_handshake_is_set_and_reaches_the_proxy(api: Api) -> None:
    body = {"name": "names", "port": 3128, "protocol": "http"}
    made = api.post("/proxies", body, api.token()).json["data"]["proxy"]
    assert (made["tls_name"], made["tls_ports"]) == ("auto", [443])
    changes = {"tls_name": "allowed", "tls_ports": [443, 8443]}
    changed = api.patch(f"/proxies/{made['id']}", changes, api.token()).json["data"]["proxy"]
    assert (changed["tls_name"], changed["tls_ports"]) == ("allowed", [443, 8443])
    spec = spec_of(api.services.proxies.get(made["id"]), api.services.seal)
    assert (spec.tls_name, spec.tls_ports) == ("allowed", (443, 8443))
    api.patch(f"/proxies/{made['id']}", {"tls_ports": []}, api.token())
    assert spec_of(api.services.proxies.get(made["id"]), api.services.seal).tls_ports == ()


@table(
    ("given", "field", "error"),
    [
        ({"tls_name": "strict"}, "tls_name", "must be one of auto, off, record, match, allowed"),
        ({"tls_name": None}, "tls_name", "null"),
        ({"tls_ports": [443, 0]}, "tls_ports[1]", "1"),
        ({"tls_ports": [65536]}, "tls_ports[0]", "65535"),
        ({"tls_ports": ["443"]}, "tls_ports[0]", "must be a whole number"),
        ({"tls_ports": [443, 8443, 443]}, "tls_ports", "must not name a port twice"),
        ({"tls_ports": list(range(1, 66))}, "tls_ports", "64"),
        ({"tls_ports": 443}, "tls_ports", "list"),
    ],
)
def test_what_is_wrong_with_it_is_said(api: Api, given: dict[str, Any], field: str, error: str) -> None:
    body = {"name": "names", "port": 3128, "protocol": "http", **given}
    status, _code, details = error_of(api.post("/proxies", body, api.token()))
    assert (status, details["field"]) == (400, field)
    assert error in details["error"]


# --- certificates of clients ---


def secure(api: Api, folder: Path, **tls: Any) -> Result:
    cert, key = make_pair(folder)
    body = {"name": "secure", "port": 3443, "protocol": "https", "tls": {"cert_file": cert, "key_file": key, **tls}}
    return api.post("/proxies", body, api.token())


def test_a_proxy_asks_clients_for_a_certificate(api: Api, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "clients")
    made = secure(api, tmp_path, client_ca=str(authority.ca)).json["data"]["proxy"]
    assert made["tls"]["client_auth"] == "require"
    path = f"/proxies/{made['id']}"
    tls = {"client_auth": "optional", "client_crl": str(authority.crl)}
    changed = api.patch(path, {"tls": tls}, api.token()).json["data"]["proxy"]
    assert changed["tls"] == {**made["tls"], **tls}
    spec = spec_of(api.services.proxies.get(made["id"]), api.services.seal)
    assert spec.client_tls == ClientTlsSpec(str(authority.ca), str(authority.crl), required=False)
    without = api.patch(path, {"tls": {"client_ca": None}}, api.token()).json["data"]["proxy"]
    assert set(without["tls"]) == {"cert_file", "key_file"}


@table(
    ("tls", "field"),
    [
        ({"client_ca": "clients-crl.pem"}, "tls.client_ca"),
        ({"client_ca": "nothing.pem"}, "tls.client_ca"),
        ({"client_ca": "clients-ca.pem", "client_crl": "clients-ca.pem"}, "tls.client_crl"),
        ({"client_crl": "clients-crl.pem"}, "tls.client_crl"),
        ({"client_auth": "optional"}, "tls.client_auth"),
        ({"client_ca": "clients-ca.pem", "client_auth": "maybe"}, "tls.client_auth"),
        ({"key_file": None}, "tls.key_file"),
    ],
)
def test_files_for_clients_that_can_not_be_used_are_refused_by_field(
    api: Api, tmp_path: Path, tls: dict[str, Any], field: str
) -> None:
    folder = Authority(tmp_path / "clients").folder
    given = {name: str(folder / value) if value and value.endswith(".pem") else value for name, value in tls.items()}
    status, code, details = error_of(secure(api, tmp_path, **given))
    assert (status, code, details["field"]) == (400, "INVALID_REQUEST", field)
