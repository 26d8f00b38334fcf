"""What all commands have in common: help, names as arguments, other names, questions, and errors that come once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer.main

from api.cli.application import COMMANDS, application
from api.cli.commands import converted
from api.cli.errors import CommandError, combined
from api.cli.local import backup
from api.cli.remote.history import AUDIT_COLUMNS as AUDIT
from api.cli.remote.objects import DELIVERIES, sent_again
from api.cli.terminal import Output
from config import VERSION
from tests.kit.product import Product
from tests.kit.tables import table
from tests.product.cli.commands import all_commands
from tests.product.cli.shell import Shell


@table("name", lambda: [name for name, _ in all_commands()])
def test_every_command_has_help_by_its_short_option(stranger_at_nothing: Shell, name: str) -> None:
    assert "Usage: proxyfleet" in stranger_at_nothing.good(*name.split(), "-h").out


def top_level(*words: str) -> dict[str, Any]:
    commands: dict[str, Any] = typer.main.get_group(application(words)).commands
    return commands


def test_each_command_is_in_the_module_that_the_table_names() -> None:
    assert {*COMMANDS, "completion", "version"} == top_level().keys()
    for name in COMMANDS:
        assert name in top_level(name), name


def test_a_line_that_names_a_command_gets_this_one_and_one_that_does_not_gets_all_of_the_group() -> None:
    assert list(top_level("proxies", "show", "office")["proxies"].commands) == ["show"]
    for words in (("proxies",), ("proxies", "shwo"), ("proxies", "--help")):
        assert {"list", "show", "explain"} <= top_level(*words)["proxies"].commands.keys()
    assert top_level("proxxies").keys() == top_level("--version").keys() == top_level().keys()


VALUES: tuple[Any, ...] = ("http", "table", "5", "", (), ("a", "b"), ["a"], True, False, 30.0, 5)


def test_what_a_value_becomes_by_its_type_alone_is_what_typer_makes_of_it() -> None:
    compared = 0
    for name, command in all_commands():
        for each in command.params:
            for value in (*VALUES, each.default):
                found = converted(each.type_descriptor.annotation, value)
                if found is None or (type(value) in (int, float) and value != each.default):
                    continue
                usual = each.get_runtime_param().coerce(value, param=each, ctx=None)
                assert (found, type(found)) == (usual, type(usual)), (name, each.name, value)
                compared += 1
    assert compared > 1000


@pytest.fixture
def stranger_at_nothing(tmp_path: Path) -> Shell:
    return Shell(tmp_path, "http://127.0.0.1:1")


def test_the_version_is_an_option_too(stranger_at_nothing: Shell) -> None:
    assert stranger_at_nothing.good("--version").out == f"proxyfleet {VERSION}\n"


def test_an_error_of_an_entry_of_a_list_names_the_option() -> None:
    error = CommandError("no")
    error.options = {"scope.ip_whitelist": "--network"}
    assert error.label("scope.ip_whitelist[0]") == "scope.ip_whitelist[0] (--network)"
    assert error.label("scope.ip_whitelist_x") == "scope.ip_whitelist_x"


@table(
    ("before", "after", "named"),
    [
        (None, {"id": "settings", "logging": {"level": "debug"}}, "logging.level"),
        ({"logging": {"level": "debug"}}, {"proxy": {"default_timeout": 9}}, "logging.level, proxy.default_timeout"),
        ({"id": "settings", "logging": {"level": "debug"}}, None, "logging.level"),
    ],
)
def test_a_change_of_settings_names_them_the_first_and_the_last_too(
    before: dict[str, Any] | None, after: dict[str, Any] | None, named: str
) -> None:
    (column,) = (each for each in AUDIT if each.title == "CHANGES")
    assert column.cell({"action": "settings.updated", "details": None, "before": before, "after": after}) == named
    assert column.cell({"action": "proxy.created", "details": None, "before": None, "after": {"id": "prx_1"}}) == "-"


def test_many_differences_are_counted_before_the_question_and_listed_by_a_dry_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    many = [{"change": "changed", "kind": "proxies", "name": f"p{n}", "fields": "tags"} for n in range(11)]
    one = {"change": "removed", "kind": "users", "name": "eva", "fields": None}
    backup.list_changes(Output("table"), [*many, one], dry_run=False)
    assert capsys.readouterr().out == "12 differences: proxies changed: 11, users removed: 1. --dry-run lists them.\n"
    for changes, dry_run in (([*many, one], True), (many[:10], False)):
        backup.list_changes(Output("table"), changes, dry_run)
        assert len(capsys.readouterr().out.splitlines()) == 1 + len(changes)


def test_a_delivery_whose_time_has_come_waits_for_others() -> None:
    (column,) = (each for each in DELIVERIES if each.title == "NEXT")
    assert column.cell({"next_attempt_at": "2020-01-01T00:00:00.000Z"}) == "after others"
    assert column.cell({"next_attempt_at": "2999-01-01T00:00:00.000Z"}) == "2999-01-01T00:00:00.000Z"
    assert column.cell({"next_attempt_at": None}) == "-"


@pytest.mark.product
def test_names_are_arguments_of_every_create_and_the_option_is_still_taken(shell: Shell, product: Product) -> None:
    port = str(product.free_port())
    made = shell.good("proxies", "create", "by-argument", "--protocol", "http", "--port", port, "-o", "json").data
    assert made["proxy"]["name"] == "by-argument"
    again = shell("proxies", "create", "a", "--name", "b", "--protocol", "http", "--port", port)
    assert (again.status, "give one of them" in again.err) == (2, True)
    shell.good("proxies", "delete", "by-argument", "--yes")
    hook = shell.good("webhooks", "create", "h", "--target", "https://example.com/", "--event", "*", "-o", "json").data
    assert hook["webhook"]["name"] == "h"
    shell.good("webhooks", "delete", "h", "--yes")


@pytest.mark.product
def test_a_key_is_rotated_with_and_without_grace(shell: Shell, stranger: Shell) -> None:
    old = shell.good("keys", "create", "turning", "--permission", "proxy.read", "--expires", "30d").out.strip()
    kept = shell.good("keys", "rotate", "turning", "--grace", "1h")
    assert "is valid until" in kept.err
    for key in (old, kept.out.strip()):
        stranger.good("proxies", "list", "--key", key)
    assert shell("keys", "rotate", "turning", "--yes").status == 2  # two have the name for the time of the grace
    newer = next(
        each
        for each in shell.good("keys", "list", "-o", "json").data["api_keys"]
        if kept.out.startswith(each["prefix"])
    )
    assert shell("keys", "rotate", newer["id"]).status == 2  # there is no terminal to ask at
    last = shell.good("keys", "rotate", newer["id"], "--yes")
    assert "is revoked" in last.err
    assert stranger("proxies", "list", "--key", kept.out.strip()).status == 4
    stranger.good("proxies", "list", "--key", last.out.strip())
    assert shell("keys", "rotate", newer["id"], "--grace", "soon").status != 0
    for each in shell.good("keys", "list", "-o", "json").data["api_keys"]:
        shell.good("keys", "revoke", each["id"], "--yes")


@pytest.mark.product
def test_tags_are_added_and_removed_without_naming_the_others(shell: Shell, product: Product) -> None:
    proxy = product.proxy(tags=["a", "b"])
    changed = shell.good("proxies", "update", proxy["name"], "--add-tag", "c", "--add-tag", "a", "--remove-tag", "b")
    assert changed.out == f"{proxy['name']} is changed.\n"
    assert product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["tags"] == ["a", "c"]
    both = shell("proxies", "update", proxy["name"], "--tag", "x", "--add-tag", "y")
    assert (both.status, "--tag replaces all tags" in both.err) == (2, True)
    product.data("DELETE", f"/proxies/{proxy['id']}")


@pytest.mark.product
def test_connections_end_by_another_name_and_a_filter_asks_first(shell: Shell, proxy: dict[str, Any]) -> None:
    asked = shell("connections", "kill", proxy["name"], "--client", "192.0.2.1")
    assert (asked.status, "There is no terminal to ask at: --yes" in asked.err) == (2, True)
    ended = shell.good("connections", "kill", proxy["name"], "--client", "192.0.2.1", "--yes")
    assert ended.out == "0 closed.\n"


@pytest.mark.product
def test_an_error_is_printed_once_with_the_name_of_its_proxy(shell: Shell, product: Product) -> None:
    one = product.proxy()
    product.data("POST", f"/proxies/{one['id']}/stop")
    two = product.proxy(port=one["port"])
    refused = shell("proxies", "start", one["name"])
    assert refused.status == 1
    assert refused.err.count("proxyfleet: ") == 1, refused.err
    assert refused.err.startswith(f"proxyfleet: {one['name']}: ")
    assert refused.err.count(f"port {one['port']}") == 1, refused.err
    for each in (one, two):
        product.data("DELETE", f"/proxies/{each['id']}")


def test_problems_of_several_things_say_whose_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    both = combined([("a", CommandError("no", "ask", problems=(("port", "taken"),))), ("b", CommandError("never"))])
    Output("table").error(both)
    assert capsys.readouterr().err.splitlines()[:3] == ["proxyfleet: a: no", "proxyfleet: b: never", "  a: port: taken"]


@table(("status", "said"), [("waiting", "dlv_1 is sent again; "), ("delivered", "dlv_1 is delivered: 200")])
def test_a_redelivery_says_how_older_attempts_went_only_at_its_end(status: str, said: str) -> None:
    delivery = {"id": "dlv_1", "status": status, "attempts": [{"error": None, "status_code": 200}]}
    assert sent_again("hook", delivery).startswith(said)
