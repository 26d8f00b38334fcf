"""Upstreams of a proxy over the API."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from actors.bus.messages.common import forwarding_name
from actors.bus.messages.specs import Upstreams, UpstreamSpec, UpstreamState
from api.api_settings import ApiSettings
from api.objects.proxies.proxy_cache import ProxyCache
from api.operator.start import read_desired_proxies
from api.store import StoreDamaged
from config.settings.settings import ProxyGroup
from tests.kit.api_stage import PROXY, QUIET, Api, error_of
from tests.kit.tables import table
from tests.unit.api.creating import create

SECRET = "pass-phrase-of-an-upstream"
UPSTREAM = {"protocol": "http", "host": "10.0.0.9", "port": 3128, "auth": {"username": "u", "password": SECRET}}

CHECK = {"enabled": True, "interval": 30, "timeout": 5, "url": "", "expect": 204}


@pytest.fixture
def made(api: Api, headers: dict[str, str]) -> dict[str, Any]:
    return create(api, headers, upstreams=[UPSTREAM], upstream_policy="sticky", upstream_check={"interval": 60})


def sent_upstreams(api: Api, proxy_id: str) -> tuple[UpstreamSpec, ...]:
    """The upstreams of the last spec that the supervisor received."""
    return api.fleet.desired[proxy_id].upstreams.entries


def test_upstreams_are_returned_without_passwords_and_sent_with_them(api: Api, made: dict[str, Any]) -> None:
    name = "http://10.0.0.9:3128"
    view = {"name": name, "protocol": "http", "host": "10.0.0.9", "port": 3128, "weight": 1, "auth": {"username": "u"}}
    assert made["upstreams"] == [view]
    assert made["upstream_policy"] == "sticky"
    assert made["upstream_check"] == {**CHECK, "interval": 60}
    spec = sent_upstreams(api, made["id"])[0]
    assert (spec.username, spec.password) == ("u", SECRET)
    assert SECRET not in repr(api.fleet.desired[made["id"]])


def test_no_response_and_no_file_holds_the_password(api: Api, headers: dict[str, str], made: dict[str, Any]) -> None:
    responses = [api.get("/proxies", headers), api.get(f"/proxies/{made['id']}", headers)]
    assert all(SECRET not in response.text and "sealed" not in response.text for response in responses)
    files = [file for file in api.data.path.rglob("*") if file.is_file()]
    assert len(files) > 2
    assert all(SECRET.encode() not in file.read_bytes() for file in files)


def test_an_update_replaces_the_list_and_keeps_the_password(
    api: Api, headers: dict[str, str], made: dict[str, Any]
) -> None:
    path = f"/proxies/{made['id']}"
    other = {"protocol": "socks5", "host": "other.example", "port": 1080}
    response = api.patch(path, {"upstreams": [other, *made["upstreams"]]}, headers)
    assert [each["port"] for each in response.json["data"]["proxy"]["upstreams"]] == [1080, 3128]
    assert [spec.password for spec in sent_upstreams(api, made["id"])] == [None, SECRET]
    assert api.patch(path, {"tags": ["x"]}, headers).json["data"]["proxy"]["upstream_policy"] == "sticky"
    assert api.patch(path, {"upstreams": []}, headers).json["data"]["proxy"]["upstreams"] == []
    assert sent_upstreams(api, made["id"]) == ()


@table(
    ("body", "field"),
    [
        ({"upstreams": [{**UPSTREAM, "port": 0}]}, "upstreams[0].port"),
        ({"upstreams": [UPSTREAM, {**UPSTREAM, "protocol": "socks4"}]}, "upstreams[1].auth.password"),
        ({"upstreams": None}, "upstreams"),
        ({"upstream_policy": "random"}, "upstream_policy"),
        ({"upstream_check": {"interval": 0}}, "upstream_check.interval"),
        ({"upstream_check": {"timeout": None}}, "upstream_check.timeout"),
        ({"upstream_check": {"url": "ftp://a.example/"}}, "upstream_check.url"),
        ({"upstream_check": {"url": "http://u:p@a.example/"}}, "upstream_check.url"),
        ({"upstream_check": {"url": "http://a!b/"}}, "upstream_check.url"),
        ({"upstream_check": {"expect": 100}}, "upstream_check.expect"),
    ],
)
def test_a_bad_field_is_400_naming_it(
    api: Api, headers: dict[str, str], made: dict[str, Any], body: dict[str, Any], field: str
) -> None:
    status, _code, details = error_of(api.patch(f"/proxies/{made['id']}", body, headers))
    assert (status, details["field"]) == (400, field)


def test_the_detail_form_shows_how_the_upstreams_are(api: Api, headers: dict[str, str], made: dict[str, Any]) -> None:
    state = UpstreamState("http://10.0.0.9:3128", "down", 1.7e9, 1, 2, 3, 4, 5, 6.5, "refused")
    api.fleet.others[forwarding_name(made["id"])] = lambda _question: Upstreams((state,))
    runtime = api.get(f"/proxies/{made['id']}", headers).json["data"]["proxy"]["runtime"]
    assert runtime["upstreams"] == [
        {
            "name": "http://10.0.0.9:3128",
            "state": "down",
            "since": "2023-11-14T22:13:20.000Z",
            "active_connections": 1,
            "total_connections": 2,
            "failures": 3,
            "bytes_in": 4,
            "bytes_out": 5,
            "latency_ms": 6.5,
            "last_error": "refused",
        }
    ]


def test_the_desired_state_of_a_restart_has_the_passwords_and_a_missing_key_is_an_error_naming_the_file(
    api: Api, made: dict[str, Any]
) -> None:
    assert read_desired_proxies(ProxyCache(api.store).all(), api.data)[0].upstreams.entries[0].password == SECRET
    key = api.data.keys / "secrets.key"
    key.unlink()
    with pytest.raises(StoreDamaged, match=r"secrets\.key: missing"):
        read_desired_proxies(ProxyCache(api.store).all(), api.data)
    assert not key.exists()


def test_a_chain_in_a_circle_of_own_listeners_is_refused(api: Api, headers: dict[str, str]) -> None:
    def through(port: int) -> dict[str, Any]:
        return {
            "upstreams": [
                {"protocol": "http", "host": "10.9.9.9", "port": 1},
                {**UPSTREAM, "host": "127.0.0.1", "port": port},
            ]
        }

    first = create(api, headers, name="first", port=4001)
    create(api, headers, name="second", port=4002, **through(4001))
    create(api, headers, name="third", port=4003, host="0.0.0.0", **through(4002))
    response = api.patch(f"/proxies/{first['id']}", through(4003), headers)
    status, _code, details = error_of(response)
    assert (status, details["field"]) == (400, "upstreams[1]")
    assert "'second'" in details["error"] or "'third'" in details["error"]
    status, _code, details = error_of(api.patch(f"/proxies/{first['id']}", through(4001), headers))
    assert (status, details["field"]) == (400, "upstreams[1].port")
    assert api.patch(f"/proxies/{first['id']}", through(4004), headers).status_code == 200


def test_the_key_file_is_made_at_the_first_start(api: Api) -> None:
    assert not (api.data.keys / "secrets.key").exists()
    read_desired_proxies(ProxyCache(api.store).all(), api.data)
    assert (api.data.keys / "secrets.key").stat().st_mode & 0o777 == 0o600


# --- lists as text ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "upstreams",
    [
        f"# mine\n10.0.0.9:3128:u:{SECRET}\n\nsocks5h://other.example:1080\n",
        [f"http://u:{SECRET}@10.0.0.9:3128", {"protocol": "socks5", "host": "other.example", "port": 1080}],
        f"host,port,protocol,username,password\n10.0.0.9,3128,,u,{SECRET}\nother.example,1080,socks5,,\n",
    ],
)
def test_a_list_in_any_form_is_returned_as_objects_without_passwords(
    api: Api, headers: dict[str, str], upstreams: Any
) -> None:
    made = create(api, headers, upstreams=upstreams)
    first = {"name": "http://10.0.0.9:3128", "protocol": "http", "host": "10.0.0.9", "port": 3128, "weight": 1}
    assert made["upstreams"][0] == {**first, "auth": {"username": "u"}}
    assert made["upstreams"][1]["protocol"] == "socks5"
    assert [spec.password for spec in sent_upstreams(api, made["id"])] == [SECRET, None]
    again = api.patch(f"/proxies/{made['id']}", {"upstreams": made["upstreams"]}, headers).json["data"]["proxy"]
    assert again["upstreams"] == made["upstreams"]
    assert [spec.password for spec in sent_upstreams(api, made["id"])] == [SECRET, None]


def test_lines_without_a_scheme_are_of_the_protocol_beside_them(api: Api, headers: dict[str, str]) -> None:
    made = create(api, headers, upstream_protocol="socks5", upstreams="a.example:1\nhttp://b.example:2")
    assert [each["protocol"] for each in made["upstreams"]] == ["socks5", "http"]


def test_a_bad_line_is_reported_by_its_number_and_changes_nothing(
    api: Api, headers: dict[str, str], made: dict[str, Any]
) -> None:
    response = api.patch(f"/proxies/{made['id']}", {"upstreams": f"a.example:1\nb.example:1:u:{SECRET}:\n?"}, headers)
    status, _, details = error_of(response)
    assert (status, details["field"]) == (400, "upstreams")
    assert details["error"].startswith("line 3: must be host:port")
    response = api.patch(f"/proxies/{made['id']}", {"upstreams": ["a.example:1", f"{SECRET}@b.example"]}, headers)
    assert error_of(response)[2]["field"] == "upstreams[1]"
    assert SECRET not in response.text
    view = api.get(f"/proxies/{made['id']}", headers).json["data"]["proxy"]
    assert view["upstreams"] == made["upstreams"]


def test_five_thousand_lines_are_taken_exported_and_imported_again(api: Api, headers: dict[str, str]) -> None:
    text = "\n".join(f"10.{n // 250}.{n % 250}.1:8080:user{n}:{SECRET}{n}" for n in range(5_000))
    made = create(api, headers, upstreams=text)
    assert len(made["upstreams"]) == 5_000
    assert sent_upstreams(api, made["id"])[4_999].password == f"{SECRET}4999"
    exported = api.get("/config/export", headers).json["data"]
    assert len(exported["proxies"][0]["upstreams"]) == 5_000
    entry = {"kind": "proxyfleet.config", "version": 1, "proxies": [{"name": made["name"], "upstreams": text}]}
    assert api.post("/config/import", entry, headers).json["data"]["changed"] is False


# --- which addresses may be named ---


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("127.0.0.1", 9),
        ("localhost", 9),
        ("x.localhost", 9),
        ("::ffff:127.0.0.1", 9),
        ("10.0.0.9", 3128),
        ("169.254.169.254", 80),
        ("127.0.0.1", 8080),
    ],
)
def test_an_address_that_no_upstream_may_have_is_400_and_names_the_field(
    api: Api, headers: dict[str, str], host: str, port: int
) -> None:
    api.services.apply(ApiSettings(security=QUIET))
    upstreams = [{"protocol": "http", "host": "public.example", "port": 1}, {**UPSTREAM, "host": host, "port": port}]
    body = {"name": "a", "port": 3128, "protocol": "http"}
    status, _code, details = error_of(api.post("/proxies", {**body, "upstreams": upstreams}, headers))
    assert (status, details["field"]) == (400, "upstreams[1].host")
    made = create(api, headers, name="a", port=3128)
    status, _code, details = error_of(api.patch(f"/proxies/{made['id']}", {"upstreams": upstreams}, headers))
    assert (status, details["field"]) == (400, "upstreams[1].host")


def test_own_proxies_may_be_upstreams_without_an_exception_and_the_api_and_the_metrics_never(
    api: Api, headers: dict[str, str]
) -> None:
    create(api, headers, name="other", port=3129, host="0.0.0.0")
    made = create(api, headers, name="a", port=3128)

    def status_of(host: str, port: int) -> int:
        body = {"upstreams": [{"protocol": "http", "host": host, "port": port}]}
        return int(api.patch(f"/proxies/{made['id']}", body, headers).status_code)

    api.services.apply(ApiSettings(security=QUIET))
    assert status_of("127.0.0.1", 3129) == 200
    everything = ProxyGroup(upstreams_allow=("0.0.0.0/0", "::/0"))
    metrics = {"metrics": {"publish": "tcp://127.0.0.1:5556"}}
    api.services.apply(ApiSettings(security=QUIET, proxy=everything, whole=metrics))
    assert status_of("127.0.0.1", 22) == 200
    assert [status_of("127.0.0.1", 8080), status_of("::ffff:127.0.0.1", 5556)] == [400, 400]


def test_a_key_of_one_proxy_names_no_other_as_its_upstream(api: Api, headers: dict[str, str]) -> None:
    mine, also_mine, other = (create(api, headers, name=f"p{port}", port=port) for port in (3128, 3129, 3130))
    key = api.key(scope={"proxies": [mine["id"], also_mine["id"]]})

    def response(port: int, caller: dict[str, str]) -> Any:
        body = {"upstreams": [{"protocol": "http", "host": "127.0.0.1", "port": port}]}
        return api.patch(f"/proxies/{mine['id']}", body, caller)

    assert response(also_mine["port"], key).status_code == 200
    status, _code, details = error_of(response(other["port"], key))
    assert (status, details["field"]) == (400, "upstreams[0].host")
    assert "scope" in details["error"]
    assert response(other["port"], headers).status_code == 200


def test_two_proxies_that_are_made_at_once_are_no_circle(
    api: Api, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(name: str, port: int, to: int) -> dict[str, Any]:
        return {**PROXY, "name": name, "port": port, "upstreams": [{**UPSTREAM, "host": "127.0.0.1", "port": to}]}

    bodies = body("first", 4001, 4002), body("second", 4002, 4001)
    lock, both_wait = api.services.proxies.lock, threading.Barrier(3)

    def awaited() -> Any:
        both_wait.wait(30)
        return lock()

    with ThreadPoolExecutor(2) as pool:
        with lock():
            monkeypatch.setattr(api.services.proxies, "lock", awaited)
            responses = [pool.submit(api.post, "/proxies", each, headers) for each in bodies]
            both_wait.wait(30)
        assert sorted(each.result().status_code for each in responses) == [201, 400]
