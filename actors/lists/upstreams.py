"""Reads the upstreams of a pool from its source, as lines or as CSV (`config.text.upstream_lines`).

A line that is no upstream is skipped and counted; its text, which may hold a password, is in no report. A name that
several lines have names none of them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from actors.lists.compiled import ListError
from actors.lists.reading import Skipped
from actors.lists.streams import Chunks
from config.model.fields import InvalidProxy, field_path
from config.model.shared_objects.pools import PoolUpstreamInput
from config.model.shared_objects.upstreams import UPSTREAMS_MAX, check_upstream
from config.text.formatting import counted, worded
from config.text.upstream_lines import BadUpstreamLine, Entry, each_entry

Read = tuple[str, list[dict[str, Any]], Skipped]


def read_upstreams(chunks: Chunks, form: str, entries_before: int) -> Read:
    """The digest of the upstreams, each as a request gives it, and the lines that are none.

    `form` is the format, and behind a space the protocol of lines without a scheme. Raises `ListError` where there
    is no upstream, or less than half of those before.
    """
    try:
        text = b"".join(chunks).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ListError("it is not UTF-8") from error
    skipped = Skipped()
    try:
        found = _without_shared_names(list(_distinct(text, form, skipped)))
    except BadUpstreamLine as error:
        raise ListError(f"it is no CSV with upstreams: {error}") from error
    if not found:
        raise ListError(f"there is no upstream in it ({counted(skipped.count, 'line')} skipped)")
    if len(found) * 2 < entries_before:
        now = f"{counted(len(found), 'upstream')} now ({counted(skipped.count, 'line')} skipped)"
        raise ListError(f"it has {now}, {entries_before} before: less than half")
    given = [each.model_dump(exclude_unset=True) for each in found]
    return hashlib.sha256(repr(given).encode()).hexdigest(), given, skipped


def _distinct(text: str, form: str, skipped: Skipped) -> Iterator[PoolUpstreamInput]:
    """Those that can be used, each once."""
    kind, _, protocol = form.partition(" ")
    lines: dict[tuple[str, str, int, str | None], int] = {}
    for number, entry in each_entry(text, kind, protocol):
        try:
            upstream = _checked(entry)
        except ValueError as error:
            skipped.add(number, "", str(error).removeprefix(f"line {number}: "))
            continue
        user = None if upstream.auth is None else upstream.auth.username
        first = lines.setdefault((upstream.protocol, upstream.host, upstream.port, user), number)
        if first != number:
            skipped.add(number, "", f"is the same upstream as line {first}")
        elif len(lines) > UPSTREAMS_MAX:
            skipped.add(number, "", f"there may be {UPSTREAMS_MAX} at most")
        else:
            yield upstream


def _checked(entry: Entry | BadUpstreamLine) -> PoolUpstreamInput:
    """Raises `ValueError`, whose text quotes nothing of the line."""
    if isinstance(entry, BadUpstreamLine):
        raise entry
    try:
        upstream = PoolUpstreamInput.model_validate(entry)
        check_upstream(upstream, "")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = field_path(first["loc"][:1])  # what is below may be a part of the line, and so is the error's input
        raise ValueError(f"{field}: {worded(first)}") from None
    except InvalidProxy as error:
        raise ValueError(f"{error.field.removeprefix('.')}: {error.error}") from None
    return upstream


def _without_shared_names(found: list[PoolUpstreamInput]) -> list[PoolUpstreamInput]:
    names = Counter(each.name for each in found)
    return [each.model_copy(update={"name": None}) if names[each.name] > 1 else each for each in found]
