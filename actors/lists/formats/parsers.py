"""One parser for each format: from a line to the texts of its entries, which are read as domains or networks later.

A parser raises `Skip` with the reason for a line that is none of its format. Comments and empty lines have no entries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from config.net.ip import is_address

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
