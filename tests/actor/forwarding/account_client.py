"""Accounts with known passwords, and requests in their names."""

from __future__ import annotations

import base64
import socket
from typing import Any

import bcrypt

from actors.bus.messages.accounts import AccountStates, QueryAccounts
from actors.bus.messages.specs import AccountSpec
from actors.forwarding.access.authenticator import prehash
from tests.actor.forwarding.http_client import get, read_response
from tests.actor.forwarding.socks_client import exactly
from tests.kit.forwarding_rig import Rig
from tests.kit.scripted_origins import Origin

WORD = "secret-word"


HASH = bcrypt.hashpw(prehash(WORD.encode()), bcrypt.gensalt(4)).decode()


OTHER_HASH = bcrypt.hashpw(prehash(b"other-word"), bcrypt.gensalt(4)).decode()


def account(name: str, **fields: Any) -> AccountSpec:
    return AccountSpec(**{"id": f"acc_{name}", "username": name, "password_hash": HASH, **fields})


def credentials(user: str, word: str = WORD) -> str:
    return "Proxy-Authorization: Basic " + base64.b64encode(f"{user}:{word}".encode()).decode()


def give(rig: Rig, *accounts: AccountSpec, **fields: Any) -> None:
    rig.configure(accounts=accounts, auth_required=True, **fields)


def ask(client: socket.socket, origin: Origin, user: str = "ada", word: str = WORD) -> tuple[int, bytes]:
    """Status and head of a response."""
    client.sendall(get(origin, "/", credentials(user, word)))
    head, _body = read_response(client)
    return int(head.split()[1]), head


def echo(sock: socket.socket, data: bytes) -> None:
    sock.sendall(data)
    assert exactly(sock, len(data)) == data


def states(rig: Rig) -> dict[str, Any]:
    response = rig.ask(QueryAccounts())
    assert isinstance(response, AccountStates)
    return response.accounts
