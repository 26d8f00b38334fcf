"""Lists as others publish them, read as a stream: `read_list` adds what is understood to a compiler.

Nothing is guessed. A line that is no entry of the format is skipped and counted, and the first few are kept as
examples. Memory depends on the longest line, which is bounded, not on the size of the list.

One parser for each format: from a line to the texts of its entries, which are read as domains or networks later. A
parser raises `Skip` with the reason for a line that is none of its format. Comments and empty lines have no entries.

Response policy zones: zone files (RFC 1035, section 5) whose names are triggers (draft-vixie-dnsop-dns-rpz). `name
CNAME .` and other actions list the name, `rpz-passthru` excepts it. Names of a trigger for clients or name servers list
nothing, and those for addresses (`rpz-ip`) list networks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from actors.lists.compiled import ListError
from actors.lists.compiler import ListCompiler, domain_of, range_of
from actors.lists.streams import Chunks, lines
from config.net.addresses import is_address

Parser = Callable[[str], Sequence[str]]

NOTHING: Sequence[str] = ()

_LOCAL = frozenset(
    ("localhost", "localhost.localdomain", "localhost4", "localhost4.localdomain4", "localhost6",
     "localhost6.localdomain6", "local", "broadcasthost", "ip6-localhost", "ip6-loopback", "ip6-localnet",
     "ip6-mcastprefix", "ip6-allnodes", "ip6-allrouters", "ip6-allhosts")
)  # fmt: skip
"""What a hosts file says about the machine itself."""
_USUAL = frozenset(("0.0.0.0", "127.0.0.1", "::", "::1"))  # noqa: S104 - text of hosts files
_ADBLOCK = re.compile(r"\|\|([^\s^/*$|:?=&~#]+)\^")
_COSMETIC = re.compile(r"#@?[$%?]{0,2}#")


class Skip(Exception):
    """The line is no entry; the text is the reason."""


def plain(line: str) -> Sequence[str]:
    """A domain or a network on each line. `#`, `;` and `!` begin comments; `*.` or a dot before a domain mean the same
    as none."""
    if line[:1] in "#;!":
        return NOTHING
    words = line.split(None, 1)
    if len(words) == 2 and words[1][0] not in "#;!":
        raise Skip("has more than one word")
    text = words[0].partition("#")[0].rstrip(";,")
    return (text.removeprefix("*").removeprefix("."),) if text.startswith(("*.", ".")) else (text,)


def hosts(line: str) -> Sequence[str]:
    """Names behind an address, as in /etc/hosts. Names of the machine itself are left out."""
    address, *names = line.partition("#")[0].split() or ("",)
    if not address:
        return NOTHING
    if address not in _USUAL and not is_address(address):
        raise Skip("doesn't begin with an address")
    if not names:
        raise Skip("has no name behind the address")
    return [each for each in names if each.lower() not in _LOCAL and each != address]


def adblock(line: str) -> Sequence[str]:
    """`||domain^` alone. Rules for parts of a site, of a page or for some requests only list no domain."""
    if line.startswith("!") or (line.startswith("[") and line.endswith("]")):
        return NOTHING
    if found := _ADBLOCK.fullmatch(line):
        return (found[1],)
    if line.startswith("@@"):
        raise Skip("is an exception")
    if _COSMETIC.search(line):
        raise Skip("is a cosmetic rule")
    if _ADBLOCK.match(line) and "$" in line:
        raise Skip("has options")
    raise Skip("is not ||domain^")


_TYPES = frozenset(("A", "AAAA", "CNAME", "TXT", "MX", "SRV", "PTR", "LOC", "HTTPS", "SVCB"))
_OF_THE_ZONE = frozenset(("SOA", "NS", "DNSKEY", "RRSIG", "NSEC", "NSEC3", "NSEC3PARAM", "DS"))
_CLASSES = frozenset(("IN", "CH", "HS"))
_TTL = re.compile(r"(?:[0-9]{1,10}[smhdw])*+[0-9]{0,10}+", re.IGNORECASE | re.ASCII)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+"?+')
"""A text; one without end goes to the end of the line."""
_EXCEPTIONS = ("rpz-passthru.", "rpz-passthru")
_OTHER_TRIGGERS = ("rpz-client-ip", "rpz-nsdname", "rpz-nsip")


class Rpz:
    """A parser with the state of a zone file: its origin, the owner of the last record, open parentheses.

    `networks`: triggers by address are the entries, in place of those by name.
    """

    def __init__(self, networks: bool) -> None:
        self._networks = networks
        self._origin = ""
        self._owner = ""
        self._open = 0

    def __call__(self, line: str) -> Sequence[str]:
        """The entries of a line; see `actors.lists.reading`. `line` has its blanks at the beginning."""
        text = _QUOTED.sub('"', line).partition(";")[0]
        continued = self._open > 0
        self._open = max(0, self._open + text.count("(") - text.count(")"))
        if continued or not text.strip():
            return NOTHING
        if text.startswith("$"):
            return self._directive(text.split())
        words = text.split()
        if not text[0].isspace():
            self._owner = words.pop(0)
        return self._record(words)

    def _directive(self, words: list[str]) -> Sequence[str]:
        if words[0].upper() == "$ORIGIN" and len(words) > 1:
            self._origin = _absolute(words[1], self._origin)
        elif words[0].upper() != "$TTL":
            raise Skip(f"{words[0][:20]} is not supported")
        return NOTHING

    def _record(self, words: list[str]) -> Sequence[str]:
        while words and (words[0].upper() in _CLASSES or _TTL.fullmatch(words[0])):
            words.pop(0)
        kind = words[0].upper() if words else ""
        if kind in _OF_THE_ZONE:
            if kind == "SOA" and self._owner != "@":
                self._origin = _absolute(self._owner, self._origin)
            return NOTHING
        if kind not in _TYPES:
            raise Skip("is no record of a zone")
        if len(words) > 1 and words[1].lower() in _EXCEPTIONS:
            raise Skip("is an exception")
        return self._trigger(self._relative(self._owner))

    def _relative(self, owner: str) -> str:
        """The owner without the name of the zone."""
        if not owner.endswith("."):
            return owner.lower()
        zone = self._origin.lower()
        name = owner.lower()
        if not zone or not name.endswith("." + zone):
            raise Skip("is not below the name of the zone")
        return name.removesuffix("." + zone)

    def _trigger(self, name: str) -> Sequence[str]:
        if name.endswith(_OTHER_TRIGGERS):
            raise Skip("is not about targets")
        is_network = name.endswith(".rpz-ip")
        if is_network != self._networks:
            raise Skip("is a name" if self._networks else "is an address")
        return (_network(name.removesuffix(".rpz-ip")),) if is_network else (name.removeprefix("*."),)


def _absolute(name: str, origin: str) -> str:
    return name if name.endswith(".") else f"{name}.{origin}" if origin else f"{name}."


def _network(trigger: str) -> str:
    """`24.0.2.0.192` is 192.0.2.0/24, `48.zz.8.db8.2001` is 2001:db8:8::/48."""
    length, *parts = trigger.split(".")
    parts.reverse()
    try:
        if len(parts) == 4 and "zz" not in parts:
            return f"{IPv4Address('.'.join(parts))}/{int(length)}"
        return f"{IPv6Address(_colons(parts))}/{int(length)}"
    except ValueError:
        raise Skip("is not an address") from None


def _colons(parts: list[str]) -> str:
    """Words of an IPv6 address; `zz` is the run of zeros."""
    text = ":".join("" if each == "zz" else each for each in parts)
    return "::" if parts == ["zz"] else f":{text}" if parts[0] == "zz" else f"{text}:" if parts[-1] == "zz" else text


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
