"""The tables of the file. A document is JSON in `body`; columns beside it are what documents are found by.

`accounts.search` is what a text is searched in, in lower case; `accounts.marks` has the tags and the proxies of the
account as `mark` writes them. Both indexes of accounts cover all of it, so that a page is found in the index alone.

`prepared` has writes that are made if a document of the configuration store is no longer at this revision
(`api.store.accounts.store.AccountStore.together`). `certificates` has the entries for certificates of all accounts, so
that two accounts of one entry are found.

`ends` has the ends of accounts that were not announced yet (`api.services.account_ends`). Triggers write it with any
change of an account.

`gone` has deletions, which followers need; of the older ones only the last step is known (`meta.horizon`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from config.files.paths import DataDir

ACCOUNTS, PLANS, CREDENTIALS = "accounts", "plans", "credentials"

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (
    one INTEGER PRIMARY KEY CHECK (one = 1), store TEXT NOT NULL, revision INTEGER NOT NULL, horizon INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS plans (
    id TEXT PRIMARY KEY, revision INTEGER NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS accounts (
    id TEXT PRIMARY KEY, revision INTEGER NOT NULL UNIQUE, username TEXT NOT NULL, created_at REAL NOT NULL,
    plan TEXT NOT NULL, enabled INTEGER NOT NULL, expires_at REAL NOT NULL, search TEXT NOT NULL, marks TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS accounts_by_name
    ON accounts (username, id, created_at, plan, enabled, expires_at, search, marks);
CREATE INDEX IF NOT EXISTS accounts_by_age
    ON accounts (created_at, id, username, plan, enabled, expires_at, search, marks);
CREATE INDEX IF NOT EXISTS accounts_by_plan ON accounts (plan);
CREATE INDEX IF NOT EXISTS accounts_by_policy ON accounts (json_extract(body, '$.policy'))
    WHERE json_extract(body, '$.policy') IS NOT NULL;
CREATE TABLE IF NOT EXISTS ends (account_id TEXT PRIMARY KEY, expires_at REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ends_by_time ON ends (expires_at);
CREATE TRIGGER IF NOT EXISTS end_of_new_account AFTER INSERT ON accounts WHEN NEW.expires_at > 0
    BEGIN INSERT INTO ends VALUES (NEW.id, NEW.expires_at); END;
CREATE TRIGGER IF NOT EXISTS end_of_changed_account
    AFTER UPDATE OF expires_at ON accounts WHEN NEW.expires_at <> OLD.expires_at BEGIN
        DELETE FROM ends WHERE account_id = OLD.id;
        INSERT INTO ends SELECT NEW.id, NEW.expires_at WHERE NEW.expires_at > 0;
    END;
CREATE TRIGGER IF NOT EXISTS end_of_deleted_account AFTER DELETE ON accounts
    BEGIN DELETE FROM ends WHERE account_id = OLD.id; END;
CREATE TABLE IF NOT EXISTS credentials (
    id TEXT PRIMARY KEY, revision INTEGER NOT NULL UNIQUE, account_id TEXT NOT NULL, secret_hash TEXT NOT NULL UNIQUE,
    created_at REAL NOT NULL, expires_at REAL NOT NULL, body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS credentials_by_account ON credentials (account_id, created_at, id);
CREATE INDEX IF NOT EXISTS credentials_by_end ON credentials (expires_at);
CREATE TABLE IF NOT EXISTS prepared (
    one INTEGER PRIMARY KEY CHECK (one = 1), collection TEXT NOT NULL, id TEXT NOT NULL, revision INTEGER NOT NULL,
    writes TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS certificates (
    entry TEXT NOT NULL, account_id TEXT NOT NULL, PRIMARY KEY (entry, account_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS certificates_by_account ON certificates (account_id);
CREATE TABLE IF NOT EXISTS gone (revision INTEGER PRIMARY KEY, collection TEXT NOT NULL, id TEXT NOT NULL);
"""

NAMED_POLICIES = """
SELECT json_extract(body, '$.policy') FROM plans WHERE json_extract(body, '$.policy') IS NOT NULL UNION
SELECT DISTINCT json_extract(body, '$.policy') FROM accounts WHERE json_extract(body, '$.policy') IS NOT NULL
"""
"""The policies that plans and accounts name; those of accounts are found in an index of theirs."""

TABLES = (PLANS, ACCOUNTS, CREDENTIALS)

MarkKind = Literal["all", "id", "tag", "label"]
"""A proxy that the account may use by its id or its tag, or all of them; a label is a tag of the account's own."""

_SEPARATOR = "\x1f"
"""No tag has a control character in it."""


def accounts_file(data: DataDir) -> Path:
    """Where the file lies."""
    return data.store / "accounts.sqlite"


def mark(kind: MarkKind, value: str = "") -> str:
    """A text that is in `marks` of an account with this mark, and of no other."""
    return f"{_SEPARATOR}{kind}={value}{_SEPARATOR}"


def columns(collection: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """What a document is found by."""
    if collection == PLANS:
        return {"name": body["name"]}
    if collection == CREDENTIALS:
        return {name: body[name] for name in ("account_id", "secret_hash", "created_at", "expires_at")}
    return {
        "username": body["username"],
        "created_at": body["created_at"],
        "plan": body["plan"],
        "enabled": int(body["enabled"]),
        "expires_at": body["expires_at"] or 0.0,
        "search": "\n".join((body["username"], *body["metadata"].values())).lower(),
        "marks": _marks(body),
    }


def _marks(body: Mapping[str, Any]) -> str:
    proxies = body["proxies"]
    return "".join(
        (
            mark("all") if proxies["all"] else "",
            *(mark("id", each) for each in proxies["ids"]),
            *(mark("tag", each) for each in proxies["tags"]),
            *(mark("label", each) for each in body["tags"]),
        )
    )


def known(collection: str) -> str:
    """The name of a table, for a statement. Raises `KeyError` for any other text."""
    if collection not in TABLES:
        raise KeyError(collection)
    return collection
