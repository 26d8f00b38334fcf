"""`tcp_outgoing_address`: source addresses of proxies and of rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING

from api.import_export.convert.report import Effect
from api.import_export.convert.squid.lexer import plain
from api.import_export.convert.statements import Statement

if TYPE_CHECKING:
    from api.import_export.convert.squid.gathered import Gathered


@dataclass(slots=True)
class Source:
    """The source addresses of requests that meet the access lists of a line: one of each family."""

    statement: Statement
    addresses: list[str] = field(default_factory=list)

    def add(self, address: str) -> None:
        """Add one, unless there is one of its family already: the first line counts."""
        if ip_address(address).version not in {ip_address(each).version for each in self.addresses}:
            self.addresses.append(address)


def add_source(gathered: Gathered, statement: Statement) -> None:
    """`tcp_outgoing_address ADDRESS ACL…`; lines with the same access lists are one."""
    address = plain((statement.words or ("",))[0])
    try:
        if ip_address(address).is_unspecified:
            raise ValueError
    except ValueError:
        gathered.report.add(Effect.LOST, statement, "names no address", "write an address of this machine")
        return
    for_all = not set(statement.words[1:]) - {"all"}
    known = gathered.source if for_all else _alike(gathered, statement)
    if known is None:
        known = Source(statement)
        if for_all:
            gathered.source = known
        else:
            gathered.sources.append(known)
    known.add(address)


def _alike(gathered: Gathered, statement: Statement) -> Source | None:
    return next((each for each in gathered.sources if each.statement.words[1:] == statement.words[1:]), None)


def finish(gathered: Gathered) -> None:
    """The proxies' own source addresses, and what is missing of a family."""
    whole = gathered.source
    if whole is not None:
        gathered.fields["bind_address"] = whole.addresses if len(whole.addresses) > 1 else whole.addresses[0]
    for each in gathered.sources:
        for address in [] if whole is None else whole.addresses:
            each.add(address)
    for each in (*gathered.sources, *([] if whole is None else [whole])):
        if len(each.addresses) == 1:
            missing = 6 if ip_address(each.addresses[0]).version == 4 else 4
            why = f"names no IPv{missing} address: targets that have only such addresses are refused with 502"
            gathered.report.add(
                Effect.REFUSES, each.statement, why, f"add a line with an IPv{missing} address, if there is one"
            )
