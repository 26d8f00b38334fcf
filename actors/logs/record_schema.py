"""The schema of a record: which fields are texts, which are numbers, which are searched for words.

A record is a list with the values of `ACCESS_FIELDS`. Records from the bus are checked here once, and all other
modules rely on it: texts are `str` without control characters, numbers are numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from config.text.access_fields import ACCESS_FIELDS
from config.text.formatting import printable
from config.text.reasons import REPORTED

Row = list[Any]

TIMESTAMP = "timestamp"
NUMBERS = ("response_time", "duration", "bytes_in", "bytes_out")
LISTEN_PORT = "listen_port"
TLS_NAME, ALPN = "tls_name", "alpn"
FACETS = ("level", "proxy_id", "client_ip", "user", "method", "status_code", "reason", "parent")
"""Fields with few different values."""
TARGET = "target_url"
HOST = "target_host"
"""Stands for the host of the target where values are counted (`actors.logs.counting`)."""
WAY = "way"
"""Stands for all of `WAY_FIELDS` where values are counted: joined with `SEPARATOR`, those of a record are one value."""
WAY_FIELDS = ("user", "proxy_id", "pool", "parent", HOST, "reason")
SEPARATOR = "\x1f"
"""Records have no control characters."""
OUTCOME = "outcome"
"""Stands for one of `config.model.choices.OUTCOMES`, by `OUTCOME_FIELDS` (`outcome_of`), where records are searched
and counted."""
OUTCOME_FIELDS = ("reason", "status_code", "level")
OTHERS = (
    "detail",
    "rule",
    "credential",
    "source_address",
    "parameters",
    "pool",
    "country",
    "asn",
    LISTEN_PORT,
    TLS_NAME,
    ALPN,
    "tls_version",
)
CODES = ("status_code", LISTEN_PORT)
"""Numbers outside and texts in here, since what is asked for is one of them; an empty text is 0."""
REQUEST_ID = "request_id"
SEARCHED = ("method", "status_code", "reason", "client_ip", "proxy_id", "user", TARGET)
"""The fields that are searched for words; the first three and the target make up the message of a record."""

_TEXTS = tuple(ACCESS_FIELDS.index(name) for name in (*FACETS, TARGET, REQUEST_ID, *OTHERS) if name not in CODES)
_texts_of = itemgetter(*_TEXTS)
_VALID: set[tuple[type, ...]] = set()
"""Types of rows that were found valid; there are few."""


def valid_rows(rows: Iterable[Any]) -> list[Row]:
    """The rows that are records, their texts without control characters; others are left out."""
    return [_clean(row) for row in rows if isinstance(row, list) and _is_valid(row)]


def outcome_of(reason: str, status_code: str, level: str) -> str:
    """One of `config.model.choices.OUTCOMES`.

    What is only reported decides nothing; a refusal behind the 200 of a tunnel is a warning.
    """
    is_own = reason != "" and not reason.startswith(REPORTED)
    if status_code < "400":
        return "refused" if is_own and level == "warning" else "passed"
    if not is_own:
        return "origin_error"
    return "refused" if status_code < "500" else "failed"


def empty_record() -> dict[str, Any]:
    """Every field with its empty value."""
    return {name: 0 if name in (TIMESTAMP, *NUMBERS, *CODES) else "" for name in ACCESS_FIELDS}


def _is_valid(row: Row) -> bool:
    types = tuple(map(type, row))
    if types in _VALID:
        return True
    if len(types) != len(ACCESS_FIELDS):
        return False
    for name, kind in zip(ACCESS_FIELDS, types, strict=True):
        if kind not in ((int, float) if name in (TIMESTAMP, *NUMBERS, *CODES) else (str,)):
            return False
    _VALID.add(types)
    return True


def _clean(row: Row) -> Row:
    if "".join(_texts_of(row)).isprintable():
        return row
    cleaned = list(row)
    for at in _TEXTS:
        cleaned[at] = printable(row[at])
    return cleaned
