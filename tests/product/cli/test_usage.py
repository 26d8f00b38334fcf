"""Command lines that can't be understood, errors that name options, and what help says by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from api.cli.application import wants_json
from api.cli.errors import MEANINGS, CommandError
from tests.kit.tables import table
from tests.product.cli.commands import all_commands, options_of
from tests.product.cli.shell import Shell

BAD_LINES = (
    (["nonsense"], "No such command 'nonsense'", "See proxyfleet --help"),
    (["prxies", "list"], "Did you mean 'proxies'", "See proxyfleet --help"),
    (["proxies", "list", "--nonsense"], "No such option: --nonsense", "See proxyfleet proxies list --help"),
    (
        ["policies", "create", "x", "--file", "x.toml"],
        "--file (Possible options: --from)",
        "See proxyfleet policies create --help",
    ),
    (["proxies", "list", "--status", "odd"], "'odd' is not one of 'active', 'inactive'", "proxies list --help"),
    (["proxies", "stop"], "Missing argument", "See proxyfleet proxies stop --help"),
    (["logs", "--limit", "0"], "must be greater than or equal to 1", "See proxyfleet logs --help"),
    (["logs", "--limit", "x"], "must be a valid integer", "See proxyfleet logs --help"),
)


@table(("line", "error", "hint"), BAD_LINES, ids=lambda value: "-".join(value)[:30])
def test_a_line_that_is_wrong_ends_with_2_the_reason_and_where_to_look(
    tmp_path: Path, line: list[str], error: str, hint: str
) -> None:
    refused = Shell(tmp_path)(*line)
    assert (refused.status, refused.out) == (2, "")
    assert error in refused.err
    assert hint in refused.err
    assert not {"Value error", "unable to parse", "Traceback"} & {*refused.err.split(", ")}


def test_a_line_that_is_wrong_and_asks_for_json_gets_one_object(tmp_path: Path) -> None:
    refused = Shell(tmp_path)("proxies", "list", "--nonsense", "-o", "json")
    error = json.loads(refused.err)["error"]
    assert (refused.status, refused.out, error["code"], error["exit_status"]) == (2, "", "USAGE", 2)


@table(
    ("line", "wanted"),
    [("-o json", True), ("--output json", True), ("-ojson", True), ("--output=json", True), ("json -o table", False)],
)
def test_json_is_wanted_by_any_spelling_of_the_option(line: str, wanted: bool) -> None:
    assert wants_json(["proxies", *line.split()]) is wanted


def test_an_error_names_the_option_that_a_field_is_given_by() -> None:
    error = CommandError("no")
    error.options = {"tls.key_file": "--key-file", "tls": "--cert-file and --key-file"}
    assert error.label("tls.key_file") == "tls.key_file (--key-file)"
    assert error.label("tls") == "tls (--cert-file and --key-file)"
    assert error.label("tls_x") == "tls_x"


@pytest.mark.product
@table(
    ("line", "named"),
    [
        (["webhooks", "create", "--name", "w"], "url (--target): is required"),
        (["logs", "--client", "odd"], "client_ip (--client): "),
        (["keys", "create", "k", "--permission", "odd"], "permissions (--permission): "),
        (["proxies", "create", "--name", "x", "--protocol", "http"], "port: is required"),
        (["proxies", "create", "--name", "x", "--idle-timeout", "0"], "settings.timeout (--idle-timeout): "),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_the_api_refuses_is_reported_by_the_options_of_the_command(
    shell: Shell, line: list[str], named: str
) -> None:
    refused = shell(*line)
    assert (refused.status, named in refused.err) == (1, True), refused.err


def test_help_has_the_exit_statuses_and_groups_before_other_commands(tmp_path: Path) -> None:
    info = Shell(tmp_path)("--help").out
    assert all(f"{int(status)} " in info.partition("Exit statuses:")[2] for status in MEANINGS)
    assert info.index("  proxies ") < info.index("  logs ")
    assert "install-completion" not in info


@table(("name", "command"), all_commands)
def test_no_help_shows_a_type_of_python_or_a_bracket_in_a_bracket(name: str, command: Any) -> None:
    for option in options_of(command):
        texts = "str" in str(option.type_descriptor.annotation) and not option.type_descriptor.is_choice
        assert option.metavar or not texts, f"{name} {option.name} has its type as value"
    for each in command.params:
        assert not set(each.metavar or "") & set("[]{}<>"), f"{name} {each.name}"


@table(("columns", "drawn"), [("80", False), ("140", True)])
def test_help_can_be_read_at_any_width_and_flags_have_no_type(tmp_path: Path, columns: str, drawn: bool) -> None:
    with Shell(tmp_path).terminal("proxies", "create", "--help", COLUMNS=columns) as terminal:
        assert terminal.end() == 0
    assert ("╭" in terminal.text, "bool" in terminal.text) == (drawn, False)
    assert "limits.bandwidth_in=1Mbit/s" in terminal.text
    assert "access.deny_destinations" in terminal.text
    assert "How long a connection" in terminal.text


@table(("group", "example"), [("accounts", "allow_clients"), ("webhooks", "headers.X-Team")])
def test_the_examples_of_a_command_are_fields_that_it_has(tmp_path: Path, group: str, example: str) -> None:
    info = Shell(tmp_path).good(group, "create", "--help").out
    assert (example in info, "settings.timeout" in info) == (True, False)
