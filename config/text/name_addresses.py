"""What sentences of access records say to some readers alone: addresses of names, and upstreams that have failed.

What an internal name resolves to is known to those who run the proxies, not to everybody who may use or watch them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NAME_WITH_ADDRESS = re.compile(r"^(\S+) \([0-9a-f.:]+\) port (?=\d)", re.ASCII)


_TRIED = "; upstreams tried: "
_NAMED = 5
"""Upstreams that a sentence names."""


def with_tried(sentence: str, failures: Sequence[tuple[str, str]]) -> str:
    """The sentence with the names of the upstreams that were tried in vain, and what each did."""
    named = ", ".join(f"{name} ({cause})" for name, cause in failures[:_NAMED])
    more = f" and {len(failures) - _NAMED} more" if len(failures) > _NAMED else ""
    return f"{sentence}{_TRIED if sentence else _TRIED[2:]}{named}{more}"


def without_tried(sentence: str) -> str:
    """The sentence without these."""
    before, found, _ = sentence.partition(_TRIED)
    return "" if not found and sentence.startswith(_TRIED[2:]) else before


def name_and_address(name: str, address: str) -> str:
    """As a sentence begins that goes on with ` port ` and the port."""
    return f"{name} ({address})"


def without_address(sentence: str) -> str:
    """The sentence without the address of its name; any other sentence as it is."""
    return _NAME_WITH_ADDRESS.sub(r"\1 port ", sentence)
