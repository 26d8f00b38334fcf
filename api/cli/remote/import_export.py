"""`proxyfleet export`, `import`, `apply` and `convert`: the whole configuration as one document, in TOML or JSON.

The document is the API's (`GET /config/export`). `apply` first fetches and lists the changes; `If-Match` then binds the
import to the configuration that was compared, so the approved changes are the ones that are made.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import typer

from api.cli.commands import CONFIGURE, TOP, YES, Given, Session, command, confirm, either, local_command
from api.cli.documents import as_toml, display_name, is_stream, mapping_of, read_text, with_lines, write_private
from api.cli.errors import CommandError, Status
from api.cli.options import argument, choice, file_option, flag, option, texts
from api.cli.quantities import with_unit
from api.cli.terminal import BAD, DIM, GOOD, PASSPHRASE_FILE, WARN, Output, cell_text, one_of, safe
from api.cli.terminal import passphrase as ask_passphrase
from config.text.formatting import MANY, counted

if TYPE_CHECKING:  # loaded by `convert` alone
    from api.import_export.convert import Converted, Format
    from api.import_export.convert.comparison import Comparison
    from api.import_export.convert.statements import ConversionReport

KIND = {"kind": "proxyfleet.config", "version": 1}
TIMEOUT = 300.0
"""Seconds that an import may take: it binds every new address first."""

_EXPORT = {
    "file": argument("FILE", "The file to write, JSON if it ends in .json; - is standard output.", Path, default=None),
    "secrets": flag("--secrets", "Include the secrets, sealed under a passphrase."),
    "passphrase_file": PASSPHRASE_FILE,
    "minimal": flag("--minimal", "Only fields that differ from the defaults; apply sets the others to these."),
}
_IMPORT = {
    "file": argument("FILE", "TOML or JSON; - is standard input.", Path),
    "prune": flag("--prune", "Delete what the file lacks, in the sections that it has."),
    "dry_run": flag("--dry-run", "List the changes, and make none."),
    "passphrase_file": PASSPHRASE_FILE,
    "yes": YES,
}
_APPLY = {
    "file": argument("FILE", "TOML or JSON; - is standard input; or --file.", Path, default=None),
    "file_": file_option("--file -f", "TOML or JSON; - is standard input."),
    "prune": _IMPORT["prune"],
    "dry_run": _IMPORT["dry_run"],
    "check": flag("--check", "As --dry-run, and end with 6 if something would change."),
    "passphrase_file": PASSPHRASE_FILE,
    "yes": YES,
}
_CONVERT = {
    "file": argument("FILE", "squid.conf or 3proxy.cfg.", Path),
    "format_": choice("--format", "What the file is for; guessed by its directives.", ("squid", "3proxy")),
    "to": file_option("--to", "Write the document there: TOML, or JSON for a name in .json; - is standard output."),
    "report": file_option("--report", "Write the report there: text, or JSON for a name in .json."),
    "root": file_option("--root", "Search absolute paths in the file below this directory first.", metavar="DIR"),
    "accept": texts(
        "--accept",
        "Leave out what can't be carried over of this line (N, or FILE:N), though more is allowed then.",
        metavar="LINE",
    ),
    "logs": option(
        list[Path] | None,
        "--compare",
        "Replay an access.log of squid (.gz, too), and list what is decided in another way.",
        metavar="LOG",
    ),
    "strict": flag("--strict", "Write no document, and end with 1, unless all was carried over as it is."),
}


@command(TOP, "export", _EXPORT, rich_help_panel=CONFIGURE)
def export_config(session: Session, file: Path | None, fields: Given) -> None:
    """Write the whole configuration as one document: TOML, or JSON with -o json."""
    query, headers = {}, {}
    if fields["secrets"]:
        query, headers = {"secrets": "encrypted"}, _passphrase(fields["passphrase_file"], twice=True)
    data = session.api.call("GET", "/config/export", query=query, headers=headers)
    if fields["minimal"]:
        from api.import_export import minimal as sparse

        data = sparse.minimal(data)
    as_json = session.out.format == "json" if file is None or is_stream(file) else file.suffix == ".json"
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n" if as_json else _as_toml(data)
    if file is None or is_stream(file):
        session.out.document(text)
        return
    write_private(file, text)
    kinds = ", ".join(
        counted(len(entries), one_of(name)) for name, entries in data.items() if isinstance(entries, list)
    )
    session.out.done({"file": str(file)}, f"{file}: {kinds}, and the settings.")


@command(TOP, "import", _IMPORT, rich_help_panel=CONFIGURE)
def import_config(session: Session, file: Path, fields: Given) -> None:
    """Import an exported document, all of it or nothing; lists the changes and asks first."""
    text = read_text(file)
    document = mapping_of(file, text)
    if not {"kind", "version"} & document.keys():
        hint = "For a file written by hand: proxyfleet apply FILE, which needs neither"
        raise CommandError(
            f"{display_name(file)}: not an exported document: it has no kind and no version", hint, Status.USAGE
        )
    with _naming_lines(file, text):
        _import(session, document, fields)


@command(TOP, "apply", _APPLY, rich_help_panel=CONFIGURE)
def apply_config(session: Session, file: Path | None, file_: Path | None, check: bool, fields: Given) -> None:
    """Make the configuration match a file, all of it or nothing; what matches already stays untouched.

    A section or field that the file lacks stays as it is; in a file with minimal = true, such a field has its default.
    Lists the changes and asks first.
    """
    chosen = either("--file", *(None if each is None else str(each) for each in (file, file_)))
    if chosen is None:
        raise CommandError("Which file?", "proxyfleet apply FILE", Status.USAGE)
    file = Path(chosen)
    text = read_text(file)
    document = {**KIND, **mapping_of(file, text)}
    with _naming_lines(file, text):
        changed = _import(session, document, {**fields, "dry_run": fields["dry_run"] or check})
    if check and changed:
        raise typer.Exit(int(Status.DIFFERENT))


@local_command(TOP, "convert", _CONVERT, rich_help_panel=CONFIGURE)
def convert(out: Output, file: Path, fields: Given) -> None:
    """Convert the configuration of squid or 3proxy to a document for apply. Needs no running product, changes nothing.

    The report names each line that was not carried over as it is, and what to do instead. What can't be expressed
    is refused by the converted rules, never allowed. Ends with 1 if there is no document, with 2 if a file can't
    be read, with 6 if --compare finds requests that are decided in another way.
    """
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
    return cast("BinaryIO", gzip.open(log, "rb"))


def _converted(file: Path, format_: Format | None, root: Path | None, accept: tuple[str, ...]) -> Converted:
    from api.import_export.convert import converted, guessed_format
    from api.import_export.convert.statements import UnreadableFile

    try:
        found = converted(file, format_ or guessed_format(file), root, accept)
    except UnreadableFile as error:
        raise CommandError(str(error), status=Status.USAGE) from error
    if found.needless:
        hint = "The report offers --accept for the lines that it is for"
        raise CommandError(f"--accept {found.needless[0]}: there is nothing to accept", hint, Status.USAGE)
    return found


def _write_report(out: Output, report: ConversionReport, file: Path | None) -> None:
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
        out.document(_document_text(found.document, as_json=False))
    if file is None or is_stream(file):
        return
    write_private(file, _document_text(found.document, as_json=file.suffix == ".json"))
    sections = [counted(len(found.document.get(MANY.get(each, f"{each}s"), [])), each) for each in _SECTIONS]
    out.message(f"{file}: {', '.join(sections)}. To compare it with a product: proxyfleet apply {file} --dry-run")


_SECTIONS = ("proxy", "account", "policy")


def _document_text(document: dict[str, Any], as_json: bool) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n" if as_json else as_toml(document)


@contextlib.contextmanager
def _naming_lines(file: Path, text: str) -> Iterator[None]:
    """Add the file and its line to the problems of a response."""
    try:
        yield
    except CommandError as error:
        if error.problems:
            error.problems = with_lines(file, text, error.problems)
            error.hint = error.hint or "All fields of a file: proxyfleet export"
        raise


def _import(session: Session, document: dict[str, Any], fields: Given) -> bool:
    headers = _passphrase(fields["passphrase_file"]) if "secrets" in document else {}
    return import_document(session, document, headers, fields)


def import_document(
    session: Session, document: dict[str, Any], headers: Mapping[str, str | bytes], fields: Given
) -> bool:
    """List the changes, ask and make them, as the options say. Returns whether there are any."""
    query = {"prune": fields["prune"]}
    sent = {"body": document, "headers": headers}
    changes = Changes(session, "/config/import", query, lambda plan: _changes(session, plan, document), sent)
    changed, done = changes.listed_and_made(fields["dry_run"], fields["yes"])
    if done is not None:
        session.out.data(done, lambda: session.out.lines(_done(done)))
    return changed


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of the configuration that are listed first: a POST with `dry_run`, whose plan `lines` makes readable."""

    session: Session
    path: str
    query: Mapping[str, Any]
    lines: Callable[[Any], Iterator[str]]
    sent: Mapping[str, Any] = field(default_factory=dict)

    def listed_and_made(self, dry_run: bool, yes: bool) -> tuple[bool, Any]:
        """Whether there are any, and what was done after a question; None if only a list was wanted."""
        out = self.session.out
        plan = self._post({**self.query, "dry_run": True}, self.sent)
        if plan.get("refused"):
            self._refuse(plan)
        if dry_run or not plan["changed"]:
            plan["dry_run"] = dry_run
            out.data(plan, lambda: out.lines(self.lines(plan)))
            return bool(plan["changed"]), None
        if out.format != "json":
            out.lines(self.lines(plan))
        confirm("Do it?", yes)
        bound = {**self.sent.get("headers", {}), "If-Match": self.session.api.etag or "*"}
        try:
            return True, self._post(self.query, {**self.sent, "headers": bound})
        except CommandError as error:
            if not any(field == "If-Match" for field, _ in error.problems):
                raise
            text = "The configuration has changed meanwhile; nothing was done"
            raise CommandError(text, "Run the command again") from error

    def _refuse(self, plan: Any) -> None:
        if self.session.out.format != "json":
            self.session.out.lines(self.lines(plan))
        problems = [(each["name"] or "", f"{each['field']}: {each['error']}") for each in plan["refused"]]
        raise CommandError("This would be refused, so nothing was done", problems=tuple(problems))

    def _post(self, query: Mapping[str, Any], sent: Mapping[str, Any]) -> Any:
        return self.session.api.call("POST", self.path, query=query, timeout=TIMEOUT, **sent)


def print_revision(session: Session, done: Any) -> None:
    """What was done, and the number of the revision that it is."""
    text = f"{summary_text(done['summary'], '')} This is revision {done['revision']}."
    session.out.data(done, lambda: session.out.line(text))


SIGNS = {"create": ("+", GOOD), "update": ("~", WARN), "delete": ("-", BAD)}


def _changes(session: Session, plan: dict[str, Any], document: Mapping[str, Any]) -> Iterator[str]:
    """A line for each changed field. New resources have the document's fields only: the others have their defaults."""
    for change in plan["changes"]:
        given = _given_fields(document, change) if change["action"] == "create" else None
        fields = [each for each in change["fields"] if given is None or each["field"].split(".")[0] in given]
        yield from change_lines(session, change, fields, given)
    yield summary_text(plan["summary"], "would be " if plan["dry_run"] else "", _extent(plan))
    yield from _not_compared(plan["not_compared"])


def _extent(plan: Mapping[str, Any]) -> str:
    """Of what is unchanged, what was compared."""
    some = plan["not_compared"]["fields"] and plan["summary"]["unchanged"]
    return " in the fields that the file has" if some else ""


def _not_compared(left: Mapping[str, Any]) -> Iterator[str]:
    """A line that names objects and sections that the file says nothing about."""
    parts = []
    if left["objects"]:
        numbers = ", ".join(counted(number, one_of(name)) for name, number in left["objects"].items())
        parts.append(f"{numbers} that the file lacks (--prune deletes them)")
    if left["sections"]:
        parts.append(f"{', '.join(left['sections'])}, of which the file has no section")
    if parts:
        yield f"Not compared: {'; '.join(parts)}."


def change_lines(
    session: Session, change: Mapping[str, Any], fields: Sequence[Any], given: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """The lines of one resource; of a new one the leaves of its `fields`, only those `given` if there are any."""
    if change["action"] not in SIGNS:
        return
    sign, colour = SIGNS[change["action"]]
    yield session.out.colour(f"{sign} {change['kind']} {safe(change['name'] or change['id'])}", colour)
    if change["action"] == "update":
        yield from (_field(session, each) for each in fields)
    elif change["action"] == "create":
        for each in fields:
            wanted = given.get(each["field"]) if given else None
            leaves = _leaves(each["field"], each["after"], wanted)
            yield from (f"    {safe(name)}: {cell_text(value)}" for name, value in leaves)


def _leaves(name: str, value: Any, given: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a group one by one, with units; only the document's fields, if it has the group."""
    if not isinstance(value, Mapping):
        yield name, with_unit(name, value)
        return
    for key, inner in value.items():
        if not isinstance(given, Mapping) or key in given:
            yield from _leaves(f"{name}.{key}", inner, given.get(key) if isinstance(given, Mapping) else None)


def _given_fields(document: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any] | None:
    """The document's fields of a resource that would be created; None if it is not found there."""
    found = document.get(MANY.get(change["kind"], f"{change['kind']}s"))
    for one in found if isinstance(found, list) else []:
        if isinstance(one, dict) and change["name"] in (one.get("name"), one.get("username")):
            return {name: value for name, value in one.items() if name not in ("name", "username")}
    return None


def _field(session: Session, each: dict[str, Any]) -> str:
    name = each["field"]
    before = session.out.colour(cell_text(with_unit(name, each["before"])), DIM)
    return f"    {safe(name)}: {before} → {cell_text(with_unit(name, each['after']))}"


def _done(done: dict[str, Any]) -> Iterator[str]:
    yield summary_text(done["summary"], "", _extent(done))
    for change in done["changes"]:
        if change.get("secret"):
            yield f"{safe(change['name'])}: {change['secret']} (its secret, shown only once)"


def summary_text(summary: dict[str, int], verb: str, extent: str = "") -> str:
    """The numbers in a sentence; `extent` says of what is unchanged what was compared."""
    words = (("create", "created"), ("update", "changed"), ("delete", "deleted"))
    parts = [f"{summary[name]} {verb}{word}" for name, word in words if summary[name]]
    return f"{', '.join(parts) or 'Nothing to change'}; {summary['unchanged']} unchanged{extent}."


def _passphrase(file: Path | None, twice: bool = False) -> dict[str, str | bytes]:
    """The header with the passphrase. Raises `CommandError`."""
    return {"X-Passphrase": ask_passphrase("Passphrase of the secrets", file, twice).encode()}


def _as_toml(data: dict[str, Any]) -> str:
    """The document without nulls, which TOML lacks: an import leaves missing fields and empty headers as they are.

    A null with another meaning is written as a word.
    """
    document = {name: value for name, value in data.items() if value is not None}
    document["users"] = [{**user, **_null_words(user)} for user in data["users"]]
    for hook in data["webhooks"]:
        if "headers" in hook:
            hook["headers"] = {name: value or "" for name, value in hook["headers"].items()}
    return as_toml(document)


def _null_words(user: dict[str, Any]) -> dict[str, str]:
    words = {"email": "", "permissions": "role", "oauth": ""}
    return {name: word for name, word in words.items() if name in user and user[name] is None}
