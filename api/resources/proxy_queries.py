"""The query parameters of the list of proxies, and the page that they select."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from api.errors import Invalid
from api.http.query import (
    EXAMPLE,
    PATTERN,
    ListCursor,
    Query,
    checksum,
    choice,
    cursor,
    foreign_cursor,
    integer,
    text,
    texts,
)
from api.services.proxy_cache import StoredProxy
from config.model.choices import PROTOCOLS

SORTS: Mapping[str, Callable[[StoredProxy], str | float]] = MappingProxyType(
    {
        "name": lambda proxy: proxy.record.name.casefold(),
        "created_at": lambda proxy: proxy.record.created_at,
        "port": lambda proxy: proxy.record.port,
        "status": lambda proxy: proxy.record.status,
    }
)
_OLDEST_FIRST = "created_at"
_PORT = re.compile("[0-9]{1,5}", re.ASCII)
"""The order in which the store has them."""


@dataclass(frozen=True, slots=True)
class ProxyPage:
    """One page; `start` is the number of proxies before it."""

    proxies: Sequence[StoredProxy]
    start: int
    per_page: int
    total: int
    next_cursor: str | None

    def pagination(self) -> dict[str, Any]:
        """Its position; there is at least one page, even if it is empty. Behind a cursor, a page may begin anywhere."""
        return {
            "page": -(-self.start // self.per_page) + 1,
            "per_page": self.per_page,
            "total": self.total,
            "pages": max(1, -(-self.total // self.per_page)),
            "has_next": self.start + self.per_page < self.total,
            "has_prev": self.start > 0,
        }


class ListProxies(Query):
    """Filters of proxies, their order, and the page."""

    page: int | None = integer("The number of the page, from 1, which is the default; not with `cursor`", 1, 1_000_000)
    per_page: int = integer("The size of the page", 1, 100, 50)
    status: str | None = choice("Only proxies of this status", ("active", "inactive"))
    protocol: str | None = choice("Only proxies of this protocol", PROTOCOLS)
    q: str | None = text(
        "Only proxies with this text in name, host, port or a tag, or with this port in their range; ignores case",
        "office",
        128,
        1,
    )
    tag: tuple[str, ...] = texts("Only proxies with this tag; several must all be there", "office", 128)
    account: str | None = text("Only proxies that this account may use; its id", "acc_0123456789abcdef", 128, lowest=1)
    sort: str = choice(
        "The field to sort by; `-` reverses the order", (*SORTS, *(f"-{name}" for name in SORTS)), _OLDEST_FIRST
    )
    cursor: ListCursor | None = cursor(
        "The `next_cursor` of the previous page, with the same filters and order",
        EXAMPLE,
        PATTERN,
        ListCursor.of,
    )

    def page_of(self, proxies: Sequence[StoredProxy], scope: frozenset[str] | None) -> ProxyPage:
        """The page of `proxies`, which are sorted by age, as far as they are in `scope`. Raises `Invalid`."""
        if self.cursor is not None and self.page is not None:
            raise Invalid("cursor", "must be left out where page is given")
        found = self._sorted(self._matching(proxies, scope))
        start = ((self.page or 1) - 1) * self.per_page if self.cursor is None else self._after(found, self.cursor)
        some = found[start : start + self.per_page]
        following = self._cursor_after(some[-1]).text() if some and start + self.per_page < len(found) else None
        return ProxyPage(some, start, self.per_page, len(found), following)

    def _matching(self, proxies: Sequence[StoredProxy], scope: frozenset[str] | None) -> Sequence[StoredProxy]:
        if self.status is None and self.protocol is None and self.q is None and not self.tag and scope is None:
            return proxies
        return [each for each in proxies if self._matches(each) and (scope is None or each.record.id in scope)]

    def _matches(self, proxy: StoredProxy) -> bool:
        return (
            self.status in (None, proxy.record.status)
            and self.protocol in (None, proxy.record.protocol)
            and all(each in proxy.record.tags for each in self.tag)
            and (self.q is None or _has_text(proxy, self.q))
        )

    def _sorted(self, proxies: Sequence[StoredProxy]) -> Sequence[StoredProxy]:
        if self.sort == _OLDEST_FIRST:
            return proxies
        return sorted(proxies, key=self._key, reverse=self.sort.startswith("-"))

    def _key(self, proxy: StoredProxy) -> tuple[Any, str]:
        return SORTS[self.sort.removeprefix("-")](proxy), proxy.record.id

    def _cursor_after(self, proxy: StoredProxy) -> ListCursor:
        return ListCursor(self._key(proxy), self._checksum())

    def _after(self, found: Sequence[StoredProxy], cursor: ListCursor) -> int:
        """How many of the sorted `found` are not beyond the cursor. Raises `Invalid`."""
        place, reverse = cursor.position_in(self._checksum()), self.sort.startswith("-")
        try:
            return sum(self._key(each) >= place if reverse else self._key(each) <= place for each in found)
        except TypeError as error:  # a forged one, of a text where there is a number
            raise Invalid("cursor", str(foreign_cursor())) from error

    def _checksum(self) -> int:
        return checksum([self.status, self.protocol, self.q, sorted(set(self.tag)), self.account, self.sort])


def _has_text(proxy: StoredProxy, text: str) -> bool:
    if any(text.casefold() in each for each in proxy.once(_texts)):
        return True
    return bool(proxy.record.last_port) and _PORT.fullmatch(text) is not None and int(text) in proxy.record.ports


def _texts(proxy: StoredProxy) -> tuple[str, ...]:
    """What `q` may be a part of."""
    record = proxy.record
    return tuple(each.casefold() for each in (record.name, record.host, str(record.ports), *record.tags))
