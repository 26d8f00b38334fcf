"""The words of docs/glossary.md are used in code, comments, logs, tests and documents; these are not."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.folders import ROOT
from tests.kit.tables import table

PRIVATE = re.compile(
    r"(?<![a-z])(wish(es|ed)?|elders?|heirs?|bequeath\w*|bequests?|whoever|whomever|nobody|somebody|told|heard|hears"
    r"|doors?|doorkeeper|troubles?|complaints?)(?![a-z])",
    re.IGNORECASE,
)
"""In names, comments and texts alike: desired state, predecessor, successor, handover, client, operator, report, log,
receive, listener, error, degraded say it."""
PRIVATE_NAMES = re.compile(
    r"(?<![a-z])(say|said|tell|tells|hear|shown|answer|answers|answered|parents?|look|looks|looked|legacy)(?![a-z])"
)
"""Words that a sentence may have, but no name in the product: report, log, view, response, reply, upstream, check,
sample and handover say it."""
EXCEPTIONS = {
    "parent": "a folder's (pathlib) and a process's (psutil); squid's keyword; a field of bus messages",
    "parents": "folders (pathlib)",
    "look_up": "the verb of lookup",
    "tell": "a message without a reply, as in the actor model, beside `ask`",
    "TELL": "as above",
    "SUPERVISOR_LEGACY": "an environment variable that a running older program sets",
    "legacy": "as above",
    "api.door": "a socket in the run directory, which a running older program has bound",
    "api_door": "as above",
    "elders": "a key of the handover from a running older program",
    "heard": "what the API says of the doorbell of a node",
    "told": "columns of tables on disk: attempts of deliveries, series of metrics",
    "user.unprivileged: nobody": "dante's configuration",
}
"""Where the word is right, or a contract with a file, a release or another program."""
EXCEPTED_IN = {
    "elders": "actors/supervision/handover.py",
    "told": "actors/(webhooks/outbox|metrics/increments).py",
    "legacy": "actors/supervision/handover.py",
}
"""Exceptions that hold in these files only."""
STATED_IN = {"test_words.py", "test_docs.py"}
CODE = [
    *(path for top in ("actors", "api", "config", "scripts", "tests") for path in sorted((ROOT / top).rglob("*.py"))),
    ROOT / "supervisor.py",
]


def words_of(path: Path) -> Iterator[tuple[int, bool, str]]:
    """Line, whether it is a name, and text of what people read: names, comments and strings."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type in (tokenize.NAME, tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], token.type == tokenize.NAME, token.string


def separated(name: str) -> str:
    """A name in lower case with `_` between its words."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def exceptions_in(path: Path) -> re.Pattern[str]:
    place = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""
    words = [word for word in EXCEPTIONS if re.fullmatch(EXCEPTED_IN.get(word, ".*"), place)]
    return re.compile(rf"(?<!\w)({'|'.join(map(re.escape, words))})(?!\w)")


STEMS = (
    *("wish", "elder", "heir", "bequ", "whoever", "whomever", "nobody", "somebody", "told", "heard", "hears"),
    *("door", "trouble", "complaint"),
)
STEMS_OF_NAMES = ("say", "said", "tell", "hear", "shown", "answer", "parent", "look", "legacy")
"""What a text with such a word contains in lower case: they are found in a hundredth of the time."""


def may_have_private_words(text: str, names_too: bool) -> bool:
    """False for most files, which need not be split into tokens then."""
    lower = text.lower().replace("their", " ")
    if any(each in lower for each in STEMS) and (PRIVATE.search(text) or PRIVATE.search(separated(text))):
        return True
    return names_too and any(each in lower for each in STEMS_OF_NAMES) and bool(PRIVATE_NAMES.search(separated(text)))


def private_words(path: Path, names_too: bool = True) -> list[str]:
    """Line and text of each private word in a file; in names only those of `PRIVATE` unless `names_too`."""
    if not may_have_private_words(path.read_text(), names_too):
        return []
    excepted = exceptions_in(path)
    found = []
    for line, is_name, text in words_of(path):
        rest = excepted.sub("", text)
        plain = separated(rest) if is_name else rest
        if PRIVATE.search(plain) or (is_name and names_too and PRIVATE_NAMES.search(plain)):
            found.append(f"{path.name}:{line}: {text.strip()[:100]}")
    return found


@table("top", ["actors", "api", "config", "scripts", "tests", "supervisor.py"])
def test_the_code_uses_the_words_of_the_glossary(top: str) -> None:
    files = [path for path in CODE if path.relative_to(ROOT).parts[0] == top and path.name not in STATED_IN]
    assert files
    assert [found for path in files for found in private_words(path, top != "tests")] == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("wish_told = 1", True),
        ("PutWish = 1", True),
        ("# whoever reads it", True),
        ("said = 1", True),
        ("x = 'it said so'", False),
        ("x = path.parent", False),
    ],
)
def test_private_words_are_found_in_names_and_texts(tmp_path: Path, line: str, found: bool) -> None:
    file = tmp_path / "made.py"
    file.write_text(line + "\n")
    assert bool(private_words(file)) == found
