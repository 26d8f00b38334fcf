"""docs/cli.md says what the commands say, and every command says what it does."""

from __future__ import annotations

import inspect
import shutil
import subprocess

import pytest
from cli_manual import ENTRIES, Command, commands, manual
from man_page import page

from api.cli.application import application
from tests.kit.folders import ROOT
from tests.product.cli.shell import Shell

DOCS = ROOT / "docs"
PAGE, MAN_PAGE = DOCS / "cli.md", DOCS / "proxyfleet.1"
COMMANDS = list(commands(application()))


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == manual(), "make it anew: scripts/cli-manual"


def test_the_manual_page_is_up_to_date() -> None:
    assert MAN_PAGE.read_text() == page(), "make it anew: scripts/cli-manual"


@pytest.mark.product
def test_the_json_of_each_command_has_its_entries_where_the_page_says(shell: Shell) -> None:
    shell.good("accounts", "create", "of-json", "--without-password")
    shell.good("pools", "create", "of-json")
    shell.good("webhooks", "create", "of-json", "--target", "https://example.com/", "--event", "*")
    newest = shell.good("history", "-o", "json").data["revisions"][0]["revision"]
    for command, member in ENTRIES.items():
        named = ["of-json"] if command in ("credentials list", "pools state", "webhooks deliveries") else []
        words = command.replace(" N", f" {newest}").split()
        assert isinstance(shell.good(*words, *named, "-o", "json").data[member], list), command
    for group in ("accounts", "pools", "webhooks"):
        assert {"id"} < shell.good(group, "delete", "of-json", "--yes", "-o", "json").data.keys()


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_manual_page_is_good_roff() -> None:
    done = subprocess.run(["groff", "-man", "-ww", "-z", MAN_PAGE], capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_and_each_of_its_options_say_what_they_do(command: Command) -> None:
    first = (inspect.getdoc(command.function) or "").splitlines()[0]
    assert first.endswith("."), first
    for parameter, _, info in command.parameters():
        assert info.help, f"{command.name}: {parameter.name}"


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
    assert promised <= {command.name for command in COMMANDS}
