"""Header fields of plain HTTP requests that rules set and remove."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from actors.bus.messages.policies import RuleSpec

_END: Final = b"\r\n\r\n"
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?", re.ASCII)
_OWN = (
    "connection content-length expect host http2-settings keep-alive max-forwards proxy-authenticate "
    "proxy-authentication-info proxy-authorization proxy-connection te trailer transfer-encoding upgrade via"
)
PROTECTED: Final = frozenset(_OWN.split())
"""Fields of framing, of routing and of one hop: a proxy makes them itself."""


class HeaderChanges(NamedTuple):
    """`removed` are names in lower case, those that are set among them; `lines` are the fields to set."""

    removed: frozenset[bytes]
    lines: tuple[bytes, ...]

    def apply(self, head: bytes) -> bytes:
        """The head of a request, as it would be sent, with the changes."""
        first, *lines = head.removesuffix(_END).split(b"\r\n")
        kept = (line for line in lines if line.partition(b":")[0].lower() not in self.removed)
        return b"\r\n".join((first, *kept, *self.lines)) + _END


def header_changes(rules: Iterable[RuleSpec]) -> HeaderChanges | None:
    """What the rules change together; of two that change one field the first decides. None: nothing."""
    fields: dict[str, bytes | None] = {}
    for rule in rules:
        own: dict[str, bytes | None] = dict.fromkeys(map(str.lower, rule.remove_headers))
        own.update((name.lower(), f"{name}: {value}".encode("ascii")) for name, value in rule.set_headers)
        fields = {**own, **fields}
    if not fields:
        return None
    return HeaderChanges(frozenset(map(str.encode, fields)), tuple(line for line in fields.values() if line))


def check_fields(rule: RuleSpec) -> None:
    """Raise `ValueError` for a field that no rule may touch, and for what would not be one field of a head."""
    for name in (*rule.remove_headers, *(name for name, _value in rule.set_headers)):
        if _NAME.fullmatch(name) is None or name.lower() in PROTECTED:
            raise ValueError(f"no rule may set or remove {name!r}")
    for name, value in rule.set_headers:
        if _VALUE.fullmatch(value) is None:
            raise ValueError(f"the value of {name} is not one of a header field")
