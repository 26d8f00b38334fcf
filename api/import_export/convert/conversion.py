"""One conversion, from the file to the document and the report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from api.import_export.convert.draft import Draft, problems_of
from api.import_export.convert.report import Report
from api.import_export.convert.statements import Accepted, Files

Format = Literal["squid", "3proxy"]

_OF_3PROXY = re.compile(
    r"^(?:proxy|socks|tcppm|udppm|auto|auth|users|allow|deny|parent|flush|nserver|nscache|internal|external|daemon|maxconn)\b",
    re.MULTILINE,
)
_OF_SQUID = re.compile(
    r"^[ \t]*(?:http_port|https_port|http_access|acl|cache_peer|include|auth_param|cache_\w+)[ \t]", re.MULTILINE
)


class UnknownFormat(ValueError):
    """The file may be of either program, or of none."""


@dataclass(frozen=True, slots=True)
class Converted:
    """The document, the report, and what an import would refuse of the document."""

    document: dict[str, Any]
    report: Report
    problems: list[tuple[str, str]]
    needless: list[str]
    """Lines that were accepted, and have nothing to accept."""


def guessed_format(path: Path) -> Format:
    """Which program a file is for, by its directives. Raises `UnknownFormat`, `UnreadableFile`."""
    text = Files().read(path)
    squid, other = len(_OF_SQUID.findall(text)), len(_OF_3PROXY.findall(text))
    if squid == other:
        raise UnknownFormat("it is not clear whether the file is for squid or for 3proxy: say --format")
    return "squid" if squid > other else "3proxy"


def converted(
    path: Path, format_: Format, timezone: str, root: Path | None = None, accept: Sequence[str] = ()
) -> Converted:
    """Convert a file; of the lines in `accept` is left out what can't be carried over. Raises `UnreadableFile`."""
    draft, report, files, accepted = Draft(format_), Report(), Files(root), Accepted(path, accept)
    if format_ == "squid":
        from api.import_export.convert.squid.conversion import convert
    else:
        from api.import_export.convert.threeproxy.conversion import convert
    convert(path, draft, report, files, timezone, accepted)
    document = draft.document()
    return Converted(document, report, problems_of(document), accepted.unused)
