"""A name of a target with the address that it led to, in sentences of access records, and without it for some readers.

What an internal name resolves to is known to those who run the proxies, not to everybody who may use or watch them.
"""

from __future__ import annotations

import re

_NAME_WITH_ADDRESS = re.compile(r"^(\S+) \([0-9a-f.:]+\) port (?=\d)", re.ASCII)


def name_and_address(name: str, address: str) -> str:
    """As a sentence begins that goes on with ` port ` and the port."""
    return f"{name} ({address})"


def without_address(sentence: str) -> str:
    """The sentence without the address of its name; any other sentence as it is."""
    return _NAME_WITH_ADDRESS.sub(r"\1 port ", sentence)
