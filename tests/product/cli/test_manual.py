"""docs/cli.md says what the commands say, and every command says what it does."""

from __future__ import annotations

import inspect
import shutil
import subprocess

import pytest
from cli_manual import Command, commands, manual
from man_page import page

from api.cli.application import application
from tests.kit.folders import ROOT

DOCS = ROOT / "docs"
PAGE, MAN_PAGE = DOCS / "cli.md", DOCS / "proxyfleet.1"
COMMANDS = list(commands(application()))


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == manual(), "make it anew: scripts/cli-manual"


def test_the_manual_page_is_up_to_date() -> None:
    assert MAN_PAGE.read_text() == page(), "make it anew: scripts/cli-manual"


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
