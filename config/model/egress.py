"""Fields that say where connections leave from: `bind_address` of a proxy, `egress` of a plan and of a rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, WithJsonSchema

from config.model import json_patterns
from config.model.access import each_entry
from config.model.fields import InvalidResource
from config.net.addresses import not_local, read_bind_address
from config.net.entries import is_network, read_egress, usual_form

EGRESS_MAX = 100
"""Entries in one list."""


def _usual_forms(entries: list[str]) -> list[str]:
    return [usual_form(each) for each in entries]


def _bind_address(given: Any) -> str | list[str]:
    """One address or network, empty for any address, or several; an empty list is any address as well."""
    if isinstance(given, str):
        return usual_form(given) if is_network(given) else read_bind_address(given)
    if not isinstance(given, list):
        raise ValueError("must be an address, a network or a list of them")
    if len(given) > EGRESS_MAX:
        raise ValueError(f"must have at most {EGRESS_MAX} entries")
    return _usual_forms(each_entry(read_egress)(given)) or ""


_ENTRIES = {"type": "array", "items": {"type": "string", "pattern": json_patterns.NETWORK}, "maxItems": EGRESS_MAX}
_NETWORK = {"type": "string", "pattern": json_patterns.NETWORK, "maxLength": 49}
BindAddress = Annotated[
    str | list[str],
    PlainValidator(_bind_address),
    WithJsonSchema({"anyOf": [{"const": ""}, _NETWORK, _ENTRIES]}),
]
Egress = Annotated[
    list[str],
    Field(max_length=EGRESS_MAX),
    BeforeValidator(each_entry(read_egress)),
    AfterValidator(_usual_forms),
    WithJsonSchema(_ENTRIES),
]
SomeEgress = Annotated[
    list[str],
    Field(min_length=1, max_length=EGRESS_MAX),
    BeforeValidator(each_entry(read_egress)),
    AfterValidator(_usual_forms),
    WithJsonSchema({**_ENTRIES, "minItems": 1}),
]


def refuse_foreign(entries: Iterable[str], field: str) -> None:
    """Raises `InvalidResource` for a single address that this machine doesn't have; networks need not be configured."""
    for index, entry in enumerate(entries):
        error = None if is_network(entry) else not_local(entry)
        if error is not None:
            routed = f"{entry}/{128 if ':' in entry else 32}"
            raise InvalidResource(f"{field}[{index}]", f"{error}; write {routed} if it is only routed here")


def entries_of(bind_address: str | list[str]) -> tuple[str, ...]:
    """The addresses and networks among which there is a choice; none where it is one address, or any."""
    if isinstance(bind_address, list):
        return tuple(bind_address)
    return (bind_address,) if is_network(bind_address) else ()
