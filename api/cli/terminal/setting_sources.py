"""The table of keys of the configuration with the sources of their values: of `config show` and `settings sources`."""

from __future__ import annotations

import json
from typing import Any

from api.cli.options import flag
from api.cli.terminal.output import Column, Output

DEFAULT, BY_API, BY_COMMAND_LINE = "default", "API", "command line"
_WORDS = {"api": BY_API, "command_line": BY_COMMAND_LINE}
COLUMNS = (
    Column("KEY", "key"),
    Column("VALUE", "text"),
    Column("FROM", "source"),
    Column("CHANGE", "change", spare=1),
)

CHANGED = flag("--changed", "Only keys whose value is not the default.")


def print_sources(out: Output, name: str, rows: list[dict[str, Any]], changed: bool) -> None:
    """Print keys as a table, or as JSON below `name`; with `changed` those without their default."""
    rows = [each for each in rows if each["source"] != DEFAULT or not changed]
    texts = [
        {
            "key": each["key"],
            "text": _text(each["value"]),
            "source": source_text(each),
            "change": each["change"].replace("_", " "),
        }
        for each in rows
    ]
    out.data({name: rows}, lambda: out.table(COLUMNS, texts, "All keys have their defaults."))


def source_text(row: dict[str, Any]) -> str:
    """Where the value comes from: the place, else the name of the source."""
    return str(row["place"] or _WORDS.get(row["source"], row["source"]))


def _text(value: Any) -> str:
    """The value as in the file; `-` if it is not set."""
    if value is None or value == "":
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
