"""`users` as accounts, with the limits that `bandlimin`, `countin` and alike set for a single user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from api.import_export.convert.passwords import add_accounts
from api.import_export.convert.report import Effect
from api.import_export.convert.statements import Statement
from api.import_export.convert.threeproxy import entries
from api.import_export.convert.threeproxy.state import State
from config.model.accounts import BANDWIDTH_MIN
from config.passwords import hash_password

_PERIODS = {"D": "day", "W": "week", "M": "month"}
_DIRECTIONS = {"bandlimin": "bandwidth_out", "bandlimout": "bandwidth_in"}
"""What comes in from origins is what clients receive."""
MEGABYTE = 1024 * 1024


def add(state: State, proxies: Sequence[str]) -> None:
    """The accounts of all users, for these proxies."""
    if proxies:
        add_accounts(state.draft, state.report, _entries(state))
    elif state.users:
        why = "no service asks for passwords, so no accounts are made"
        state.report.add(Effect.UNNEEDED, state.users[0][0], why)
    for account in state.draft.accounts:
        account["proxies"] = {"names": list(proxies)}
    by_name = {account["username"]: account for account in state.draft.accounts}
    for statement in state.bandwidth:
        _limit(state, statement, by_name)
    for statement in state.counters:
        _count(state, statement, by_name)


def _entries(state: State) -> Iterator[tuple[Statement, str, str]]:
    """Names and hashes. Passwords in the clear are hashed: the document has none."""
    for statement, word in state.users:
        name, colon, rest = word.partition(":")
        kind, _, password = rest.partition(":")
        if not colon:
            kind, password = "", ""
        one = Statement(statement.place, statement.name, (name,))
        if kind == "CL" and 0 < len(password) <= 128:
            yield one, name, hash_password(password)
        else:
            yield one, name, password if kind == "CR" else f"{kind or 'system'}:"


def _limit(state: State, statement: Statement, by_name: dict[str, Any]) -> None:
    """`bandlimin RATE USERS …`; rates are bits per second."""
    field = _DIRECTIONS.get(statement.name)
    lists = statement.words[1:]
    if field is None or not statement.words[:1] or not statement.words[0].isdecimal():
        _lost(state, statement, "exceptions of limits can't be made")
        return
    rate = max(int(statement.words[0]) // 8, BANDWIDTH_MIN)
    if entries.any_of(lists):
        for proxy in state.draft.proxies:
            proxy.setdefault("limits", {}).setdefault(field, rate)
        why = "3proxy limits all services together, here each proxy has the limit of its own"
        state.report.add(Effect.DIFFERS, statement, why)
        return
    account = by_name.get(lists[0]) if entries.any_of(lists, kept=[0]) else None
    if account is None:
        _lost(state, statement, "bandwidth is limited for a whole proxy or for one account")
        return
    account.setdefault("limits", {}).setdefault(field, rate)


def _count(state: State, statement: Statement, by_name: dict[str, Any]) -> None:
    """`countin NUMBER TYPE LIMIT USERS …`; limits are megabytes."""
    kind, limit = (*statement.words[1:3], "", "")[:2]
    lists = statement.words[3:]
    account = by_name.get(lists[0]) if lists and entries.any_of(lists, kept=[0]) else None
    if statement.name.startswith("no") or account is None or kind not in _PERIODS or not limit.isdecimal():
        _lost(state, statement, "a quota is of one account, over all of its traffic, for a day, a week or a month")
        return
    account.setdefault("quota", {"bytes": int(limit) * MEGABYTE, "period": _PERIODS[kind]})
    if statement.name != "countall":
        state.report.add(Effect.DIFFERS, statement, "a quota counts both directions together")


def _lost(state: State, statement: Statement, why: str) -> None:
    state.report.add(
        Effect.LOST, statement, why, "set limits and quotas of accounts or plans", about=statement.text[:60]
    )
