"""Untrusted text, made harmless for a line of a log and for a terminal.

A line break forges a line, an escape sequence (ESC, or CSI as the one character U+009B) gives orders to a terminal, and
the marks that turn the direction of writing (U+202E and its like) show another text than there is. Such characters
become what Python would write for them: `\\n`, `\\x1b`, `\\u202e`. All other characters stay.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u00ad\u061c\u180e"  # soft hyphen, Arabic letter mark, Mongolian vowel separator
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # no width, left or right, ends of lines, embeddings, isolates
    "\ufeff\ufff9-\ufffb"  # byte order mark, annotations
    "\ud800-\udfff"  # halves of characters: what can't be encoded
    "\U000e0000-\U000e007f]"  # tags
)


def printable(text: str) -> str:
    """`text` with its unsafe characters escaped. The backslash is none: what was escaped stays as it is."""
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_escaped, text)


def printable_json(line: str) -> str:
    """A line of JSON in which the unsafe characters, which can only be in its texts, are `\\uXXXX`."""
    return line if line.isascii() and line.isprintable() else _UNSAFE.sub(_escaped_json, line)


def _escaped(match: re.Match[str]) -> str:
    return repr(match[0])[1:-1] if not "\ud800" <= match[0] <= "\udfff" else f"\\u{ord(match[0]):04x}"


def _escaped_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
