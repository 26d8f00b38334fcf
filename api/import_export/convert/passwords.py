"""Files of user names and passwords (htpasswd), as accounts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError

from api.import_export.convert.draft import Draft
from api.import_export.convert.report import Effect, Report
from api.import_export.convert.statements import Place, Statement
from config.model import json_patterns
from config.model.accounts import AccountName

_BCRYPT = re.compile(json_patterns.BCRYPT_HASH, re.ASCII)
_NAME: TypeAdapter[str] = TypeAdapter(AccountName)
_KINDS = (
    ("$apr1$", "MD5 of Apache"),
    ("$1$", "MD5"),
    ("$2", "bcrypt in a form or at a cost that isn't taken"),
    ("$5$", "SHA-256"),
    ("$6$", "SHA-512"),
    ("$y$", "yescrypt"),
    ("{SHA}", "SHA-1"),
    ("NT:", "MD4 of Windows"),
    ("system:", "the system's own"),
)
_INSTEAD = "set a password: proxyfleet accounts update {} --enable --password; or import it with a bcrypt hash"


def entries_of(text: str, path: str) -> Iterator[tuple[Statement, str, str]]:
    """The lines `USER:HASH` of a file."""
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, hashed = line.strip().partition(":")
        if colon and not name.startswith("#"):
            yield Statement(Place(path, number), "password", (name,)), name, hashed.partition(":")[0]


def add_accounts(draft: Draft, report: Report, entries: Iterable[tuple[Statement, str, str]]) -> None:
    """An account for each entry; disabled where its hash can't be used."""
    taken = {each["username"] for each in draft.accounts}
    for statement, name, hashed in entries:
        if name in taken:
            report.add(Effect.LOST, statement, f"there is another account {name}", "keep one of them")
            continue
        account = _account(report, statement, name, hashed)
        if account is not None:
            taken.add(name)
            draft.accounts.append(account)


def _account(report: Report, statement: Statement, name: str, hashed: str) -> dict[str, Any] | None:
    try:
        _NAME.validate_python(name)
    except ValidationError as error:
        why = f"the user name {name!r} is not allowed here: {error.errors()[0]['msg']}"
        report.add(Effect.LOST, statement, why, "create an account of another name")
        return None
    if _BCRYPT.fullmatch(hashed):
        return {"username": name, "password_hash": hashed}
    kind = next((text for start, text in _KINDS if hashed.startswith(start)), "crypt of DES, or unknown")
    why = f"the password of {name} is a hash by {kind}, which can't be checked here; the account is disabled"
    report.add(Effect.REFUSES, statement, why, _INSTEAD.format(name))
    return {"username": name, "enabled": False}
