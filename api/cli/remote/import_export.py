"""`proxyfleet export`, `import` and `apply`: the whole configuration as one document, in TOML or JSON.

The document is the API's (`GET /config/export`). `apply` first fetches and lists the changes; `If-Match` then binds the
import to the configuration that was compared, so the approved changes are the ones that are made.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli import toml
from api.cli.commands import CONFIGURE, Session, YesOption, command, confirm, either
from api.cli.errors import CommandError, Status
from api.cli.quantities import with_unit
from api.cli.request_body import display_name, is_stream, mapping_of, read_text, with_lines
from api.cli.terminal.output import BAD, DIM, GOOD, WARN, cell_text, counted, safe
from api.cli.terminal.secret_input import passphrase as ask_passphrase
from config.files.durable import replace_file_of_user

KIND = {"kind": "proxyfleet.config", "version": 1}
TIMEOUT = 300.0
"""Seconds that an import may take: it binds every new address first."""

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="TOML or JSON; - is standard input.")]
PruneOption = Annotated[bool, typer.Option("--prune", help="Delete what the file lacks, in the sections that it has.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="List the changes, and make none.")]
PassphraseOption = Annotated[
    Path | None,
    typer.Option("--passphrase-file", metavar="FILE", help="Its first line is the passphrase; else it is asked for."),
]


def add_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    command(app, "export", rich_help_panel=CONFIGURE)(export_config)
    command(app, "import", rich_help_panel=CONFIGURE)(import_config)
    command(app, "apply", rich_help_panel=CONFIGURE)(apply_config)


def export_config(
    session: Session,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The file to write, JSON if it ends in .json; - is standard output."),
    ] = None,
    secrets: Annotated[bool, typer.Option("--secrets", help="Include the secrets, sealed under a passphrase.")] = False,
    passphrase_file: PassphraseOption = None,
    minimal: Annotated[
        bool,
        typer.Option("--minimal", help="Only fields that differ from the defaults; apply sets the others to these."),
    ] = False,
) -> None:
    """Write the whole configuration as one document: TOML, or JSON with -o json."""
    query, headers = {}, {}
    if secrets:
        query, headers = {"secrets": "encrypted"}, _passphrase(passphrase_file, twice=True)
    data = session.api.call("GET", "/config/export", query=query, headers=headers)
    if minimal:
        from api.import_export import minimal as sparse

        data = sparse.minimal(data)
    as_json = session.out.format == "json" if file is None or is_stream(file) else file.suffix == ".json"
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n" if as_json else _as_toml(data)
    if file is None or is_stream(file):
        session.out.document(text)
        return
    _write(file, text)
    kinds = ", ".join(_counted(name, len(entries)) for name, entries in data.items() if isinstance(entries, list))
    session.out.done({"file": str(file)}, f"{file}: {kinds}, and the settings.")


def import_config(
    session: Session,
    file: FileArgument,
    prune: PruneOption = False,
    dry_run: DryRunOption = False,
    passphrase_file: PassphraseOption = None,
    yes: YesOption = False,
) -> None:
    """Import an exported document, all of it or nothing; lists the changes and asks first."""
    text = read_text(file)
    document = mapping_of(file, text)
    if not {"kind", "version"} & document.keys():
        hint = "For a file written by hand: proxyfleet apply FILE, which needs neither"
        raise CommandError(
            f"{display_name(file)}: not an exported document: it has no kind and no version", hint, Status.USAGE
        )
    with _naming_lines(file, text):
        _import(session, document, prune, dry_run, passphrase_file, yes)


def apply_config(
    session: Session,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="TOML or JSON; - is standard input; or --file.")
    ] = None,
    file_: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="TOML or JSON; - is standard input.")
    ] = None,
    prune: PruneOption = False,
    dry_run: DryRunOption = False,
    check: Annotated[
        bool, typer.Option("--check", help="As --dry-run, and end with 6 if something would change.")
    ] = False,
    passphrase_file: PassphraseOption = None,
    yes: YesOption = False,
) -> None:
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
        changed = _import(session, document, prune, dry_run or check, passphrase_file, yes)
    if check and changed:
        raise typer.Exit(int(Status.DIFFERENT))


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


def _import(
    session: Session, document: dict[str, Any], prune: bool, dry_run: bool, passphrase_file: Path | None, yes: bool
) -> bool:
    """List the changes, ask and make them. Returns whether there are any."""
    headers = _passphrase(passphrase_file) if "secrets" in document else {}
    query = {"prune": prune, "dry_run": True}
    plan = session.api.call("POST", "/config/import", query=query, body=document, headers=headers, timeout=TIMEOUT)
    if dry_run or not plan["changed"]:
        plan["dry_run"] = dry_run
        session.out.data(plan, lambda: session.out.lines(_changes(session, plan, document)))
        return bool(plan["changed"])
    if session.out.format != "json":
        session.out.lines(_changes(session, plan, document))
    confirm("Do it?", yes)
    done = _commit(session, document, prune, headers)
    session.out.data(done, lambda: session.out.lines(_done(done)))
    return True


def _commit(session: Session, document: dict[str, Any], prune: bool, headers: dict[str, str | bytes]) -> Any:
    """Make the listed changes."""
    return commit_listed(session, "/config/import", {"prune": prune}, document, headers)


def commit_listed(
    session: Session,
    path: str,
    query: dict[str, Any],
    document: dict[str, Any] | None = None,
    headers: Mapping[str, str | bytes] | None = None,
) -> Any:
    """Make the changes that a dry run has listed, if the configuration is still the one that was compared."""
    bound = {**(headers or {}), "If-Match": session.api.etag or "*"}
    try:
        return session.api.call("POST", path, query=query, body=document, headers=bound, timeout=TIMEOUT)
    except CommandError as error:
        if any(field == "If-Match" for field, _ in error.problems):
            raise CommandError(
                "The configuration has changed meanwhile; nothing was done", "Run the command again"
            ) from error
        raise


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
        numbers = ", ".join(_counted(name, number) for name, number in left["objects"].items())
        parts.append(f"{numbers} that the file lacks (--prune deletes them)")
    if left["sections"]:
        parts.append(f"{', '.join(left['sections'])}, of which the file has no section")
    if parts:
        yield f"Not compared: {'; '.join(parts)}."


def _counted(section: str, number: int) -> str:
    one = {"proxies": "proxy", "policies": "policy"}.get(section, section.removesuffix("s"))
    return counted(number, one, section)


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
    section = f"{change['kind']}s".replace("proxys", "proxies")
    found = document.get(section)
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
    document["webhooks"] = [_with_header_texts(hook) for hook in data["webhooks"]]
    return toml.dumps(document)


def _with_header_texts(hook: dict[str, Any]) -> dict[str, Any]:
    if "headers" not in hook:
        return hook
    return {**hook, "headers": {name: value or "" for name, value in hook["headers"].items()}}


def _null_words(user: dict[str, Any]) -> dict[str, str]:
    words = {"email": "", "permissions": "role", "oauth": ""}
    return {name: word for name, word in words.items() if name in user and user[name] is None}


def _write(file: Path, text: str) -> None:
    """Write a private file, whole or not at all: it has names of users and addresses of proxies."""
    try:
        replace_file_of_user(file, text.encode())
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from error
