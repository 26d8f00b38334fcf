"""Accounts of the fleet beside an actor, written as the API does, and clients with its accounts and credentials."""

from __future__ import annotations

import itertools
import secrets
import socket
import string
import time
from pathlib import Path
from typing import Any

from actors.accounts.records import AccountRecord, CredentialRecord, InheritedRules, PlanRecord
from config.files.paths import DataDir
from tests.actor.forwarding.account_client import HASH, WORD, credentials
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.actor.forwarding.socks_client import LOOPBACK, exactly
from tests.kit.fleet_accounts import FleetAccounts
from tests.kit.forwarding_rig import Rig
from tests.kit.scripted_origins import Origin, read_head_alone

_numbers = itertools.count(1)


class AccountsTable(FleetAccounts):
    """Those in the data directory of a rig."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(DataDir(Path(rig.folder)))

    def account(self, name: str, **fields: Any) -> AccountRecord:
        """A new account, whose password is `WORD` unless a hash is given."""
        record = AccountRecord(f"acc_{name}{next(_numbers)}", name, **{"password_hash": HASH, **fields})
        self.put(record)
        return record

    def change(self, account: AccountRecord, **fields: Any) -> AccountRecord:
        record = account._replace(**fields)
        self.put(record)
        return record

    def plan(self, name: str, **rules: Any) -> PlanRecord:
        record = PlanRecord(f"pln_{name}", name, InheritedRules(**rules))
        self.put(record)
        return record

    def mint(self, account: AccountRecord, ttl: float = 600.0, **fields: Any) -> tuple[CredentialRecord, str]:
        """A new credential, and its secret."""
        secret = "pfc_" + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(40))
        record = CredentialRecord(f"crd_{next(_numbers)}", account.id, "job", secret[:11], time.time() + ttl, **fields)
        self.put_credential(record, secret)
        return record, secret


def bearer(secret: str) -> str:
    return f"Proxy-Authorization: Bearer {secret}"


def fetch(rig: Rig, origin: Origin, field: str) -> tuple[int, bytes]:
    """Status and head of a response to a request with this field."""
    with connect(rig) as client:
        client.sendall(get(origin, "/", field))
        head, _body = read_response(client)
        return int(head.split()[1]), head


def tunnel(rig: Rig, origin: Origin, field: str) -> socket.socket:
    sock = connect(rig)
    sock.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\n{field}\r\n\r\n".encode())
    head = read_head_alone(sock)
    assert head.startswith(b"HTTP/1.1 200 "), head
    return sock


def password_tunnel(rig: Rig, origin: Origin, user: str, word: str = WORD) -> socket.socket:
    return tunnel(rig, origin, credentials(user, word))


def socks5_status(rig: Rig, user: str, word: str) -> int:
    """The status of RFC 1929: 0 for accepted."""
    with connect(rig) as sock:
        name, password = user.encode(), word.encode()
        sock.sendall(b"\x05\x01\x02" + bytes((1, len(name))) + name + bytes((len(password),)) + password)
        assert exactly(sock, 2) == b"\x05\x02"
        return exactly(sock, 2)[1]


def socks4_code(rig: Rig, origin: Origin, user: str) -> int:
    with connect(rig) as sock:
        sock.sendall(b"\x04\x01" + origin.port.to_bytes(2, "big") + LOOPBACK + user.encode() + b"\0")
        return exactly(sock, 8)[1]
