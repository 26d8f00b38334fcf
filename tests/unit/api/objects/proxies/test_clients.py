"""The PAC file and the lines to copy: who may have them, and that a JavaScript engine and real programs take them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from api.api_settings import ApiSettings
from api.objects.proxies import client_operations
from api.objects.proxies.client_operations import is_private
from config.model.proxies import ProxyCreate, ProxyRecord, new_record
from tests.kit.api_stage import QUIET, Api, error_of
from tests.kit.certificates import make_pair

PAC = "application/x-ns-proxy-autoconfig"


def record(**fields: Any) -> ProxyRecord:
    body = {"name": "x", "port": 3128, "protocol": "http", "host": "192.0.2.1", **fields}
    return new_record(ProxyCreate.model_validate(body), "prx_x", 0.0, 30)


def run_pac(script: str, *asked: tuple[str, str]) -> list[str]:
    """What a JavaScript engine makes of it for each URL with its host, with the functions that browsers have for it."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    helpers = """
const isPlainHostName = (host) => !host.includes(".") && !host.includes(":");
const pattern = (text) => text.replace(/[.[\\]]/g, "\\\\$&").replace(/\\*/g, ".*");
const shExpMatch = (text, shell) => new RegExp("^" + pattern(shell) + "$").test(text);
"""
    all_of_them = f"for (const each of {json.dumps(asked)}) console.log(FindProxyForURL(...each))"
    ended = subprocess.run([node, "-e", helpers + script + all_of_them], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_a_pac_file_names_every_proxy_and_excludes_this_machine() -> None:
    proxies = [
        record(),
        record(protocol="https", port=443, host="2001:db8::1"),
        record(protocol="socks4", port=1080),
        record(protocol="socks5", port=1081, host="0.0.0.0"),
        record(protocol="mixed", port=1082),
    ]
    script = client_operations.pac_file(proxies, "fleet.example", direct=True)
    wanted = "PROXY 192.0.2.1:3128; HTTPS [2001:db8::1]:443; SOCKS 192.0.2.1:1080; SOCKS5 fleet.example:1081; "
    wanted += "PROXY 192.0.2.1:1082; DIRECT"
    near = ("intranet", "localhost", "127.0.0.1", "::1", "x.localhost")
    far = ("example.com", "127.example.com", "127.0.0.1.example.com", "xlocalhost.com", "localhost.example.com")
    asked = (("https://example.com/", "example.com"), *((f"http://{host}/", host) for host in (*far, *near)))
    assert run_pac(script, *asked) == [wanted] * (1 + len(far)) + ["DIRECT"] * len(near)
    assert run_pac(client_operations.pac_file(proxies[:1], "h", direct=False), ("http://a.b/", "a.b")) == [
        "PROXY 192.0.2.1:3128"
    ]


@pytest.mark.parametrize(
    ("given", "host"),
    [
        ("fleet.example:8080", "fleet.example"),
        ("[::1]:8080", "::1"),
        ("192.0.2.1", "192.0.2.1"),
        ('x"; alert(1); "', None),
        ("a b", None),
        ("a\nb", None),
        ("", None),
        (None, None),
    ],
)
def test_only_a_host_is_taken_from_the_request(given: str | None, host: str | None) -> None:
    assert client_operations.host_of(given) == host


@pytest.fixture
def office(api: Api) -> str:
    """An API with a proxy `office` and one without a tag; the id of the first."""
    for name, port, tags in (("one", 3128, ["office"]), ("two", 3129, [])):
        api.post("/proxies", {"name": name, "port": port, "protocol": "http", "tags": tags}, api.token())
    return str(api.get("/proxies", api.token()).json["data"]["proxies"][0]["id"])


def pac_of(api: Api, headers: dict[str, str] | None = None, query: str = "") -> Any:
    return api.client.simulate_get("/proxy.pac", headers=headers, query_string=query)


def test_the_file_has_the_active_proxies_with_the_tag(api: Api, office: str) -> None:
    whole = pac_of(api, api.token())
    assert (whole.status_code, whole.headers["content-type"]) == (200, PAC)
    assert "PROXY 127.0.0.1:3128; PROXY 127.0.0.1:3129" in whole.text
    tagged = pac_of(api, api.token(), "tag=office&direct=true").text
    assert "PROXY 127.0.0.1:3128; DIRECT" in tagged
    api.post(f"/proxies/{office}/stop", headers=api.token())
    assert "3128" not in pac_of(api, api.token()).text
    assert error_of(pac_of(api, api.token(), "tag=office"))[0] == 404
    assert error_of(pac_of(api, api.token(), "colour=red"))[0] == 400


def test_a_key_with_a_scope_gets_only_its_proxies(api: Api, office: str) -> None:
    key = api.key(permissions=["proxy.read"], scope={"proxies": [office]})
    assert "3129" not in pac_of(api, key).text


def test_it_is_open_to_everybody_only_when_the_operator_says_so(api: Api, office: str) -> None:
    assert error_of(pac_of(api))[:2] == (401, "UNAUTHORIZED")
    api.settings = ApiSettings(security=QUIET.model_copy(update={"public_pac": True}))
    api.start()
    assert pac_of(api).status_code == 200
    assert api.get("/proxies").status_code == 401
    assert api.get(f"/proxies/{office}/snippets").status_code == 401


def test_the_lines_name_the_user_and_never_a_password(api: Api) -> None:
    auth = {"enabled": True, "username": "a b@c", "password": "a real password"}
    body = {"name": "x", "port": 3128, "protocol": "socks5", "host": "0.0.0.0", "auth": auth}
    made = api.post("/proxies", body, api.token()).json["data"]["proxy"]
    response = api.get(f"/proxies/{made['id']}/snippets", api.token(), query_string="host=fleet.example")
    lines = response.json["data"]["snippets"]
    assert lines["url"] == "socks5h://a%20b%40c:PASSWORD@fleet.example:3128"
    assert "a real password" not in response.text
    refused = api.get(f"/proxies/{made['id']}/snippets", api.token(), query_string="host=a%20b")
    assert error_of(refused)[2]["field"] == "host"


@pytest.mark.parametrize(
    ("protocol", "username", "url"),
    [
        ("http", None, "http://USER:PASSWORD@192.0.2.1:3128"),
        ("mixed", "bob", "http://bob:PASSWORD@192.0.2.1:3128"),
        ("socks4", None, "socks4a://CREDENTIAL:@192.0.2.1:3128"),
        ("socks4", "bob", "socks4a://CREDENTIAL:@192.0.2.1:3128"),
    ],
)
def test_lines_have_placeholders_for_what_the_proxy_does_not_know(
    protocol: str, username: str | None, url: str
) -> None:
    lines = client_operations.lines_for(record(protocol=protocol, auth={"enabled": True}), "unused", username=username)
    assert lines["url"] == url
    by_name = client_operations.lines_for(record(protocol="socks4", auth={"enabled": True}), "h", False, "bob", True)
    assert by_name["url"] == "socks4a://bob:@192.0.2.1:3128"
    open_to_all = client_operations.lines_for(record(protocol=protocol), "unused", username=username)
    assert "@" not in str(open_to_all["url"])


def test_a_mixed_proxy_has_lines_for_both() -> None:
    lines = client_operations.lines_for(record(protocol="mixed", auth={"enabled": True}, host="::"), "fleet.example")
    assert lines["curl"] == "curl --proxy http://USER:PASSWORD@fleet.example:3128 https://example.com/"
    assert lines["socks"] == "curl --proxy socks5h://USER:PASSWORD@fleet.example:3128 https://example.com/"
    assert client_operations.lines_for(record(), "h")["socks"] is None


def test_an_address_of_all_is_no_address_to_copy(api: Api) -> None:
    body = {"name": "x", "port": 3128, "protocol": "http", "host": "0.0.0.0"}
    made = api.post("/proxies", body, api.token()).json["data"]["proxy"]
    lines = api.get(f"/proxies/{made['id']}/snippets", {**api.token(), "Host": "0.0.0.0:8080"}).json["data"]["snippets"]
    assert lines["url"] == "http://127.0.0.1:3128"


def test_the_public_name_is_in_lines_and_pac_files_unless_the_request_names_another(api: Api) -> None:
    for name, port, host in (("all", 3128, "0.0.0.0"), ("one", 3129, "192.0.2.1")):
        api.post("/proxies", {"name": name, "port": port, "protocol": "http", "host": host}, api.token())
    assert api.patch("/settings", {"proxy": {"public_name": "proxy.example.com"}}, api.token()).status_code == 200

    def url(proxy: str, query: str = "") -> Any:
        made = next(each for each in api.get("/proxies", api.token()).json["data"]["proxies"] if each["name"] == proxy)
        response = api.get(f"/proxies/{made['id']}/snippets", api.token(), query_string=query)
        return response.json["data"]["snippets"]["url"]

    assert url("all") == "http://proxy.example.com:3128"
    assert url("all", "host=other.example") == "http://other.example:3128"
    assert url("one") == "http://192.0.2.1:3129"
    assert "PROXY proxy.example.com:3128" in pac_of(api, api.token()).text
    for wrong in ("a b", "a/b", "host:80", "1.2.3", "0.0.0.0", "::", "a.example\r\nX: y", "bücher.example", "[::1]"):
        refused = api.patch("/settings", {"proxy": {"public_name": wrong}}, api.token())
        assert error_of(refused)[2]["field"] == "proxy.public_name"
    assert api.patch("/settings", {"proxy": {"public_name": ""}}, api.token()).status_code == 200
    assert url("all") != "http://proxy.example.com:3128"


@pytest.mark.parametrize("protocol", ["http", "https", "socks4", "socks5"])
def test_real_programs_take_the_lines(protocol: str, tmp_path: Path) -> None:
    auth = {"enabled": True, "username": "al'ice $x", **({} if protocol == "socks4" else {"password": "p" * 12})}
    lines = client_operations.lines_for(record(protocol=protocol, auth=auth, host="::1"), "unused.example")
    assert "al%27ice%20%24x" in lines["url"]
    home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}

    def shell(script: str | None) -> str:
        assert script is not None
        ended = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=300, env=home)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    assert shell(f"{lines['environment']}\necho $https_proxy $ALL_PROXY").split() == [lines["url"]] * 2
    proxies, _, request = str(lines["python"]).rpartition("\n")
    compile(request, "request", "exec")
    python = subprocess.run(
        [sys.executable, "-c", f"{proxies}\nprint(proxies['https'])"], capture_output=True, text=True
    )
    assert python.stdout.strip() == lines["url"], python.stderr
    if shutil.which("git"):
        assert shell(f"{lines['git']}\ngit config --global http.proxy").strip() == lines["url"]
        asked = subprocess.run(
            ["git", "ls-remote", "http://site.invalid/x.git"],
            capture_output=True,
            text=True,
            timeout=300,
            env={**home, "GIT_TERMINAL_PROMPT": "0"},
        )
        assert asked.returncode != 0
        assert "could not read" not in asked.stderr, "it would ask for a user name or a password"
    if protocol != "socks4":
        assert json.loads(str(lines["docker"]))["proxies"]["https-proxy"] == lines["url"].replace("socks5h", "socks5")
        if shutil.which("apt-config"):
            (tmp_path / "proxy.conf").write_text(str(lines["apt"]))
            assert f'"{lines["url"]}"' in shell(f"apt-config -c {tmp_path}/proxy.conf dump Acquire::https::Proxy")
    if protocol.startswith("socks"):
        assert "sends no credentials" in lines["chromium"]
        assert "sends no credentials" in lines["firefox"]
    else:
        assert lines["firefox"].count("user_pref(") >= 2


@pytest.mark.parametrize("protocol", ["socks4", "socks5"])
def test_browsers_get_lines_for_socks_without_credentials(protocol: str) -> None:
    lines = client_operations.lines_for(record(protocol=protocol), "unused.example")
    assert lines["chromium"] == f"chromium --proxy-server={protocol}://192.0.2.1:3128"
    assert str(lines["firefox"]).count("user_pref(") >= 2


def test_a_private_authority_is_named_to_clients_of_an_https_proxy(tmp_path: Path) -> None:
    lines = client_operations.lines_for(record(protocol="https"), "unused.example", private_ca=True)
    assert lines["curl"] == "curl --proxy-cacert CA.pem --proxy https://192.0.2.1:3128 https://example.com/"
    home = {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    (tmp_path / "CA.pem").write_text("the authority\n")
    for name in ("git", "pip"):
        script = ["bash", "-ec", str(lines[name])]
        subprocess.run(script, check=True, cwd=tmp_path, env=home, capture_output=True, timeout=300)
    assert f"sslcainfo = {tmp_path}/CA.pem" in (tmp_path / ".gitconfig").read_text().lower().replace("ca.pem", "CA.pem")
    assert 'verify="bundle.pem"' in lines["python"]
    bundle = (tmp_path / "pip-ca.pem").read_text()
    assert bundle.endswith("the authority\n")
    assert bundle.count("BEGIN CERTIFICATE") > 50
    for protocol in ("http", "socks5"):
        assert "CA.pem" not in str(
            client_operations.lines_for(record(protocol=protocol), "unused.example", private_ca=True)
        )


def test_an_authority_is_private_unless_it_is_a_public_one(tmp_path: Path) -> None:
    cert = Path(make_pair(tmp_path)[0])
    assert is_private(cert)
    assert is_private(tmp_path / "missing.pem")
    public = tmp_path / "public.pem"
    end = "-----END CERTIFICATE-----\n"
    public.write_text(Path(DEFAULT_CA_BUNDLE_PATH).read_text().partition(end)[0] + end)
    assert not is_private(public)
    public.write_text(cert.read_text() + public.read_text())  # a chain: the last one's issuer counts
    assert not is_private(public)
