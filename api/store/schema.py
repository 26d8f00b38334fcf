"""The tables of the fleet's file. A change of the configuration is one transaction over all of them.

| tables | content |
|---|---|
| `documents` | documents of most collections (`api.store.rows`), each a row: JSON in `body`, and the number of the commit that wrote it |
| `accounts`, `plans`, `credentials` | the same for hundreds of thousands (`api.store.accounts`), with columns by which they are found |
| `deleted`, `gone` | the last deletions of the one and the other, which followers need; of older ones only the last number is known |
| `audit`, `head` | the audit trail (`api.audit.trail`): entries that are never altered, and the last of them |
| `revisions`, `revision_changes` | what each change of the configuration altered (`api.history`) |
| `steps` | the number of the last commit |
| `stamps` | the numbers and the stamps of the last commits in the ledger of a fleet (`api.engine.ledger`); none without one |
| `loose` | sign-ins and credentials of a fleet, which need no order (`api.engine.loose`); empty without one |
| `loose_heads` | how far this node has read of each node's; with an empty name the number of steps here |
| `last_used` | when an API key was used last and when a user signed in last, which is no change of them: no commit has it |

A document that is there is in none of `deleted` and `gone`, so the last change of each is in one row. `commit_number`
is the number of the commit that an entry or a revision goes with: its own, or the next one, if it was made alone. The
revision of what is in `loose` is its step, negative: no commit of the fleet has it. `loose.was` is NULL when the
database has it.

`documents.place` is the order in which documents were inserted. `sum` is the checksum of a row (`api.store.rows.sum_of`),
since SQLite notices damage of its own structures alone. Deletions up to `steps.horizon` and `accounts_store.horizon`
are forgotten; `accounts_store.revision` is the last commit that changed an account, a plan or a credential.

`packed` is what forwarding actors read of a row (`actors.accounts.table`). It stands before the body, which may be on
other pages. `accounts.rounds` is what a password costs that was hashed elsewhere, where that is more than ours, else 0.

`accounts.search` is what a text is searched in, in lower case; `accounts.marks` has the tags and the proxies of the
account as `api.store.accounts.columns.mark` writes them. Two indexes of accounts cover all of it, so that a page is
found in the index alone; `accounts_by_username` is small, for look-ups. `certificates` has the entries for certificates
of all accounts, so that two accounts of one entry are found. `ends` has the ends of accounts that were not announced
yet (`api.objects.accounts.credential_service`); triggers write it with any change of an account.

`revisions.author` is JSON: who, by which credential, from where, in which request, at which node of a fleet. `restored`
is the revision whose state it restored, NULL for none; `undone` the one that it undid, 0 for none. `kinds` has each
kind between commas, `size` is the bytes of all bodies.
"""  # noqa: E501 - a table

from __future__ import annotations

_DOCUMENTS = """
CREATE TABLE IF NOT EXISTS documents (
    place INTEGER PRIMARY KEY, collection TEXT NOT NULL, id TEXT NOT NULL, revision INTEGER NOT NULL,
    sum INTEGER NOT NULL, body TEXT NOT NULL, UNIQUE (collection, id)
);
CREATE INDEX IF NOT EXISTS documents_by_revision ON documents (revision);
CREATE TABLE IF NOT EXISTS deleted (
    collection TEXT NOT NULL, id TEXT NOT NULL, revision INTEGER NOT NULL, sum INTEGER NOT NULL,
    PRIMARY KEY (collection, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS deleted_by_revision ON deleted (revision);
CREATE TABLE IF NOT EXISTS steps (
    one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER NOT NULL, horizon INTEGER NOT NULL
);
INSERT OR IGNORE INTO steps VALUES (1, 0, 0);
DROP TABLE IF EXISTS ledger;
CREATE TABLE IF NOT EXISTS stamps (number INTEGER PRIMARY KEY, stamp TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS last_used (
    collection TEXT NOT NULL, id TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (collection, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS loose (
    collection TEXT NOT NULL, id TEXT NOT NULL, step INTEGER NOT NULL, until REAL NOT NULL, was TEXT,
    PRIMARY KEY (collection, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS loose_by_step ON loose (step, collection, id);
CREATE INDEX IF NOT EXISTS loose_by_end ON loose (until);
CREATE INDEX IF NOT EXISTS loose_pending ON loose (step) WHERE was IS NOT NULL;
CREATE TABLE IF NOT EXISTS loose_heads (node TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS use_of_deleted_document AFTER DELETE ON documents
    BEGIN DELETE FROM last_used WHERE collection = OLD.collection AND id = OLD.id; END;
"""

_ACCOUNTS = """
CREATE TABLE IF NOT EXISTS accounts_store (
    one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER NOT NULL, horizon INTEGER NOT NULL
);
INSERT OR IGNORE INTO accounts_store VALUES (1, 0, 0);
CREATE TABLE IF NOT EXISTS plans (
    id TEXT PRIMARY KEY, revision INTEGER NOT NULL, name TEXT NOT NULL, packed BLOB NOT NULL, body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS plans_by_name ON plans (name);
CREATE INDEX IF NOT EXISTS plans_by_revision ON plans (revision);
CREATE TABLE IF NOT EXISTS accounts (
    id TEXT PRIMARY KEY, revision INTEGER NOT NULL, username TEXT NOT NULL, created_at REAL NOT NULL,
    plan TEXT NOT NULL, enabled INTEGER NOT NULL, expires_at REAL NOT NULL, search TEXT NOT NULL, marks TEXT NOT NULL,
    rounds INTEGER NOT NULL, packed BLOB NOT NULL, body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS accounts_by_revision ON accounts (revision);
CREATE INDEX IF NOT EXISTS accounts_by_name
    ON accounts (username, id, created_at, plan, enabled, expires_at, search, marks);
CREATE INDEX IF NOT EXISTS accounts_by_age
    ON accounts (created_at, id, username, plan, enabled, expires_at, search, marks);
CREATE INDEX IF NOT EXISTS accounts_by_username ON accounts (username);
CREATE INDEX IF NOT EXISTS accounts_by_rounds ON accounts (rounds) WHERE rounds > 0;
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
    id TEXT PRIMARY KEY, revision INTEGER NOT NULL, account_id TEXT NOT NULL, secret_hash TEXT NOT NULL UNIQUE,
    created_at REAL NOT NULL, expires_at REAL NOT NULL, packed BLOB NOT NULL, body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS credentials_by_revision ON credentials (revision);
CREATE INDEX IF NOT EXISTS credentials_by_account ON credentials (account_id, created_at, id);
CREATE INDEX IF NOT EXISTS credentials_by_end ON credentials (expires_at);
CREATE TABLE IF NOT EXISTS certificates (
    entry TEXT NOT NULL, account_id TEXT NOT NULL, PRIMARY KEY (entry, account_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS certificates_by_account ON certificates (account_id);
CREATE TABLE IF NOT EXISTS gone (
    collection TEXT NOT NULL, id TEXT NOT NULL, revision INTEGER NOT NULL, PRIMARY KEY (collection, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS gone_by_revision ON gone (revision);
"""

SEARCHABLE = {
    "timestamp": "$.timestamp",
    "action": "$.action",
    "outcome": "$.outcome",
    "user_id": "$.actor.user_id",
    "username": "$.actor.username",
    "credential_id": "$.credential.id",
    "address": "$.address",
    "request_id": "$.request_id",
    "resource_type": "$.resource.type",
    "resource_id": "$.resource.id",
}
"""Columns of audit entries that SQLite computes from their content, so that they can't differ from it."""
_COMPUTED = ",\n".join(
    f"    {name} TEXT GENERATED ALWAYS AS (json_extract(content, '{path}')) VIRTUAL"
    for name, path in SEARCHABLE.items()
)
_AUDIT = f"""
CREATE TABLE IF NOT EXISTS audit (
    seq INTEGER PRIMARY KEY, content TEXT NOT NULL, hash TEXT NOT NULL, commit_number INTEGER NOT NULL,
{_COMPUTED}
);
CREATE TABLE IF NOT EXISTS head (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, hash TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS audit_by_resource ON audit (resource_id);
CREATE INDEX IF NOT EXISTS audit_by_action ON audit (action);
CREATE INDEX IF NOT EXISTS audit_by_user ON audit (user_id);
CREATE INDEX IF NOT EXISTS audit_by_time ON audit (timestamp);
CREATE INDEX IF NOT EXISTS audit_by_commit ON audit (commit_number);
CREATE TRIGGER IF NOT EXISTS audit_is_not_altered BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END;
CREATE TRIGGER IF NOT EXISTS audit_is_not_cut BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END;
"""

_HISTORY = """
CREATE TABLE IF NOT EXISTS revisions (
    number INTEGER PRIMARY KEY, timestamp TEXT NOT NULL, author TEXT NOT NULL, commit_number INTEGER NOT NULL,
    restored INTEGER, undone INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL DEFAULT 0, updated INTEGER NOT NULL DEFAULT 0, deleted INTEGER NOT NULL DEFAULT 0,
    kinds TEXT NOT NULL DEFAULT ',', size INTEGER NOT NULL DEFAULT 0,
    user_id TEXT GENERATED ALWAYS AS (json_extract(author, '$.actor.user_id')) VIRTUAL,
    username TEXT GENERATED ALWAYS AS (json_extract(author, '$.actor.username')) VIRTUAL
);
CREATE INDEX IF NOT EXISTS revisions_by_commit ON revisions (commit_number);
CREATE TABLE IF NOT EXISTS revision_changes (
    number INTEGER NOT NULL, place INTEGER NOT NULL, collection TEXT NOT NULL, id TEXT NOT NULL, name TEXT,
    fields TEXT NOT NULL, before BLOB, after BLOB, PRIMARY KEY (number, place)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS revision_changes_by_id ON revision_changes (id, number);
CREATE INDEX IF NOT EXISTS revision_changes_by_name ON revision_changes (name, number);
"""

SCHEMA = _DOCUMENTS + _ACCOUNTS + _AUDIT + _HISTORY
"""What makes the tables, and brings those that `FORMER` has to the same."""
FORMER = (
    SCHEMA
    + """
DROP TABLE stamps;
DROP TABLE loose;
DROP TABLE loose_heads;
CREATE TABLE ledger (
    one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL, stamp TEXT NOT NULL
);
"""
)
"""What makes the tables as they were before there were fleets, with the same format."""

NUMBERED = ("documents", "deleted", "plans", "accounts", "credentials", "gone")
"""Tables whose rows have the number of the commit that wrote them, as `revision`."""
READ_AT_START = ("documents", "deleted", "steps")
"""Tables that a start reads as a whole, and in which it looks for damage of any kind."""
CHECKED_AT_START = (
    "stamps",
    "last_used",
    "loose",
    "loose_heads",
    "accounts_store",
    "plans",
    "accounts",
    "credentials",
    "certificates",
    "gone",
    "ends",
)
"""Tables whose structure alone it checks; that of the others is found when they are read, or by a backup."""
