"""Pages of accounts, and accounts of one name or certificate that would meet at a proxy, as SQL.

A condition is judged in an index that covers it, row by row, in the order of the page, until the page is full.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from api.store.accounts.columns import mark

Sort = Literal["username", "created_at", "last_seen_at", "usage", "rate", "connections"]
SORTS: tuple[Sort, ...] = get_args(Sort)
BY_FIGURE: tuple[Sort, ...] = ("last_seen_at", "usage", "rate", "connections")
"""Orders by figures of the metrics collector (`api.store.accounts.usage_order`): of its file, or of now."""

Position = tuple[Any, str]
"""Where a page ended: the value that is sorted by, and the id."""


Figures = Callable[[Sort, Sequence[str]], Mapping[str, Any]]
"""Returns what is sorted by in an order of `BY_FIGURE`, by the ids of accounts."""


@dataclass(frozen=True, slots=True)
class AccountSelection:
    """Which accounts, and in which order. None selects by nothing.

    `q` is a part of the user name or of a value of the metadata, without regard to case. `proxy` is the id of a proxy
    and its tags; `plan` an id.
    """

    q: str | None = None
    proxy: tuple[str, tuple[str, ...]] | None = None
    plan: str | None = None
    tag: str | None = None
    status: Literal["active", "disabled", "expired"] | None = None
    sort: Sort = "username"
    descending: bool = False
    figures: Mapping[str, float] | None = None
    """Of now, by id, for the order by `rate` or `connections`; those without any are left out."""

    def page_sql(self, after: Position | None, limit: int) -> tuple[str, list[Any]]:
        """The ids of a page, with what is sorted by; not in an order of `BY_FIGURE`."""
        conditions = list(self.terms())
        if after is not None:
            conditions.append((f"({self.sort}, id) {'<' if self.descending else '>'} (?, ?)", [*after]))
        where = " AND ".join(["1", *(term for term, _ in conditions)])
        bound = [value for _, values in conditions for value in values]
        order = "DESC" if self.descending else "ASC"
        index = "accounts_by_name" if self.sort == "username" else "accounts_by_age"
        return (
            f"SELECT {self.sort}, id FROM accounts INDEXED BY {index} WHERE {where}"  # noqa: S608 - names are ours, values are bound
            f" ORDER BY {self.sort} {order}, id {order} LIMIT ?",
            [*bound, limit],
        )

    def terms(self) -> Iterator[tuple[str, list[Any]]]:
        """The conditions on columns of accounts, with the values that they are bound to."""
        if self.plan is not None:
            yield "plan = ?", [self.plan]
        if self.status is not None:
            yield _STATUS[self.status], [] if self.status == "disabled" else [time.time()]
        if self.tag is not None:
            yield "instr(marks, ?)", [mark("label", self.tag)]
        if self.proxy is not None:
            yield _may_use(*self.proxy)
        if self.q is not None:
            yield "instr(search, ?)", [self.q.lower()]


def named_like_sql(q: str, limit: int) -> Iterator[tuple[str, list[Any]]]:
    """The ids, user names and searched texts of accounts: of those whose name begins with `q`, as it is usually spelt,
    and of those that have it anywhere. The latter reads the whole index where few have it."""
    columns = "SELECT id, username, search FROM accounts INDEXED BY accounts_by_name WHERE"
    for each in dict.fromkeys((q, q.lower(), q.upper(), q.capitalize())):
        yield f"{columns} username >= ? AND username < ? LIMIT ?", [each, each + chr(sys.maxunicode), limit]
    yield f"{columns} instr(search, ?) LIMIT ?", [q.lower(), limit]


_STATUS = {
    "active": "enabled AND (expires_at = 0 OR expires_at > ?)",
    "disabled": "NOT enabled",
    "expired": "enabled AND expires_at > 0 AND expires_at <= ?",
}


def _may_use(proxy_id: str, proxy_tags: Collection[str]) -> tuple[str, list[Any]]:
    marks = [mark("all"), mark("id", proxy_id), *(mark("tag", each) for each in proxy_tags)]
    return f"({' OR '.join(['instr(marks, ?)'] * len(marks))})", marks


def _may_use_but(proxy_id: str, proxy_tags: Collection[str], without: Collection[str]) -> tuple[str, list[Any]]:
    condition, values = _may_use(proxy_id, proxy_tags)
    if without:
        condition += f" AND id NOT IN ({', '.join('?' * len(without))})"
        values = [*values, *without]
    return condition, values


def clash_sql(
    what: Clash, proxy_id: str, proxy_tags: Collection[str], without: Collection[str]
) -> tuple[str, list[Any]]:
    """What several accounts have which may use this proxy, and the ids of two of them; `without` these ids."""
    condition, values = _may_use_but(proxy_id, proxy_tags, without)
    known, joined = _CLASHES[what]
    return (
        f"SELECT {what}, min(id), max(id) FROM {joined} WHERE {what} IN"  # noqa: S608 - as above
        f" (SELECT {what} FROM {known} GROUP BY {what} HAVING count(*) > 1)"
        f" AND {condition} GROUP BY {what} HAVING count(*) > 1 LIMIT 1",
        values,
    )


Clash = Literal["username", "entry"]
"""What only one account of a proxy may have: a name, and an entry for certificates."""

_CLASHES: Mapping[Clash, tuple[str, str]] = {
    "username": ("accounts INDEXED BY accounts_by_name", "accounts INDEXED BY accounts_by_name"),
    "entry": ("certificates", "certificates JOIN accounts ON id = account_id"),
}
"""Where it is, alone and with its account."""
