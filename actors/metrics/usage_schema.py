"""The file of what accounts have used: its tables, and the way from the format of the releases before.

`accounts` has what each has used in the present day, week, month and in total; `used`, in its `period` since `since`,
is there to sort by. `warned` and `reached` are the starts of the periods for which there was an event; events wait in
`notices` until they are published. `reports` has the last report of each process, and `ended` the processes whose last
one is taken.
`hours` and `days` are what was used when: by number of the hour or day since 1970, account and proxy.
"""

from __future__ import annotations

import sqlite3

from config.model.quotas import PERIODS

FIGURES = ("bytes_in", "bytes_out", "requests", "milliseconds", "refusals")
"""What is counted of an account, as columns."""
SUMS = tuple(f"{kind}_{column}" for kind in PERIODS for column in ("since", "in", "out"))

_FIGURES = ", ".join(f"{name} INTEGER NOT NULL" for name in FIGURES)
_ACCOUNTS = f"""
CREATE TABLE IF NOT EXISTS accounts (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
    username TEXT NOT NULL DEFAULT '', gone INTEGER NOT NULL DEFAULT 0,
    period TEXT NOT NULL DEFAULT 'total', since REAL NOT NULL DEFAULT 0, used INTEGER NOT NULL DEFAULT 0,
    last_seen REAL NOT NULL DEFAULT 0, client_ip TEXT NOT NULL DEFAULT '', warned REAL, reached REAL,
    {", ".join(f"{name} {'REAL' if name.endswith('since') else 'INTEGER'} NOT NULL DEFAULT 0" for name in SUMS)}
)"""

SCHEMA = f"""
{_ACCOUNTS};
CREATE INDEX IF NOT EXISTS accounts_by_usage ON accounts (period, since, used, id);
CREATE INDEX IF NOT EXISTS accounts_by_last_seen ON accounts (last_seen, id);
CREATE TABLE IF NOT EXISTS proxies (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS reports (
    account INTEGER, instance INTEGER, proxy INTEGER NOT NULL, serial INTEGER NOT NULL, {_FIGURES},
    connections INTEGER NOT NULL, PRIMARY KEY (account, instance)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS reports_by_instance ON reports (instance);
CREATE TABLE IF NOT EXISTS notices (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, at REAL NOT NULL, data TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ended (instance INTEGER PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS hours (
    hour INTEGER, account INTEGER, proxy INTEGER, {_FIGURES}, PRIMARY KEY (hour, account, proxy)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS days (
    day INTEGER, account INTEGER, proxy INTEGER, {_FIGURES}, PRIMARY KEY (day, account, proxy)
) WITHOUT ROWID;
"""


def add_up_processes(database: sqlite3.Connection) -> None:
    """From format 1, which had the bytes of each process by proxy and account in one period."""
    known = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'usage'").fetchone()
    if known is None:
        return
    database.execute(_ACCOUNTS)
    rows = database.execute(
        "SELECT account_id, period, since, sum(bytes_in), sum(bytes_out) FROM usage GROUP BY account_id"
    ).fetchall()
    for account_id, period, since, bytes_in, bytes_out in rows:
        kinds = {period, "total"} & set(PERIODS)
        columns = {f"{kind}_{what}": value for kind in kinds for what, value in (("in", bytes_in), ("out", bytes_out))}
        if period in kinds:
            columns[f"{period}_since"] = since
        row = {"id": account_id, "period": period, "since": since, "used": bytes_in + bytes_out, **columns}
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        database.execute(f"INSERT INTO accounts ({names}) VALUES ({marks})", tuple(row.values()))  # noqa: S608 - ours
    database.execute("DROP TABLE usage")
