"""`proxyfleet export`, `import` and `apply`: the configuration as a file, and only listed changes are made."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.kit.ports import free_port
from tests.kit.product import Product
from tests.product.cli.shell import Shell, signed_in

pytestmark = pytest.mark.product


@pytest.fixture
def fleet(own_product: Product) -> Product:
    """An empty one: a whole configuration is compared."""
    return own_product


@pytest.fixture
def shell(fleet: Product, tmp_path: Path) -> Shell:
    return signed_in(fleet, tmp_path / "home")


def file_of(folder: Path, text: str) -> str:
    file = folder / "fleet.toml"
    file.write_text(text)
    return str(file)


def proxy_of(name: str, port: int, **more: Any) -> str:
    lines = [
        f'name = "{name}"',
        'protocol = "http"',
        f"port = {port}",
        *(f"{key} = {value}" for key, value in more.items()),
    ]
    return "[[proxies]]\n" + "\n".join(lines) + "\n"


def test_a_dry_run_shows_the_difference_and_changes_nothing(shell: Shell, fleet: Product, tmp_path: Path) -> None:
    port = fleet.free_port()
    printed = shell.good("apply", "-f", file_of(tmp_path, proxy_of("desk", port)), "--dry-run")
    assert "+ proxy desk\n" in printed.out
    assert f"    port: {port}\n" in printed.out
    assert "1 would be created" in printed.out
    assert fleet.data("GET", "/proxies")["proxies"] == []


def test_what_is_wrong_with_a_file_is_reported_with_its_lines(shell: Shell, fleet: Product, tmp_path: Path) -> None:
    good = proxy_of("desk", fleet.free_port())
    file = file_of(tmp_path, f"# ours\n{good}\n{proxy_of('lab', 99999)}protcol = 1\n[serve]\nx = 1\n")
    refused = shell("apply", "-f", file, "--dry-run")
    assert refused.status == 1
    assert f"{file}:10: proxies[1].port: " in refused.err
    assert f"{file}:11: proxies[1].protcol: is not a known field" in refused.err
    assert f"{file}:12: serve: is not a known field" in refused.err
    assert "proxyfleet export" in refused.err
    piped = shell("apply", "-f", "-", "--dry-run", stdin=json.dumps({"serve": {}}))
    assert "standard input: serve: is not a known field" in piped.err


def test_of_what_is_new_only_what_the_file_has_is_shown(shell: Shell, fleet: Product, tmp_path: Path) -> None:
    file = file_of(tmp_path, proxy_of("desk", fleet.free_port()))
    printed = shell.good("apply", "-f", file, "--dry-run").out
    assert [line.split(":")[0].strip() for line in printed.splitlines()[1:3]] == ["port", "protocol"]
    assert "1 would be created; 0 unchanged.\n" in printed


def test_an_export_is_utf_8_in_every_locale_and_is_read_so(shell: Shell, fleet: Product) -> None:
    fleet.proxy(name="Büro 世界")
    for locale in ({"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C"}):
        plain = {**shell.env, **locale, "PYTHONUTF8": "0"}
        command = [sys.executable, "-m", "supervisor"]
        exported = subprocess.run([*command, "export"], capture_output=True, timeout=180, env=plain, check=True).stdout
        assert "Büro 世界" in [proxy["name"] for proxy in tomllib.loads(exported.decode())["proxies"]]
        back = [*command, "import", "-", "--dry-run"]
        read = subprocess.run(back, capture_output=True, timeout=180, env=plain, input=exported)
        assert b"Nothing to change" in read.stdout, read.stderr


def test_apply_makes_it_so_and_again_changes_nothing(shell: Shell, fleet: Product, tmp_path: Path) -> None:
    port = fleet.free_port()
    file = file_of(tmp_path, proxy_of("desk", port, tags='["a"]') + "[settings.proxy]\ndefault_timeout = 33\n")
    done = shell.good("apply", "-f", file, "--yes")
    assert "1 created, 1 changed" in done.out
    assert shell.good("proxies", "show", "desk").details["tags"] == "a"
    assert shell.good("apply", "-f", file).out == (
        "Nothing to change; 2 unchanged in the fields that the file has.\n"
        "Not compared: users, webhooks, plans, lists, pools, policies, accounts, of which the file has no section.\n"
    )
    assert shell.good("apply", "-f", file, "--check").status == 0
    changed = file_of(tmp_path, proxy_of("desk", port, tags='["b"]'))
    assert shell("apply", "-f", changed, "--check").status == 6
    assert "~ proxy desk\n    tags: a → b\n" in shell.good("apply", "-f", changed, "--yes").out
    assert shell.good("apply", "-f", changed, "--yes", "-o", "json").data["changed"] is False


def test_prune_deletes_what_the_file_does_not_have_and_asks_first(shell: Shell, fleet: Product, tmp_path: Path) -> None:
    fleet.proxy(name="old")
    file = file_of(tmp_path, proxy_of("new", fleet.free_port()))
    refused = shell("apply", "-f", file, "--prune")
    assert (refused.status, "- proxy old" in refused.out) == (2, True)
    assert [proxy["name"] for proxy in fleet.data("GET", "/proxies")["proxies"]] == ["old"]
    with shell.terminal("apply", "-f", file, "--prune") as terminal:
        terminal.until("Do it?")
        assert "\x1b[31m- proxy old" in terminal.text
        terminal.type("y\n")
        assert terminal.end() == 0
    assert [proxy["name"] for proxy in fleet.data("GET", "/proxies")["proxies"]] == ["new"]


def test_a_change_by_another_user_between_the_comparison_and_the_yes_is_not_overwritten(
    shell: Shell, fleet: Product, tmp_path: Path
) -> None:
    file = file_of(tmp_path, proxy_of("desk", fleet.free_port()))
    with shell.terminal("apply", "-f", file) as terminal:
        terminal.until("Do it?")
        fleet.proxy(name="meanwhile")
        terminal.type("y\n")
        assert terminal.end() == 1
    assert "The configuration has changed meanwhile" in terminal.text
    assert [proxy["name"] for proxy in fleet.data("GET", "/proxies")["proxies"]] == ["meanwhile"]


def test_an_export_as_toml_or_json_is_what_apply_takes_and_changes_nothing(
    shell: Shell, fleet: Product, tmp_path: Path
) -> None:
    auth = {"enabled": True, "username": "u", "password": "open sesame"}
    fleet.proxy(name="desk", auth=auth, tags=["a"], accounts=[{"username": "x", "password": "another one"}])
    hook = {"name": "h", "url": "https://example.com/", "events": ["*"], "headers": {"X-Token": "secret"}}
    fleet.data("POST", "/webhooks", hook)
    for name in ("fleet.toml", "fleet.json"):
        file = tmp_path / name
        wrote = shell.good("export", str(file))
        assert "1 proxy, " in wrote.err + wrote.out
        assert " policies, " in wrote.err + wrote.out
        assert file.stat().st_mode & 0o777 == 0o600
        assert "Nothing to change" in shell.good("apply", "-f", str(file), "--prune").out
        assert "Nothing to change" in shell.good("import", str(file), "--prune").out
    assert tomllib.loads(shell.good("export").out)["proxies"][0]["name"] == "desk"
    assert shell.good("export", "-o", "json").data == json.loads((tmp_path / "fleet.json").read_text())


def test_a_hyphen_is_standard_output_of_every_export(shell: Shell, fleet: Product) -> None:
    fleet.proxy(name="desk")
    assert tomllib.loads(shell.good("export", "-").out)["proxies"][0]["name"] == "desk"
    assert shell.good("export", "-", "-o", "json").data["proxies"][0]["name"] == "desk"
    assert shell.good("accounts", "export", "-").out == shell.good("accounts", "export").out
    assert shell.good("logs", "--export", "-", "--proxy", "desk").out == ""
    assert not Path("-").exists()


def test_secrets_travel_under_a_passphrase(shell: Shell, fleet: Product, tmp_path: Path) -> None:
    secret = tmp_path / "passphrase"
    secret.write_text("correct horse, battery\n")
    upstream = {"protocol": "http", "host": "127.0.0.1", "port": 9, "auth": {"username": "u", "password": "sesame"}}
    made = fleet.proxy(name="chained", upstreams=[upstream], upstream_check={"enabled": False})
    file = tmp_path / "fleet.toml"
    shell.good("export", str(file), "--secrets", "--passphrase-file", str(secret))
    fleet.data("DELETE", f"/proxies/{made['id']}")
    by_hand = tmp_path / "by-hand.toml"
    by_hand.write_text('[[proxies]]\nname = "chained"\n')
    mistaken = shell("import", str(by_hand), "--yes")
    assert (mistaken.status, "proxyfleet apply FILE" in mistaken.err) == (2, True)
    unasked = shell("import", str(file), "--yes")
    assert (unasked.status, "--passphrase-file" in unasked.err) == (2, True)
    secret.write_text("another passphrase\n")
    refused = shell("import", str(file), "--yes", "--passphrase-file", str(secret))
    assert (refused.status, "another passphrase" in refused.err) == (1, True)
    secret.write_text("correct horse, battery\n")
    assert "+ proxy chained" in shell.good("import", str(file), "--yes", "--passphrase-file", str(secret)).out


def test_everything_that_is_wrong_is_reported_at_once_with_its_path(shell: Shell, tmp_path: Path) -> None:
    file = file_of(
        tmp_path, '[[proxies]]\nname = "x"\nport = 0\nprotocol = "ftp"\n[settings.logging]\nlevel = "loud"\n'
    )
    refused = shell("apply", "-f", file, "--yes")
    assert refused.status == 1
    for path in ("proxies[0].port", "proxies[0].protocol", "settings.logging.level"):
        assert path in refused.err
    broken = shell("apply", "-f", file_of(tmp_path, "[[proxies]\n"))
    assert (broken.status, "line 1" in broken.err) == (2, True)
    assert shell("apply", "-f", str(tmp_path / "none.toml")).status == 2


def test_a_file_comes_by_standard_input(shell: Shell, fleet: Product) -> None:
    text = proxy_of("piped", fleet.free_port())
    assert "1 created" in shell.good("apply", "-f", "-", "--yes", stdin=text).out


def test_a_user_is_as_in_the_file_again_whose_permissions_were_those_of_the_role(
    shell: Shell, fleet: Product, tmp_path: Path
) -> None:
    body = {"username": "clerk", "password": "long enough", "role": "operator"}
    clerk = fleet.data("POST", "/users", body)["user"]
    file = tmp_path / "all.toml"
    shell.good("export", str(file))
    assert 'permissions = "role"' in file.read_text()
    fleet.data("PATCH", f"/users/{clerk['id']}", {"permissions": ["admin"], "email": "clerk@example.com"})
    result = shell.good("apply", "-f", str(file), "--yes", "-o", "json").data
    assert [field["field"] for change in result["changes"] for field in change["fields"]] == ["email", "permissions"]
    again = fleet.data("GET", f"/users/{clerk['id']}")["user"]
    assert (again["permissions"], again["email"]) == (clerk["permissions"], None)
    fleet.data("DELETE", f"/users/{clerk['id']}")


def test_groups_of_what_is_new_are_shown_field_by_field_with_units(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    text = '[[proxies]]\nname = "fresh"\nprotocol = "http"\nport = 1234\n'
    file.write_text(f"{text}limits = {{ bandwidth_in = 1048576, connections_per_client = 5 }}\n")
    printed = shell.good("apply", str(file), "--dry-run").out
    assert "    limits.bandwidth_in: 1 MiB/s\n    limits.connections_per_client: 5\n" in printed
    assert "{" not in printed


def test_a_minimal_export_is_short_and_makes_the_same_again(shell: Shell, tmp_path: Path) -> None:
    name = "only-this"
    shell.good(
        *("proxies", "create", name, "--protocol", "http", "--port", str(free_port()), "--tag", "a"),
        *("--set", "limits.bandwidth_in=1Mbit/s", "--set", "settings.keep_alive=false"),
    )
    shell.good("accounts", "create", name, "eve", "--quota", "5MB", "--password-stdin", stdin="eves password\n")
    full, file = tmp_path / "full.json", tmp_path / "minimal.toml"
    shell.good("export", str(full))
    phrase = tmp_path / "phrase"
    phrase.write_text("a passphrase of some length\n")
    sealed = ("--passphrase-file", str(phrase))
    shell.good("export", str(file), "--minimal", "--secrets", *sealed)
    result = file.read_text().partition("[[users]]")[0]
    for left_out in ("max_connections", "upstream_policy", "deny_clients", "bandwidth_out", "status ="):
        assert left_out not in result, result
    assert "email_claimed" not in file.read_text()
    assert re.fullmatch(r"Nothing to change; \d+ unchanged\.\n", shell.good("apply", str(file), "--check", *sealed).out)
    shell.good("proxies", "update", name, "--set", 'access.deny_destinations=["*.bank.test"]')
    shell.good("accounts", "create", "stranger", "--password-stdin", stdin="a good password\n")
    drifted = shell("apply", str(file), "--check", *sealed)
    assert (drifted.status, drifted.out.splitlines()[1:]) == (
        6,
        [
            "    access.deny_destinations: *.bank.test → -",
            drifted.out.splitlines()[2],
            "Not compared: 1 account that the file lacks (--prune deletes them).",
        ],
    )
    assert "- account stranger" in shell("apply", str(file), "--check", "--prune", *sealed).out
    shell.good("apply", str(file), "--yes", "--prune", *sealed)
    shell.good("proxies", "delete", name, "--yes")
    shell.good("import", str(file), "--yes", *sealed)
    again = tmp_path / "again.json"
    shell.good("export", str(again))
    one, other = (
        next(each for each in json.loads(each.read_text())["proxies"] if each["name"] == name) for each in (full, again)
    )
    assert one == other
    shell.good("proxies", "delete", name, "--yes")
