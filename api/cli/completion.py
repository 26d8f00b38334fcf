"""What Tab offers after a command: names that the API knows. It has a second; without an answer it offers nothing."""

from __future__ import annotations

import os
from collections.abc import Callable

from api.cli.client import DEFAULT_URL, Client
from api.cli.credentials import Credentials
from api.cli.finding import KEY, PROXY, USER, WEBHOOK, Kind
from api.cli.trouble import Trouble
from config.variables import ENV_PREFIX

PATIENCE = 1.0


def names_of(kind: Kind) -> Callable[[str], list[str]]:
    """A completion with the names of `kind`."""

    def complete(incomplete: str) -> list[str]:
        try:
            names = [str(one[kind.name_field]) for one in kind.list_all(_client())]
        except Trouble:
            return []  # a completion must not print anything
        return sorted(name for name in names if name.startswith(incomplete))

    return complete


def _client() -> Client:
    """From the environment and the last login: options of the line that is being typed are not read."""
    key, credentials = os.environ.get(f"{ENV_PREFIX}API_KEY"), Credentials()
    url = os.environ.get(f"{ENV_PREFIX}URL") or (None if key else credentials.last_url) or DEFAULT_URL
    return Client(url, key, credentials, PATIENCE, os.environ.get(f"{ENV_PREFIX}CA_FILE"))


proxy_names = names_of(PROXY)
user_names = names_of(USER)
key_names = names_of(KEY)
webhook_names = names_of(WEBHOOK)
