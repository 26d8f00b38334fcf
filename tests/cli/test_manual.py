"""docs/cli.md says what the commands say, and every command says what it does."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from cli_manual import Command, commands, manual

from supervisor import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
COMMANDS = list(commands(app))


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == manual(), "make it anew: scripts/cli-manual"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_and_each_of_its_options_say_what_they_do(command: Command) -> None:
    first = (inspect.getdoc(command.function) or "").splitlines()[0]
    assert first.endswith("."), first
    for parameter, _, told in command.parameters():
        assert told.help, f"{command.name}: {parameter.name}"


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
