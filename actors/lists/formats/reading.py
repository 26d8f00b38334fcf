"""Reads a list in any format and adds its entries to a compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from actors.lists.compiler import ListCompiler
from actors.lists.formats.parsers import NOTHING, Parser, Skip, adblock, hosts, plain
from actors.lists.formats.rpz import Rpz
from actors.lists.formats.streams import Chunks, lines
from actors.lists.layout import ListError
from actors.lists.names import domain_of, range_of

ENTRIES_MAX: Final = 20_000_000
"""Entries that are held while a list is compiled."""
EXAMPLES: Final = 5
EXAMPLE_LENGTH: Final = 120
DOMAINS: Final = "domains"
NETWORKS: Final = "networks"

_PARSERS: Mapping[str, Callable[[str], Parser]] = {
    "plain": lambda _kind: plain,
    "hosts": lambda _kind: hosts,
    "adblock": lambda _kind: adblock,
    "rpz": lambda kind: Rpz(kind == NETWORKS),
}


@dataclass(slots=True)
class Skipped:
    """Lines that were no entries: how many, and for the first few of them the line's number, its text and why."""

    count: int = 0
    examples: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, number: int, text: str, reason: str) -> None:
        """One line."""
        self.count += 1
        if len(self.examples) < EXAMPLES:
            printable = "".join(each if each.isprintable() else "\ufffd" for each in text[:EXAMPLE_LENGTH])
            self.examples.append((number, printable, reason))


def read_list(chunks: Chunks, kind: str, form: str, compiler: ListCompiler) -> Skipped:
    """Add all entries of a list. `kind` is `DOMAINS` or `NETWORKS`, `form` a format. Raises `ListError`."""
    parse, skipped = _PARSERS[form](kind), Skipped()
    add = _add_domain if kind == DOMAINS else _add_network
    for number, line in enumerate(lines(chunks), 1):
        texts = _texts(parse, line, number, skipped)
        for text in texts:
            try:
                add(compiler, text)
            except ValueError as error:
                skipped.add(number, text, str(error))
        if texts and compiler.added > ENTRIES_MAX:
            raise ListError(f"it has more than {ENTRIES_MAX} entries")
    return skipped


def _texts(parse: Parser, line: bytes | None, number: int, skipped: Skipped) -> Sequence[str]:
    """The entries of a line, or nothing where it is skipped."""
    if line is None:
        skipped.add(number, "", "is too long")
        return NOTHING
    text = ""
    try:
        text = line.decode("utf-8").rstrip()
        keeps_blanks = isinstance(parse, Rpz)
        return parse(text if keeps_blanks else text.lstrip()) if text and not text.isspace() else NOTHING
    except UnicodeDecodeError:
        skipped.add(number, line.decode("utf-8", "replace"), "is not UTF-8")
    except Skip as reason:
        skipped.add(number, text, str(reason))
    return NOTHING


def _add_domain(compiler: ListCompiler, text: str) -> None:
    compiler.add_domain(domain_of(text))


def _add_network(compiler: ListCompiler, text: str) -> None:
    compiler.add_network(range_of(text))
