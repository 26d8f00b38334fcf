"""`delay_pools`, as limits of bandwidth."""

from __future__ import annotations

from collections.abc import Sequence

from api.import_export.convert.report import Effect
from api.import_export.convert.squid.gathered import TAGGED, DelayPool, Gathered
from api.import_export.convert.statements import Statement

_INDIVIDUAL = "limit the bandwidth of accounts or plans, which is shared by all connections of one account"


def add_statement(gathered: Gathered, statement: Statement) -> None:
    """`delay_class`, `delay_parameters` and `delay_access`: `NAME POOL …`."""
    if not statement.words:
        return
    pool = gathered.delay_pools.setdefault(statement.words[0], DelayPool(statement))
    rest = statement.words[1:]
    if statement.name == "delay_class" and rest and rest[0].isdecimal():
        pool.kind = int(rest[0])
    elif statement.name == "delay_parameters":
        pool.statement, pool.rates = statement, [_rate(word) for word in rest]
    elif statement.name == "delay_access":
        pool.access.append(Statement(statement.place, statement.name, rest))


def _rate(word: str) -> int:
    """Bytes per second of `restore/maximum`, 0 for none."""
    restored = word.partition("/")[0]
    return max(int(restored), 0) if restored.lstrip("-").isdecimal() and restored.lstrip("-") else 0


def limit(gathered: Gathered) -> None:
    """What pools limit: the first for everyone all proxies, those before it the requests of rules."""
    for pool in gathered.delay_pools.values():
        if any(pool.rates[1:]) or (pool.kind >= TAGGED and any(pool.rates)):
            why = "limits of each client, network, user or tag can't be set for a proxy"
            gathered.report.add(Effect.LOST, pool.statement, why, _INDIVIDUAL)
    for pool in gathered.delay_pools.values():
        if _for_everyone(pool.access):
            _limit_proxies(gathered, pool)
            return
        if pool.aggregate and pool.access:
            gathered.limited.append(pool)
            why = "each rule that the requests of the pool are in has the limit of its own, at each proxy"
            gathered.report.add(Effect.DIFFERS, pool.statement, why)


def _limit_proxies(gathered: Gathered, pool: DelayPool) -> None:
    if not pool.aggregate:
        return
    gathered.fields.setdefault("limits", {})["bandwidth_out"] = pool.aggregate
    why = "squid limits what it does not have in its cache, over all ports; each proxy has the limit of its own"
    gathered.report.add(Effect.DIFFERS, pool.statement, why)


def _for_everyone(access: Sequence[Statement]) -> bool:
    return bool(access) and access[0].words in (("allow", "all"), ("allow",))
