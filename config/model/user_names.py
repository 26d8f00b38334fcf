"""Names of users: which are allowed, and which two are the same.

A name must not be confusable with another. Unicode's advice for that (UTS #39, "highly restrictive") is followed as far
as the standard library knows characters: compatibility forms are folded (NFKC), invisible characters are refused, and
letters are of one script, or of those that are written together in Chinese, Japanese and Korean, with Latin beside
them. Names that are stored already stay good.
"""

from __future__ import annotations

import unicodedata

_INVISIBLE = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
"""Categories of characters that have no shape of their own."""
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters, marks and symbols that show nothing."""
_TOGETHER = (
    frozenset(("LATIN", "CJK", "HIRAGANA", "KATAKANA")),
    frozenset(("LATIN", "CJK", "HANGUL")),
    frozenset(("LATIN", "CJK", "BOPOMOFO")),
)
_SCRIPTS = {"IDEOGRAPHIC": "CJK", "KATAKANA-HIRAGANA": "KATAKANA"}
"""First words of names of letters that are no script's."""


def new_name(text: str) -> str:
    """The name as it is stored. Raises `ValueError` for a name that is not allowed."""
    name = unicodedata.normalize("NFKC", text)
    if name != name.strip():
        raise ValueError("must not begin or end with a blank")
    if any(_is_invisible(character) for character in name):
        raise ValueError("must not have characters that are not seen, as format characters")
    scripts = {_script(character) for character in name if unicodedata.category(character).startswith("L")}
    if len(scripts) > 1 and not any(scripts <= group for group in _TOGETHER):
        raise ValueError(f"must not mix letters of several scripts: {', '.join(sorted(map(str.title, scripts)))}")
    return name


def name_key(text: str) -> str:
    """What is equal for two spellings of one name: case and compatibility forms make no other name."""
    if text.isascii():
        return text.lower()  # every request by HTTP Basic compares with all users
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _is_invisible(character: str) -> bool:
    selector = "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
    mongolian = "\u180b" <= character <= "\u180f"
    return unicodedata.category(character) in _INVISIBLE or character in _FILLERS or selector or mongolian


def _script(letter: str) -> str:
    """The script of a letter is the first word of its name in the Unicode database."""
    word = unicodedata.name(letter, "UNKNOWN").partition(" ")[0]
    return _SCRIPTS.get(word, word)
