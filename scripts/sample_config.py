"""docs/proxyfleet.toml, an annotated configuration: every key with its default, commented out, and what it means.

Meanings come from the table of docs/configuration.md, defaults from the settings themselves. `sample()` is the text;
run as a program this writes the file that is named.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from textwrap import wrap
from typing import Any

from api.cli.documents import as_toml
from config.settings.settings import Settings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
WIDTH = 100
HEAD = """# Proxyfleet: all keys of the configuration. Each line that is commented out is the default.
#
# `proxyfleet serve --config FILE` starts with this file, `proxyfleet check-config --config FILE` finds mistakes in it.
# SIGHUP (`systemctl reload proxyfleet`) applies a changed file. Details: docs/configuration.md.
"""


def rows() -> Iterator[tuple[list[str], str, str]]:
    """Rows of the table: the keys, their defaults in words, what they mean in a sentence."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            keys, default, meaning = re.split(r"(?<!\\) \| ", line.strip("| "), maxsplit=2)
            names = re.findall(r"`([a-z0-9_.]+)`", keys)
            if names and names[0].split(".")[0] in Settings.model_fields:
                yield names, _plain(default), _sentence(meaning)


def sample() -> str:
    """The whole file."""
    defaults = Settings()
    parts, table = [HEAD], ""
    for names, default, meaning in sorted(rows(), key=lambda row: _place(row[0][0])):
        group = names[0].rpartition(".")[0]
        if group != table:
            parts.append(f"\n[{group}]\n")
            table = group
        parts.append("\n" + "".join(f"# {line}\n" for line in wrap(meaning, WIDTH)))
        for name in names:
            value = _simple(reduce(getattr, name.split("."), defaults))
            parts.append(_assignment(name.rpartition(".")[2], value, default))
    return "".join(parts)


def _place(name: str) -> tuple[int, str]:
    """Groups in the order of the settings, keys of a table before the tables in it."""
    top, _, rest = name.partition(".")
    group = rest.rpartition(".")[0]
    return (list(Settings.model_fields).index(top) if rest else -1), group


def _assignment(key: str, value: Any, words: str) -> str:
    if value is None or value == {}:
        return f"#{key} =   # default: {words}\n"
    return f"#{as_toml({key: value})}"


def _simple(value: Any) -> Any:
    """In the types that TOML has."""
    if isinstance(value, (tuple, frozenset)):
        return list(value)
    return value if value is None or isinstance(value, (bool, int, float, str, dict)) else str(value)


def _sentence(markdown: str) -> str:
    """Keys and values (code) are as they are, also at the beginning."""
    text = _plain(markdown)
    first = text[:1] if markdown.startswith("`") else text[:1].upper()
    return first + text[1:] + ("" if text.endswith(".") else ".")


def _plain(markdown: str) -> str:
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", markdown).replace("\\|", "|").replace("**", "").replace("`", "")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(sample(), encoding="utf-8")
