"""The manual page and docs/command-line.md say what the commands do, and every command says what it does."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
from functools import cache

import pytest
from wheels.man_page import Command, commands, page

from api.cli.application import application
from api.cli.errors import MEANINGS, OF_RUN
from tests.kit.folders import ROOT
from tests.product.cli.shell import Shell

TEXT = (ROOT / "docs" / "command-line.md").read_text()


@cache
def all_commands() -> list[Command]:
    return list(commands(application()))


def test_the_manual_page_has_every_command_once() -> None:
    titles = re.findall(r"^\.SS proxyfleet (.+)$", page().replace(r"\-", "-"), re.MULTILINE)
    assert [re.split(r" [\[A-Z]", title)[0] for title in titles] == [command.name for command in all_commands()]


def test_the_documented_exit_statuses_are_those_of_the_program() -> None:
    section = TEXT.partition("\n## Exit statuses\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| ([^|]+?) \| (.+) \|$", section, re.MULTILINE)[1:])
    assert rows.pop("---", None) is None
    assert rows == {str(int(status)): meaning for status, meaning in MEANINGS.items()} | OF_RUN


@pytest.mark.product
def test_the_json_of_each_command_has_its_entries_where_the_documents_say(shell: Shell) -> None:
    shell.good("accounts", "create", "of-json", "--without-password")
    shell.good("pools", "create", "of-json")
    shell.good("webhooks", "create", "of-json", "--target", "https://example.com/", "--event", "*")
    newest = shell.good("history", "-o", "json").data["revisions"][0]["revision"]
    entries = re.findall(r"^\| `([\w ]+)` \| `\.(\w+)\[\]` \|$", TEXT, re.MULTILINE)
    assert len(entries) > 15
    for command, member in entries:
        named = ["of-json"] if command in ("credentials list", "pools state", "webhooks deliveries") else []
        words = command.replace(" N", f" {newest}").split()
        assert isinstance(shell.good(*words, *named, "-o", "json").data[member], list), command
    for group in ("accounts", "pools", "webhooks"):
        assert {"id"} < shell.good(group, "delete", "of-json", "--yes", "-o", "json").data.keys()


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_manual_page_is_good_roff() -> None:
    done = subprocess.run(["groff", "-man", "-ww", "-z"], input=page(), capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stderr) == (0, "")


def test_commands_and_each_of_their_options_say_what_they_do() -> None:
    unsaid = [
        command.name
        for command in all_commands()
        if not (inspect.getdoc(command.function) or "").split("\n")[0].endswith(".")
    ]
    unsaid += [
        f"{command.name}: {option.name}"
        for command in all_commands()
        for option, _, info in command.parameters()
        if not info.help
    ]
    assert unsaid == []


def test_no_command_is_missing_that_people_were_promised() -> None:
    promised = {
        *("serve", "check-config", "login", "logs", "metrics", "version", "reset-password", "audit verify"),
        *(
            f"proxies {each}"
            for each in ["list", "show", "create", "update", "delete", "start", "stop", "restart", "test"]
        ),
        *("connections list", "connections end", "settings show", "settings set", "completion", "status"),
        *(f"users {each}" for each in ["list", "show", "create", "update", "delete"]),
        *("keys list", "keys create", "keys revoke", "webhooks list", "webhooks create", "webhooks test"),
    }
    assert promised <= {command.name for command in all_commands()}
