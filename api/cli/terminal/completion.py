"""Completion of names that the API knows, within a second; without a response there are none.

Shells insert an offered word unquoted, and zsh evaluates it before one is chosen. A user who may name a proxy must not
run commands in another user's shell, so a name that any shell reads as more than its letters is offered by its id.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from api.cli.client import DEFAULT_URL, Client
from api.cli.credentials import Credentials
from api.cli.errors import CommandError
from api.cli.lookup import Kind
from config.settings.env import ENV_PREFIX

TIMEOUT = 1.0
"""Seconds that a completion waits for the API."""

_PLAIN = re.compile(r"\w[\w.@+/-]*")
"""Letters and digits of any script, and marks that bash, zsh and fish do not interpret inside a word."""

_ZSH_TITLE = "#compdef proxyfleet\n"
_ZSH_FIRST = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }\n"
"""A zsh without a configuration of its own has no `compdef` yet."""


def script_of(shell: str) -> str:
    """The script that a shell evaluates, or keeps as a file among its completions."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = str(get_completion_script(prog_name="proxyfleet", complete_var=VARIABLE, shell=shell))
    return script.replace(_ZSH_TITLE, _ZSH_TITLE + _ZSH_FIRST) if shell == "zsh" else script


VARIABLE = "_PROXYFLEET_COMPLETE"


def names_of(kind: Kind) -> Callable[[str], list[str]]:
    """A completion function with the names of `kind`."""

    def complete(incomplete: str) -> list[str]:
        try:
            words = [plain(one, kind) for one in kind.all(_client())]
        except CommandError:
            return []  # a completion must not print anything
        return sorted(name for name in words if name.startswith(incomplete))

    return complete


def plain(one: dict[str, Any], kind: Kind) -> str:
    """Its name if no shell interprets it, else its id."""
    name = str(one[kind.name_field])
    return name if _PLAIN.fullmatch(name) else str(one["id"])


def _client() -> Client:
    """From the environment and the last login: options on the command line are not read."""
    key, credentials = os.environ.get(f"{ENV_PREFIX}API_KEY"), Credentials()
    url = os.environ.get(f"{ENV_PREFIX}URL") or (None if key else credentials.last_url) or DEFAULT_URL
    return Client(url, key, credentials, TIMEOUT, os.environ.get(f"{ENV_PREFIX}CA_FILE"))
