"""`proxyfleet convert`: the configuration of squid or 3proxy as a document for `apply`, and what could not be carried
over."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any, BinaryIO, cast

import typer

from api.cli.commands import Given
from api.cli.documents import as_toml, is_stream, write_private
from api.cli.errors import CommandError, Status
from api.cli.terminal import MANY, Output, counted, safe
from api.import_export.convert import Converted, Format, UnknownFormat, converted, guessed_format
from api.import_export.convert.comparison import Comparison, compare
from api.import_export.convert.statements import Report, UnreadableFile


def convert(out: Output, file: Path, fields: Given) -> None:
    """Convert it, and report each line that was not carried over as it is."""
    found = _converted(file, fields["format_"], fields["root"], tuple(fields["accept"] or ()))
    _write_report(out, found.report, fields["report"])
    if found.problems:
        hint = "Change these lines of the file, and convert again"
        raise CommandError("An import would refuse the document", hint, problems=tuple(found.problems))
    if fields["strict"] and not found.report.complete:
        raise CommandError("Not all of it was carried over as it is", "The report has each line and what to do instead")
    compared = _compared(found, fields["logs"] or [])
    _write_document(out, found, fields["to"], compared)
    if compared is not None and compared.different:
        raise typer.Exit(int(Status.DIFFERENT))


def _compared(found: Converted, logs: list[Path]) -> Comparison | None:
    if not logs:
        return None
    try:
        return compare(found.document, logs, _opened)
    except (OSError, EOFError, zlib.error) as error:
        raise CommandError(
            f"{getattr(error, 'filename', None) or logs[0]}: {getattr(error, 'strerror', None) or error}",
            status=Status.USAGE,
        ) from error


def _opened(log: Path) -> BinaryIO:
    if log.suffix != ".gz":
        return log.open("rb")
    return cast("BinaryIO", gzip.open(log, "rb"))


def _converted(file: Path, format_: Format | None, root: Path | None, accept: tuple[str, ...]) -> Converted:
    try:
        found = converted(file, format_ or guessed_format(file), root, accept)
    except UnreadableFile as error:
        raise CommandError(str(error), status=Status.USAGE) from error
    except UnknownFormat as error:
        raise CommandError(f"{file}: {error}", status=Status.USAGE) from error
    if found.needless:
        hint = "The report offers --accept for the lines that it is for"
        raise CommandError(f"--accept {found.needless[0]}: there is nothing to accept", hint, Status.USAGE)
    return found


def _write_report(out: Output, report: Report, file: Path | None) -> None:
    if file is not None:
        as_json = file.suffix == ".json"
        text = json.dumps(report.data(), indent=2, ensure_ascii=False) if as_json else "\n".join(report.lines())
        write_private(file, f"{text}\n")
    elif out.format != "json":
        for line in report.lines():
            out.note(line)


def _write_document(out: Output, found: Converted, file: Path | None, compared: Comparison | None) -> None:
    """With a comparison the document is written to a file alone."""
    if out.format == "json":
        more = {} if compared is None else {"comparison": compared.data()}
        out.data({"document": found.document, "report": found.report.data(), **more}, lambda: None)
    elif compared is not None:
        out.lines(map(safe, compared.texts()))
    elif file is None or is_stream(file):
        out.document(_text(found.document, as_json=False))
    if file is None or is_stream(file):
        return
    write_private(file, _text(found.document, as_json=file.suffix == ".json"))
    sections = [counted(len(found.document.get(MANY.get(each, f"{each}s"), [])), each) for each in _SECTIONS]
    out.message(f"{file}: {', '.join(sections)}. To compare it with a product: proxyfleet apply {file} --dry-run")


_SECTIONS = ("proxy", "account", "policy")


def _text(document: dict[str, Any], as_json: bool) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n" if as_json else as_toml(document)
