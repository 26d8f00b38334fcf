"""The parts of a change that are recorded: those that differ, with secrets masked."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from config.model.choices import MASK
from config.model.webhooks import masked_url
from config.text.formatting import timestamp_text

LONGEST_LIST = 200
"""A list with more entries is recorded as their number and a hash."""
LONGEST_FIELD = 1024
"""Bytes of a field in an entry (a map's are those of each key): the rest becomes its number of bytes and a hash."""
_LONGEST_CHARACTER = 10
"""Bytes, of a surrogate as it is written here."""
MOST_KEYS = 100
"""Keys of a map of which each is a field of its own."""

_SECRET_ENDINGS = ("password", "secret", "token", "_hash", "sealed", "private_key", "passphrase", "authorization")
HIDING = frozenset({"headers"})
"""Headers of webhooks and of sources of lists may hold credentials of the receiver."""
BOOKKEEPING = frozenset({"updated_at", "last_used", "last_login", "disabled_at"})
"""Times of use and change, which alone are no change."""
_MOMENT_ENDINGS = ("_at", "_until", "last_used", "last_login")
"""Times, which are Unix seconds in the store and ISO 8601 here."""
STORED_AS = re.compile(r"_(hash|sealed)$")
"""The end of a name in the store that it doesn't have in the API."""
_USERINFO = re.compile(r"(://[^/@\s:]*):[^/@\s]*@")

Part = dict[str, Any] | None
T = TypeVar("T")


def difference(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, *, clear_headers: bool = False
) -> tuple[Part, Part]:
    """The parts of two documents that differ, masked. A document that isn't there is None; no change is `({}, {})`.

    `clear_headers`: in these documents `headers` is a group of settings and holds no secret.
    """
    hiding = frozenset() if clear_headers else HIDING
    if before is None or after is None:
        return _masked_document(before, hiding), _masked_document(after, hiding)
    return _masked_differences(before, after, hiding)


def field_names(part: Mapping[str, Any], path: str = "") -> list[str]:
    """The fields in a part of a document, with those of nested groups (`auth.password`), by their names in the API."""
    found: list[str] = []
    for name, value in part.items():
        below = isinstance(value, Mapping) and bool(value)
        found += field_names(value, f"{path}{name}.") if below else [path + name.removesuffix("_hash")]
    return sorted(found)


def shortened(value: Any) -> Any:
    """A value as an entry has it: `LONGEST_FIELD` bytes of its beginning, and of the whole the bytes and a SHA-256."""
    if isinstance(value, str):
        return _shortened_text(value)
    if not value or not isinstance(value, (dict, list, tuple, Mapping)):  # a dict is found sooner than a Mapping
        return value
    if len(value) <= MOST_KEYS and isinstance(value, (dict, Mapping)):
        return {_shortened_text(name): shortened(each) for name, each in value.items()}
    whole = _bytes_of(value)
    if len(whole) <= LONGEST_FIELD:
        return value
    if isinstance(value, Mapping):
        return {**dict(_beginning(value.items())), "…": _rest(whole)}
    return [*_beginning(value), _rest(whole)]


def _shortened_text(text: str) -> str:
    if len(text) <= LONGEST_FIELD // _LONGEST_CHARACTER:
        return text
    whole = text.encode("utf-8", "backslashreplace")
    if len(whole) <= LONGEST_FIELD:
        return text
    return whole[:LONGEST_FIELD].decode("utf-8", "ignore") + _rest(whole)


def _beginning(entries: Iterable[T]) -> Iterator[T]:
    left = LONGEST_FIELD
    for each in entries:
        left -= len(_bytes_of(each)) + 1
        if left < 0:
            return
        yield each


def _rest(whole: bytes) -> str:
    return f"… ({len(whole)} bytes, SHA-256 {hashlib.sha256(whole).hexdigest()})"


def _bytes_of(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _has_ids(value: Any) -> bool:
    """Whether each entry has an id, so that only the changed ones are recorded."""
    return isinstance(value, list) and all(isinstance(entry, dict) and "id" in entry for entry in value)


def _entries_not_in(entries: Any, than: Any) -> list[Any]:
    return [entry for entry in entries if entry not in than]


def _masked_document(document: Mapping[str, Any] | None, hiding: frozenset[str]) -> Part:
    return None if document is None else {name: mask(name, value, hiding) for name, value in document.items()}


def _masked_differences(
    before: Mapping[str, Any], after: Mapping[str, Any], hiding: frozenset[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    for name in sorted({*before, *after} - BOOKKEEPING):
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        if isinstance(was, dict) and isinstance(now, dict) and name not in hiding:
            old[name], new[name] = _masked_differences(was, now, hiding)
        elif _has_ids(was) and _has_ids(now):
            old[name], new[name] = (
                mask(name, _entries_not_in(was, now), hiding),
                mask(name, _entries_not_in(now, was), hiding),
            )
        else:
            old[name], new[name] = mask(name, was, hiding), mask(name, now, hiding)
    return old, new


def mask(name: str, value: Any, hiding: frozenset[str]) -> Any:
    """`value` of the field `name` without secrets; maps of the names `hiding` have their keys alone."""
    if value is None or isinstance(value, bool):
        return value
    if _is_secret(name):
        return MASK
    if isinstance(value, str):
        if name == "url":
            return masked_url(value)
        return _USERINFO.sub(rf"\1:{MASK}@", value) if "@" in value else value
    if isinstance(value, (int, float)):
        return timestamp_text(value) if name.endswith(_MOMENT_ENDINGS) else value
    if isinstance(value, (list, tuple)):
        return _listed([mask(name, item, hiding) for item in value])
    if isinstance(value, (dict, Mapping)):
        return {key: MASK if name in hiding else mask(key, item, hiding) for key, item in value.items()}
    return value


def _listed(items: list[Any]) -> Any:
    if len(items) <= LONGEST_LIST:
        return items
    return {"entries": len(items), "sha256": hashlib.sha256(json.dumps(items).encode()).hexdigest()}


@lru_cache(1024)
def _is_secret(name: str) -> bool:
    return name.lower().endswith(_SECRET_ENDINGS)
