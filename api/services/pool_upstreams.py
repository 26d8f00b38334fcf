"""Checks of chains that go through pools: a proxy with a pool has the upstreams of that as if they were its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from config.model.fields import InvalidProxy
from config.model.proxies import ProxyRecord
from config.model.upstreams import ProxyUpstream, refuse_circle, refuse_itself

OfPool = Callable[[str], Sequence[ProxyUpstream]]
"""The upstreams of the pool of this name; none if there is no such pool."""


def with_pool(record: ProxyRecord, of_pool: OfPool) -> ProxyRecord:
    """The proxy with the upstreams of its pool, if it has one."""
    if record.pool is None:
        return record
    return record.model_copy(update={"upstreams": list(of_pool(record.pool))})


def refuse_chain(record: ProxyRecord, records: Iterable[ProxyRecord], of_pool: OfPool) -> None:
    """Raise `InvalidProxy` when the upstreams of a proxy lead back to it; `records` are all proxies."""
    chained = with_pool(record, of_pool)
    try:
        refuse_itself(chained.upstreams, record.host, record.ports)
        refuse_circle(chained, [with_pool(each, of_pool) for each in records])
    except InvalidProxy as error:
        if record.pool is None:
            raise
        raise InvalidProxy("pool", f"{error.field} of the pool: {error.error}") from error


def refuse_pool(name: str, upstreams: Sequence[ProxyUpstream], records: Sequence[ProxyRecord], of_pool: OfPool) -> None:
    """Raise `InvalidProxy` when with these upstreams of a pool one of the proxies would lead back to itself."""

    def changed(pool: str) -> Sequence[ProxyUpstream]:
        return upstreams if pool == name else of_pool(pool)

    for each in records:
        if each.pool == name:
            try:
                refuse_chain(each, records, changed)
            except InvalidProxy as error:
                raise InvalidProxy("upstreams", f"the proxy {each.name!r} has this pool: {error.error}") from error
