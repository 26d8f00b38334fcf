"""Commands on proxies, users, keys, webhooks, connections and settings, against a running product."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kit.certificates import make_pair
from tests.kit.http_origins import Origin, serving
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.cli.shell import Shell

pytestmark = pytest.mark.product


def test_a_proxy_is_created_shown_changed_stopped_started_and_deleted_by_its_name(
    shell: Shell, product: Product
) -> None:
    port = product.free_port()
    made = shell.good("proxies", "create", "--name", "desk", "--port", str(port), "--protocol", "http", "--tag", "a")
    assert made.out.startswith(f"desk listens at 127.0.0.1:{port} (prx_")
    assert shell.good("proxies", "show", "desk").details["settings"].startswith("timeout 30, keep_alive yes")
    changed = shell.good("proxies", "update", "desk", "--idle-timeout", "60", "--set", 'tags=["b","c"]', "-o", "json")
    assert (changed.data["proxy"]["settings"]["timeout"], changed.data["proxy"]["tags"]) == (60, ["b", "c"])
    shown = shell.good("proxies", "show", "desk").details
    assert (shown["headers"], shown["sleep"]) == ("via pseudonym, forwarded off", "-")
    shell.good("proxies", "update", "desk", "--sleep-after", "300")
    assert shell.good("proxies", "show", "desk").details["sleep"] == "sleep_after 300"
    assert shown["TLS names"] == "tls_name auto, tls_ports 443"
    shell.good("proxies", "update", "desk", "--tls-name", "allowed", "--tls-port", "443", "--tls-port", "8443")
    assert shell.good("proxies", "show", "desk").details["TLS names"] == "tls_name allowed, tls_ports 443, 8443"
    assert "'match'" in shell("proxies", "update", "desk", "--tls-name", "strict").err
    shell.good("proxies", "update", "desk", "--set", "tls_ports=[]")
    assert shell.good("proxies", "show", "desk").details["TLS names"] == (
        "tls_name allowed, but tls_ports is empty: no port is checked"
    )
    shell.good("pools", "create", "desks")
    shell.good("proxies", "update", "desk", "--pool", "desks", "--set", 'dns={"prefer": "ipv4"}')
    shown = shell.good("proxies", "show", "desk").details
    assert (shown["pool"], shown["policy"], shown["dns"]) == ("desks", "-", "prefer ipv4")
    shell.good("proxies", "update", "desk", "--set", "pool=null", "--set", "dns={}")
    shell.good("pools", "delete", "desks", "--yes")
    for given in (("--via", "off"), ("--set", "headers.via=on")):
        changed = shell.good("proxies", "update", "desk", *given, "-o", "json")
        assert changed.data["proxy"]["headers"]["via"] == given[1].rpartition("=")[2]
    added = ("--forwarded", "rfc7239", "--set-header", "X-Team: a:b", "--remove-header", "Cookie")
    assert shell.good("proxies", "update", "desk", *added).out == "desk is changed.\n"
    shown = shell.good("proxies", "show", "desk").details["headers"]
    assert shown == "via on, forwarded rfc7239, set X-Team: a:b, remove Cookie"
    explained = shell.good("proxies", "explain", "desk", "http://1.1.1.1/").out
    assert "X-Team: a:b" in explained
    assert "cookie: (removed)" in explained
    assert shell.good("proxies", "stop", "desk").out == "desk: The proxy was stopped\n"
    assert shell.good("proxies", "show", "desk").details["status"] == "inactive"
    assert shell.good("proxies", "start", "desk").out == "desk: The proxy was started\n"
    assert shell.good("proxies", "restart", "desk").out == "desk: The proxy was restarted\n"
    assert shell.good("proxies", "delete", "desk", "--yes").out == "desk: is deleted\n"
    assert shell("proxies", "show", "desk").status == 5


def test_a_certificate_is_made_or_uploaded_and_a_proxy_names_its_files(
    shell: Shell, product: Product, tmp_path: Path
) -> None:
    made = shell.good("certificates", "create", "tls.example", "192.0.2.1").details
    assert (made["names"], made["signs itself"]) == ("tls.example, 192.0.2.1", "yes")
    cert, key = make_pair(tmp_path, hosts=["office.example"])
    found = shell.good("certificates", "upload", cert, "-", "-o", "json", stdin=Path(key).read_text()).data
    files = found["certificate"]["cert_file"], found["certificate"]["key_file"]
    assert [Path(each).read_text().strip() for each in files] == [
        Path(each).read_text().strip() for each in (cert, key)
    ]
    assert found == shell.good("certificates", "upload", cert, key, "-o", "json").data
    named = ("--cert-file", files[0], "--key-file", files[1])
    port = str(product.free_port())
    shell.good("proxies", "create", "with-certificate", "--protocol", "https", "--port", port, *named)
    shell.good("proxies", "delete", "with-certificate", "--yes")
    refused = shell("certificates", "upload", cert, cert)
    assert (refused.status, "private_key: has no private key in PEM" in refused.err) == (1, True), refused.err
    assert shell("certificates", "upload", cert, str(tmp_path / "none")).status == 2


def test_many_proxies_are_changed_after_a_list_of_the_changes_and_all_or_none(shell: Shell, product: Product) -> None:
    bodies = [
        {"name": f"many{number}", "port": product.free_port(), "protocol": "http", "tags": ["many"]}
        for number in range(3)
    ]
    product.api("POST", "/proxies/batch", {"create": bodies})
    change = ("proxies", "change", "--tag", "many")
    listed = shell.good(*change, "--set", "limits.bandwidth_out=1Mbit/s", "--dry-run").out.splitlines()
    assert listed[:2] == ["~ proxy many0", "    limits.bandwidth_out: 0 B/s → 1 Mbit/s"]
    assert listed[-1] == "3 would be changed; 0 unchanged."
    made = shell.good("proxies", "change", "many0", "--set", "sleep_after=600", "--add-tag", "slow", "--yes").out
    assert "1 changed; 0 unchanged. This is revision" in made
    made = shell.good(*change, "--set", "sleep_after=600", "--yes", "-o", "json").data
    assert made["summary"] == {"create": 0, "update": 2, "delete": 0, "unchanged": 1}
    assert shell.good("proxies", "show", "many0").details["tags"] == "many, slow"
    refused = shell(*change, "--set", "pool=none", "--yes")
    assert refused.status == 1
    assert "many0: pool: there is no pool 'none'" in refused.err
    for wrong in ((), ("--all", "--tag", "many"), ("many0", "--status", "active")):
        assert "Which proxies?" in shell("proxies", "change", *wrong, "--set", "sleep_after=1").err
    assert shell(*change).status == shell(*change, "--set", "sleep_after=1").status == 2


def test_the_list_is_filtered_and_for_programs_it_is_the_data_of_the_api(
    shell: Shell, product: Product, proxy: dict[str, Any]
) -> None:
    product.api("PATCH", f"/proxies/{proxy['id']}", {"tags": ["berlin"]})
    (row,) = shell.good("proxies", "list", "--tag", "berlin").rows
    assert row[:5] == [proxy["name"], "http", f"127.0.0.1:{proxy['port']}", "active", "running"]
    assert shell.good("proxies", "list", "--tag", "paris").rows == []
    assert shell.good("proxies", "list", "--tag", "berlin", "--tag", "paris").rows == []
    assert [row[0] for row in shell.good("proxies", "list", "--search", "ERLI", "--sort", "-port").rows] == [row[0]]
    assert "--search" in shell("proxies", "list", "--search", "").err
    assert proxy["id"] not in shell.good("proxies", "list", "--status", "inactive").out
    listed = shell.good("proxies", "list", "-o", "json").data
    assert listed.keys() == product.data("GET", "/proxies").keys()
    assert proxy["id"] in [one["id"] for one in listed["proxies"]]


def test_a_search_finds_by_name_and_says_that_there_is_more(shell: Shell, proxy: dict[str, Any]) -> None:
    found = shell.good("search", proxy["name"].upper(), "--kind", "proxy", "--kind", "host")
    assert [row[0] for row in found.rows] == ["proxy"]
    assert {proxy["name"], proxy["id"]} < {*found.rows[0]}
    more = shell.good("search", "log", "--kind", "setting", "-n", "1", "-o", "json")
    assert (len(more.data["results"]), more.data["more"]) == (1, ["setting"])
    assert "setting" in more.err
    assert "--kind" in shell("search", "x", "--kind", "session").err


def test_all_pages_of_a_long_list_are_shown(shell: Shell, product: Product, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.cli.client.PAGE", 1)
    made = [product.proxy() for _ in range(3)]
    listed = shell.good("proxies", "list", "-o", "json").data["proxies"]
    assert {one["id"] for one in made} <= {one["id"] for one in listed}
    for one in made:
        product.data("DELETE", f"/proxies/{one['id']}")


def test_an_id_wins_over_a_name_and_a_name_that_is_near_is_offered(shell: Shell, proxy: dict[str, Any]) -> None:
    assert shell.good("proxies", "show", proxy["id"]).details["name"] == proxy["name"]
    missed = shell("proxies", "show", proxy["name"] + "x")
    assert missed.status == 5
    assert f"Did you mean '{proxy['name']}'?" in missed.err


def test_a_body_from_a_file_is_overlaid_by_options_and_those_by_set(
    shell: Shell, product: Product, tmp_path: Path
) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text('name = "by file"\nprotocol = "http"\nport = 1\n[settings]\ntimeout = 10\nmax_connections = 7\n')
    port = str(product.free_port())
    given = ("--from", str(file), "--port", port, "--idle-timeout", "20", "--set", "settings.timeout=30")
    made = shell.good("proxies", "create", *given, "-o", "json").data["proxy"]
    assert (made["name"], str(made["port"])) == ("by file", port)
    assert (made["settings"]["timeout"], made["settings"]["max_connections"]) == (30, 7)
    product.data("DELETE", f"/proxies/{made['id']}")


def test_what_the_api_refuses_is_shown_with_every_field(shell: Shell) -> None:
    refused = shell("proxies", "create", "--name", "x", "--port", "80", "--set", "settings.timeout=0", "--set", "a=1")
    assert refused.status == 1
    for words in ("protocol: is required", "settings.timeout (--idle-timeout): ", "a: is not a known field"):
        assert words in refused.err
    error = json.loads(shell("proxies", "create", "--name", "x", "-o", "json").err)["error"]
    assert (error["code"], error["exit_status"]) == ("INVALID_REQUEST", 1)


def test_a_password_of_a_proxy_comes_by_standard_input(shell: Shell, product: Product, origin: Origin) -> None:
    port = product.free_port()
    given = ("--name", "closed", "--port", str(port), "--protocol", "http", "--username", "alice", "--password-stdin")
    made = shell.good("proxies", "create", *given, "-o", "json", stdin="open sesame\n").data["proxy"]
    assert made["auth"] == {"enabled": True, "username": "alice"}
    through = {"http": f"http://alice:open sesame@127.0.0.1:{port}"}
    wait_until(
        lambda: product.session.get(origin.url("/hello"), proxies=through, timeout=10).status_code == 200, "it runs"
    )
    product.data("DELETE", f"/proxies/{made['id']}")


def test_a_test_that_fails_ends_with_1(shell: Shell, proxy: dict[str, Any], origin: Origin) -> None:
    assert shell.good("proxies", "test", proxy["name"], "--target", origin.url("/hello")).rows[0][1:3] == [
        "success",
        "200",
    ]
    failed = shell("proxies", "test", proxy["name"], "--target", "http://127.0.0.1:1/")
    assert (failed.status, failed.rows[0][1]) == (1, "failed")


def test_the_environment_of_a_shell_is_set_by_lines_to_copy(
    shell: Shell, product: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    lines = shell.good("proxies", "snippets", proxy["name"], "environment").out
    script = f"{lines}\nno_proxy= NO_PROXY= exec {sys.executable} -c '{FETCH}' {origin.url('/hello')}"
    clean = {name: value for name, value in shell.env.items() if not name.lower().endswith("_proxy")}
    fetched = subprocess.run(["bash", "-ec", script], env=clean, capture_output=True, text=True, timeout=180)
    assert fetched.stdout == "hello\n", fetched.stderr
    wait_until(lambda: shell.good("logs", "--proxy", proxy["name"]).rows, "the request went through the proxy")
    assert shell.good("proxies", "snippets", proxy["name"]).out.count("# ") >= 8
    assert shell("proxies", "snippets", proxy["name"], "telnet").status == 2


FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())"


def test_explain_says_which_rule_decides(shell: Shell, product: Product, proxy: dict[str, Any]) -> None:
    product.api("PATCH", f"/proxies/{proxy['id']}", {"access": {"deny_destinations": ["example.com"]}})
    result = shell.good("proxies", "explain", proxy["name"], "http://example.com/").details
    assert (result["decision"], "deny_destinations" in result["rule"]) == ("deny", True)
    assert result["reason"] == "destination_denied: target denied"
    assert "headers" not in result
    assert "TLS name" not in shell.good("proxies", "explain", proxy["name"], "example.com:443").details
    named = shell.good("proxies", "explain", proxy["name"], "example.com:443", "--tls-name", "a.example").details
    assert (named["decision"], named["stage"], named["TLS name"]) == ("deny", "name", "is not reached")


def test_explain_says_what_becomes_of_the_name_in_a_handshake(shell: Shell, proxy: dict[str, Any]) -> None:
    shell.good("proxies", "update", proxy["name"], "--set", 'access={"allow_destinations": ["1.1.1.1", "one.example"]}')
    explain = ("proxies", "explain", proxy["name"], "1.1.1.1:443")
    shown = shell.good(*explain)
    assert shown.details["TLS name"] == "is recorded, and nothing is refused (record: tls_name)"
    assert [line for line in shown.out.splitlines() if line != line.rstrip(" ")] == []
    shell.good("proxies", "update", proxy["name"], "--tls-name", "match")
    found = shell.good(*explain, "--tls-name", "one.example").details
    assert found["TLS name"] == "must be one that this request might have been for (match: tls_name)"
    assert (found["decision"], found["one.example"]) == ("allow", "passes (match)")
    found = shell.good(*explain, "--tls-name", "").details
    assert (found["decision"], found["stage"]) == ("deny", "tls_name")
    assert found["without a name"] == "is refused: no_name: the handshake has no name, and 1.1.1.1 was requested"
    unchecked = shell.good("proxies", "explain", proxy["name"], "1.1.1.1:80", "--tls-name", "a.example").details
    assert unchecked["TLS name"] == "is not read in what goes to port 80"


def test_explain_has_the_rule_that_decides_before_the_others(shell: Shell, proxy: dict[str, Any]) -> None:
    matches = [*({"destinations": [f"{name}.test"]} for name in "abc"), {}]
    rules = [{"name": f"r{n}", "match": each, "action": {"use": "deny"}} for n, each in enumerate(matches)]
    shell.good("policies", "create", "long", "--set", f"rules={json.dumps(rules)}")
    shell.good("proxies", "update", proxy["name"], "--policy", "long")
    lines = shell.good("proxies", "explain", proxy["name"], "http://1.1.1.1/").out.splitlines()
    places = [line.split("\t")[0] for line in lines if line.startswith("long[")]
    assert places == ["long[3]", "long[0]", "long[1]", "long[2]"]
    assert lines.index(next(line for line in lines if line.startswith("long[3]"))) < len(lines) - 3
    assert any(line.startswith("long[3]\t'r3' matches: ") for line in lines)
    assert any(line.startswith("long[0]\t'r0' does not match: ") for line in lines)
    shell.good("proxies", "update", proxy["name"], "--set", "policy=null")
    shell.good("policies", "delete", "long", "--yes")


def test_explain_tries_a_policy_before_it_is_stored(shell: Shell, proxy: dict[str, Any], tmp_path: Path) -> None:
    draft = tmp_path / "draft.toml"
    draft.write_text(
        'name = "new"\n[[rules]]\nname = "none"\n'
        'match = { destinations = ["example.com"] }\naction = { use = "deny" }\n'
    )
    explain = ("proxies", "explain", proxy["name"], "http://example.com/")
    result = shell.good(*explain, "--draft", str(draft)).details
    assert (result["decision"], result["rule"]) == ("deny", "policy new[0] none")
    draft.write_text(draft.read_text().replace("] }", '], until = "2040-01-01T00:00:00Z" }', 1))
    later = shell.good(*explain, "--draft", str(draft), "--at", "2040-01-02").details
    assert later["rule"] != result["rule"] == shell.good(*explain, "--draft", str(draft)).details["rule"]
    as_json = '{"name": "new", "rules": [{"action": {"use": "nonsense"}}]}'
    refused = shell(*explain, "--draft", "-", stdin=as_json)
    assert refused.status != 0
    assert "draft.rules[0]" in refused.err
    assert "new" not in shell.good("policies", "list").out


def test_one_that_fails_among_several_doesnt_stop_the_others(shell: Shell, product: Product) -> None:
    one, two = product.proxy(), product.proxy()
    product.data("POST", f"/proxies/{one['id']}/stop")
    with socket.create_server(("127.0.0.1", one["port"])):
        ran = shell("proxies", "start", one["name"], two["name"])
    assert ran.status == 1
    assert f"{two['name']}: The proxy was active already" in ran.out
    assert f"port: port {one['port']}" in ran.err
    shell.good("proxies", "delete", one["name"], two["name"], "--yes")


def test_an_account_is_added_limited_disabled_and_removed(shell: Shell, proxy: dict[str, Any]) -> None:
    name = proxy["name"]
    shell.good(
        "accounts",
        "create",
        name,
        "eve",
        "--quota",
        "2048",
        "--period",
        "day",
        "--password-stdin",
        stdin="open sesame\n",
    )
    (row,) = shell.good("accounts", "list", name).rows
    assert row[:6] == ["eve", "yes", "0", "0", "2048", "day"]
    shell.good("accounts", "update", name, "eve", "--disable", "--connections", "3")
    printed = shell.good("accounts", "show", name, "eve", "-o", "json").data["account"]
    assert (printed["enabled"], printed["limits"]["connections"], printed["quota"]["bytes"]) == (False, 3, 2048)
    shell.good("accounts", "reset-usage", name, "eve")
    assert shell("accounts", "show", name, "mallory").status == 5
    assert shell("accounts", "delete", name, "eve").status == 2
    shell.good("accounts", "delete", name, "eve", "--yes")
    assert shell.good("accounts", "list", name).rows == []


def test_a_proxy_that_anybody_could_use_is_warned_of(shell: Shell, product: Product) -> None:
    given = ("--name", "open", "--protocol", "http", "--host", "0.0.0.0", "--port", str(product.free_port()))
    made = shell.good("proxies", "create", *given)
    assert made.err.startswith("warning: ")
    assert "warning" in shell.good("proxies", "stop", "open").err
    assert shell.good("proxies", "show", "open", "-o", "json").err == ""
    shell.good("proxies", "delete", "open", "--yes")


def test_a_user_is_created_changed_disabled_and_deleted(shell: Shell, stranger: Shell) -> None:
    shell.good("users", "create", "carol", "--role", "operator", "--password-stdin", stdin="carols first password\n")
    assert "operator" in next(row for row in shell.good("users", "list").rows if row[0] == "carol")
    stranger.good("login", "-u", "carol", "--password-stdin", stdin="carols first password\n")
    shell.good(
        "users", "update", "carol", "--password-stdin", "--email", "carol@example.com", stdin="another password\n"
    )
    assert stranger("whoami").status == 4
    stranger.good("login", "-u", "carol", "--password-stdin", stdin="another password\n")
    shell.good("users", "update", "carol", "--status", "disabled")
    assert shell.good("users", "show", "carol").details["status"] == "disabled"
    shell.good("users", "delete", "carol", "--yes")
    assert shell("users", "show", "carol").status == 5


def test_users_of_each_role_give_their_current_password_for_another_one(shell: Shell, stranger: Shell) -> None:
    for name, role in (("chief", "administrator"), ("viewer", "user")):
        first, own = f"{name}s first password", ("users", "update", name, "--password-stdin")
        shell.good("users", "create", name, "--role", role, "--password-stdin", stdin=f"{first}\n")
        stranger.good("login", "-u", name, "--password-stdin", stdin=f"{first}\n")
        wrong = stranger(*own, stdin="a guess at it\na second password\n")
        assert (wrong.status, "current_password" in wrong.err) == (1, True), wrong
        stranger.good(*own, stdin=f"{first}\na second password\n")
        stranger.good("login", "-u", name, "--password-stdin", stdin="a second password\n")
        shell.good("users", "delete", name, "--yes")


def test_sessions_are_listed_and_ended(shell: Shell, stranger: Shell) -> None:
    shell.good("users", "create", "dora", "--role", "user", "--password-stdin", stdin="a longer password\n")
    stranger.good("login", "-u", "dora", "--password-stdin", stdin="a longer password\n")
    (own,) = stranger.good("sessions", "list", "-o", "json").data["sessions"]
    assert (own["kind"], own["current"]) == ("interactive", True)
    assert shell("sessions", "end", own["id"]).status == 5, "it is not one of one's own"
    assert any(own["id"] in row for row in shell.good("sessions", "list", "--user", "dora").rows)
    shell.good("sessions", "end", own["id"][:10], "--user", "dora")
    assert stranger("whoami").status == 4
    shell.good("users", "delete", "dora", "--yes")


def test_a_key_is_shown_once_and_opens_what_it_may(shell: Shell, stranger: Shell, proxy: dict[str, Any]) -> None:
    made = shell.good(
        "keys", "create", "robot", "--permission", "proxy.read", "--expires", "1h", "--proxy", proxy["name"]
    )
    key = made.out.strip()
    assert re.fullmatch(r"pf_[0-9A-Za-z]{40}", key)
    listed = stranger.good("proxies", "list", "-o", "json", PROXYFLEET_API_KEY=key).data["proxies"]
    assert [one["id"] for one in listed] == [proxy["id"]]
    refused = stranger("proxies", "stop", proxy["name"], PROXYFLEET_API_KEY=key)
    assert refused.status == 4
    assert "proxy.write" in refused.err
    assert key not in shell.good("keys", "list", "-o", "json").out
    shell.good("keys", "revoke", "robot", "--yes")
    assert stranger("proxies", "list", PROXYFLEET_API_KEY=key).status == 4


def test_a_webhook_is_created_with_its_secret_and_deleted(shell: Shell) -> None:
    made = shell.good(
        "webhooks", "create", "--name", "pager", "--target", "https://example.com/x", "--event", "proxy.*"
    )
    assert re.search(r"^whsec_\S+$", made.out, re.MULTILINE)
    shell.good("webhooks", "update", "pager", "--disable", "--header", "X-Team: net")
    printed = shell.good("webhooks", "show", "pager").details
    assert (printed["enabled"], printed["headers"], printed["waiting"]) == ("no", "X-Team: net", "-")
    assert not [value for value in printed.values() if "{" in value], "people don't read JSON"
    assert shell.good("webhooks", "deliveries", "pager").rows == []
    shell.good("webhooks", "delete", "pager", "--yes")


def test_a_live_connection_is_listed_and_ended(shell: Shell, product: Product) -> None:
    proxy = product.proxy(protocol="http")
    with (
        socket.create_server(("127.0.0.1", 0)) as target,
        socket.create_connection(("127.0.0.1", proxy["port"])) as one,
    ):
        authority = f"127.0.0.1:{target.getsockname()[1]}"
        one.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        assert one.recv(1000).startswith(b"HTTP/1.1 200")
        (row,) = shell.good("connections", "list", proxy["name"]).rows
        assert (row[0], row[3], row[4]) == (proxy["name"], authority, "tunnel")
        assert shell.good("connections", "end", proxy["name"], row[-1]).out == f"{row[-1]} is closed.\n"
        one.settimeout(10)
        assert one.recv(1) == b""
    assert shell("connections", "end", proxy["name"], row[-1]).status == 5
    assert shell("connections", "end", proxy["name"]).status == 2
    product.data("DELETE", f"/proxies/{proxy['id']}")


def test_connections_of_all_proxies_are_counted_and_ended_together(shell: Shell, product: Product) -> None:
    proxies = [product.proxy(protocol="http") for _ in range(2)]
    with socket.create_server(("127.0.0.1", 0)) as target, ExitStack() as stack:
        authority = f"127.0.0.1:{target.getsockname()[1]}"
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", each["port"]))) for each in proxies]
        for each in clients:
            each.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
            assert each.recv(1000).startswith(b"HTTP/1.1 200")
        assert len(shell.good("connections", "list", "--target", authority, "--limit", "1").rows) == 1
        rows = shell.good("connections", "list", "--target", authority).rows
        assert {row[0] for row in rows} == {each["name"] for each in proxies}
        counted = shell.good("connections", "list", "--target", authority, "--group-by", "target").rows
        assert [row[:2] for row in counted] == [[authority, "2"]]
        asked = shell("connections", "end", "--target", authority)
        assert (asked.status, "--yes" in asked.err) == (2, True)
        assert shell.good("connections", "end", "--target", authority, "--yes").out == "2 closed.\n"
        for each in clients:
            each.settimeout(10)
            assert each.recv(1) == b""
    assert shell("connections", "end").status == 2
    for each in proxies:
        product.data("DELETE", f"/proxies/{each['id']}")


def test_settings_are_shown_and_set(shell: Shell) -> None:
    before = dict(row[:2] for row in shell.good("settings", "show").rows)
    shell.good("settings", "set", "proxy.default_timeout=31")
    after = dict(row[:2] for row in shell.good("settings", "show").rows)
    assert after == {**before, "proxy.default_timeout": "31"}
    unset = shell.good("settings", "unset", "proxy.default_timeout")
    assert unset.rows == [["proxy.default_timeout", before["proxy.default_timeout"]]]
    assert shell.good("settings", "set", "proxy.default_timeout=32", "logging.level=info").rows == [
        ["logging.level", "info"],
        ["proxy.default_timeout", "32"],
    ]
    everything = shell.good("settings", "unset", "proxy.default_timeout", "logging.level", "-o", "json").data
    assert everything.keys() == {"server", "logging", "auth", "proxy", "history"}
    assert dict(row[:2] for row in shell.good("settings", "show").rows) == before
    assert shell("settings", "unset", "proxy.colour").status == 5
    refused = shell("settings", "set", "logging.level=loud")
    assert (refused.status, "logging.level: must be one of" in refused.err) == (1, True)
    fixed = shell("settings", "set", "webhooks.allow_private=true")
    assert (fixed.status, "configuration file" in fixed.err) == (1, True)
    bare = shell("settings", "set", "logging.level")
    assert (bare.status, "must be GROUP.KEY=VALUE" in bare.err) == (2, True)


def test_the_source_of_a_setting_is_the_api_once_it_was_set_there(shell: Shell, product: Product) -> None:
    shell.good("settings", "set", "proxy.keep_alive_timeout=61")
    rows = {row[0]: row[1:] for row in shell.good("settings", "sources", "--changed").rows}
    assert rows["proxy.keep_alive_timeout"] == ["61", "API", "at once"]
    assert rows["data_dir"] == [str(product.data_dir), "command line", "restart"]
    assert rows["proxy.egress_allow"][1:] == ["PROXYFLEET_PROXY__EGRESS_ALLOW", "restart"]
    assert "admin_password" not in rows
    shell.good("settings", "unset", "proxy.keep_alive_timeout")
    everything = {row[0]: row[1:] for row in shell.good("settings", "sources").rows}
    assert everything["proxy.keep_alive_timeout"] == ["60", "default", "at once"]
    assert everything["alerts.error_rate"] == ["10.0", "default", "reload"]


def test_metrics_are_a_row_for_each_bucket_and_status_tells_of_the_parts(shell: Shell) -> None:
    table = shell.good("metrics", "error_rate", "requests_total", "--interval", "5m", "--since", "15m")
    assert table.out.splitlines()[0] == "TIME\terror_rate\trequests_total"
    assert 3 <= len(table.rows) <= 4
    assert "requests_per_second" in shell.good("metrics", "--now").details
    assert shell.good("status").details["database"].startswith("healthy")
    unknown = shell("metrics", "happiness")
    assert (unknown.status, "metrics" in unknown.err) == (1, True)
    now = shell("metrics", "happiness", "--now")
    assert (now.status, "error_rate" in now.err) == (2, True)
    assert list(shell.good("metrics", "error_rate", "--now").details) == ["time", "error_rate"]
    assert shell("metrics", "--now", "--since", "1d").status == 2


def test_the_audit_trail_tells_who_did_what(shell: Shell, proxy: dict[str, Any]) -> None:
    rows = shell.good("audit", "list", "--action", "proxy.created", "--resource-id", proxy["id"]).rows
    assert [row[2:5] for row in rows] == [["proxy.created", "done", "admin"]]
    assert shell.good("audit", "list", "--action", "proxy.created", "--resource-id", proxy["name"]).rows == rows
    shell.good("proxies", "update", proxy["name"], "--tag", "audited")
    (row,) = shell.good("audit", "list", "--resource-id", proxy["name"], "--limit", "1").rows
    assert row[-1] == "tags"
    details = shell.good("audit", "show", row[0]).details
    assert (details["action"], details["by"]) == ("proxy.updated", "admin")
    assert details["tags"].endswith("→ audited")
    assert shell("audit", "show", "999999").status == 5


@pytest.fixture(scope="module")
def origin() -> Any:
    server = Origin()
    with serving(server):
        yield server


def test_a_proxy_without_its_last_account_rejects_all_clients_with_a_note(shell: Shell, proxy: dict[str, Any]) -> None:
    name = proxy["name"]
    shell.good("accounts", "create", name, "bob", "--quota", "2.048kB", "--password-stdin", stdin="bobs password\n")
    printed = shell.good("accounts", "show", name, "bob").details
    assert (printed["quota"], printed["period"], printed["used"], printed["networks"]) == ("2048", "total", "0", "any")
    assert shell.good("proxies", "show", name).details["sign-in"] == "as an account"
    removed = shell.good("accounts", "delete", name, "bob", "--yes")
    assert "rejects all clients" in removed.err
    assert "all clients are rejected" in shell.good("proxies", "show", name).details["sign-in"]
    shell.good("proxies", "update", name, "--no-sign-in")
    assert shell.good("proxies", "show", name).details["sign-in"] == "not required"


def test_the_password_gets_into_the_lines_percent_encoded_when_it_is_given(shell: Shell, product: Product) -> None:
    odd = "'\"$ @:/%"
    proxy = product.proxy(auth={"enabled": True, "username": "alice", "password": odd})
    bare = shell.good("proxies", "snippets", proxy["name"], "curl")
    assert ("alice:PASSWORD@" in bare.out, "percent-encoded" in bare.err) == (True, True)
    filled = shell.good("proxies", "snippets", proxy["name"], "--password-stdin", stdin=f"{odd}\n")
    assert "PASSWORD" not in filled.out + filled.err
    assert "alice:%27%22%24%20%40%3A%2F%25@" in filled.out
    product.data("DELETE", f"/proxies/{proxy['id']}")


def test_lines_of_a_proxy_for_accounts_of_the_fleet_name_the_user_that_is_given(shell: Shell, product: Product) -> None:
    proxy = product.proxy(auth={"enabled": True})
    bare = shell.good("proxies", "snippets", proxy["name"], "curl")
    assert "http://USER:PASSWORD@" in bare.out
    assert "--user inserts it" in bare.err
    line = ("proxies", "snippets", proxy["name"], "curl", "--user", "bob", "--password-stdin")
    filled = shell.good(*line, stdin="two words\n")
    assert (f"http://bob:two%20words@127.0.0.1:{proxy['port']}" in filled.out, filled.err) == (True, "")
    product.data("PATCH", f"/proxies/{proxy['id']}", {"auth": {"enabled": False}})
    assert "these lines have no password" in shell.good(*line, stdin="two words\n").err
    product.data("DELETE", f"/proxies/{proxy['id']}")


def test_a_client_that_does_not_speak_the_protocol_gets_no_line(shell: Shell, product: Product) -> None:
    proxy = product.proxy(protocol="socks4")
    refused = shell("proxies", "snippets", proxy["name"], "apt")
    assert (refused.status, refused.out, "doesn't speak" in refused.err) == (1, "", True)
    everything = shell.good("proxies", "snippets", proxy["name"]).out
    assert "# apt\n# (does not speak this protocol)\n" in everything
    product.data("DELETE", f"/proxies/{proxy['id']}")


def test_a_key_is_shown_with_what_it_is_good_for(shell: Shell, proxy: dict[str, Any]) -> None:
    shell.good("keys", "create", "ci", "--permission", "proxy.read", "--proxy", proxy["name"], "--expires", "1y")
    printed = shell.good("keys", "show", "ci").details
    assert (printed["proxies"], printed["owner"]) == (proxy["name"], "admin")
    assert any(proxy["name"] in row and "admin" in row for row in shell.good("keys", "list").rows)
    assert (printed["permissions"], printed["proxies"], printed["networks"]) == ("proxy.read", proxy["name"], "any")
    assert shell.good("keys", "show", "ci", "-o", "json").data["api_key"]["name"] == "ci"
    shell.good("keys", "revoke", "ci", "--yes")


def test_a_certificate_is_given_by_options_of_its_own(shell: Shell, product: Product, tmp_path: Path) -> None:
    cert, key = make_pair(tmp_path)
    port = str(product.free_port())
    create = ("proxies", "create", "--name", "sealed", "--protocol", "https", "--port", port)
    refused = shell(*create)
    assert (refused.status, "tls (--cert-file and --key-file): is required" in refused.err) == (1, True)
    shell.good(*create, "--cert-file", cert, "--key-file", key)
    shell.good("proxies", "delete", "sealed", "--yes")
