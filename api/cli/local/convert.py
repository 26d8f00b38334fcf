"""`proxyfleet convert`: the configuration of squid or 3proxy as a document for `apply`, and what could not be carried
over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, cast

import typer

from api.cli.commands import CONFIGURE, local_command
from api.cli.errors import CommandError, Status
from api.cli.request_body import is_stream
from api.cli.terminal.output import Output, counted, safe

if TYPE_CHECKING:
    from api.import_export.convert.comparison import Comparison
    from api.import_export.convert.conversion import Converted
    from api.import_export.convert.report import Report

FormatName = Literal["squid", "3proxy"]


def add_commands(app: typer.Typer) -> None:
    """Add the command to `app`."""
    local_command(app, "convert", rich_help_panel=CONFIGURE)(convert)


def convert(
    out: Output,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="squid.conf or 3proxy.cfg.")],
    format_: Annotated[
        FormatName | None, typer.Option("--format", help="What the file is for; guessed by its directives.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="FILE",
            help="Write the document there: TOML, or JSON for a name in .json; - is standard output.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write the report there: text, or JSON for a name in .json."),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option("--root", metavar="DIR", help="Search absolute paths in the file below this directory first."),
    ] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", help="Time zone of times in the file; that of this machine.")
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept",
            metavar="LINE",
            help="Leave out what can't be carried over of this line (N, or FILE:N), though more is allowed then.",
        ),
    ] = None,
    compare: Annotated[
        list[Path] | None,
        typer.Option(
            "--compare",
            metavar="LOG",
            help="Replay an access.log of squid (.gz, too), and list what is decided in another way.",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Write no document, and end with 1, unless all was carried over as it is.")
    ] = False,
) -> None:
    """Convert the configuration of squid or 3proxy to a document for apply. Needs no running product, changes nothing.

    The report names each line that was not carried over as it is, and what to do instead. What can't be expressed
    is refused by the converted rules, never allowed. Ends with 1 if there is no document, with 2 if a file can't
    be read, with 6 if --compare finds requests that are decided in another way.
    """
    found = _converted(file, format_, timezone, root, tuple(accept or ()))
    _write_report(out, found.report, report)
    if found.problems:
        hint = "Change these lines of the file, and convert again"
        raise CommandError("An import would refuse the document", hint, problems=tuple(found.problems))
    if strict and not found.report.complete:
        raise CommandError("Not all of it was carried over as it is", "The report has each line and what to do instead")
    compared = _compared(found, compare or [])
    _write_document(out, found, to, compared)
    if compared is not None and compared.different:
        raise typer.Exit(int(Status.DIFFERENT))


def _compared(found: Converted, logs: list[Path]) -> Comparison | None:
    if not logs:
        return None
    import zlib

    from api.import_export.convert.comparison import compare

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
    import gzip

    return cast("BinaryIO", gzip.open(log, "rb"))


def _converted(
    file: Path, format_: FormatName | None, timezone: str | None, root: Path | None, accept: tuple[str, ...]
) -> Converted:
    from api.import_export.convert.conversion import UnknownFormat, converted, guessed_format
    from api.import_export.convert.statements import UnreadableFile
    from api.import_export.convert.time_zone import good_zone, local_zone

    zone = timezone or local_zone()
    if not good_zone(zone):
        raise CommandError(f"{zone}: no time zone such as Europe/Berlin", "Name one by --timezone", Status.USAGE)
    try:
        found = converted(file, format_ or guessed_format(file), zone, root, accept)
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
        _write(file, f"{text}\n")
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
    _write(file, _text(found.document, as_json=file.suffix == ".json"))
    sections = [counted(len(found.document.get(name, [])), one, name) for one, name in _SECTIONS]
    out.message(f"{file}: {', '.join(sections)}. To compare it with a product: proxyfleet apply {file} --dry-run")


_SECTIONS = (("proxy", "proxies"), ("account", "accounts"), ("policy", "policies"))


def _text(document: dict[str, Any], as_json: bool) -> str:
    from api.cli import toml

    return json.dumps(document, indent=2, ensure_ascii=False) + "\n" if as_json else toml.dumps(document)


def _write(file: Path, text: str) -> None:
    """Write a private file: it has names of users and hashes of passwords."""
    from config.files.durable import replace_file_of_user

    try:
        replace_file_of_user(file, text.encode())
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from error
