"""`proxyfleet export`, `import` and `apply`: the whole configuration as one document, in TOML or JSON.

The document is the API's (`GET /config/export`). `apply` first asks what would change and shows it; what is then
carried out is bound by `If-Match` to the very configuration that was compared, so nobody approves one change and gets
another.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli import toml
from api.cli.commands import CONFIGURE, Session, YesOption, command, either
from api.cli.errors import CommandError, Status
from api.cli.quantities import with_unit
from api.cli.request_body import mapping_of, read_text, shown_name, with_lines
from api.cli.terminal.output import BAD, DIM, GOOD, WARN, counted, safe, shown
from api.cli.terminal.secret_input import passphrase as ask_passphrase
from config.files.durable import replace_file_of_user

KIND = {"kind": "proxyfleet.config", "version": 1}
PATIENCE = 300.0
"""Seconds that an import may take: it binds every new address first."""

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="TOML or JSON; - is standard input.")]
PruneOption = Annotated[
    bool, typer.Option("--prune", help="Delete what is not in the file, of the sections that it has.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]
PassphraseOption = Annotated[
    Path | None,
    typer.Option("--passphrase-file", metavar="FILE", help="Its first line opens the secrets; else it is asked for."),
]


def add_commands(app: typer.Typer) -> None:
    """Put them into `app`."""
    command(app, "export", rich_help_panel=CONFIGURE)(export_config)
    command(app, "import", rich_help_panel=CONFIGURE)(import_config)
    command(app, "apply", rich_help_panel=CONFIGURE)(apply_config)


def export_config(
    session: Session,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Where to; JSON if it ends in .json. Standard output unless said."),
    ] = None,
    secrets: Annotated[bool, typer.Option("--secrets", help="With the secrets, sealed under a passphrase.")] = False,
    passphrase_file: PassphraseOption = None,
    minimal: Annotated[
        bool, typer.Option("--minimal", help="Of proxies and accounts only what differs from the defaults.")
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
    as_json = session.out.form == "json" if file is None else file.suffix == ".json"
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n" if as_json else _as_toml(data)
    if file is None:
        session.out.document(text)
        return
    _write(file, text)
    kinds = ", ".join(
        counted(len(data[kind]), one, kind)
        for one, kind in (("proxy", "proxies"), ("user", "users"), ("webhook", "webhooks"))
    )
    session.out.data({"file": str(file)}, lambda: session.out.message(f"{file}: {kinds}, and the settings."))


def import_config(
    session: Session,
    file: FileArgument,
    prune: PruneOption = False,
    dry_run: DryRunOption = False,
    passphrase_file: PassphraseOption = None,
    yes: YesOption = False,
) -> None:
    """Take over a document that was exported, all of it or nothing; shows what changes, and asks first."""
    text = read_text(file)
    document = mapping_of(file, text)
    if not {"kind", "version"} & document.keys():
        hint = "For a file that a person wrote: proxyfleet apply FILE, which wants neither"
        raise CommandError(f"{shown_name(file)}: not an exported document: it has no kind and no version", hint)
    with _lines_told(file, text):
        _carry_out(session, document, prune, dry_run, passphrase_file, yes)


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
        bool, typer.Option("--check", help="As --dry-run, and end with 6 when something would change.")
    ] = False,
    passphrase_file: PassphraseOption = None,
    yes: YesOption = False,
) -> None:
    """Make the configuration what a file says, all of it or nothing; what is so already stays untouched.

    A section or field that the file does not have stays as it is. Shows what changes, and asks first.
    """
    chosen = either("--file", *(None if each is None else str(each) for each in (file, file_)))
    if chosen is None:
        raise CommandError("Which file?", "proxyfleet apply FILE", Status.USAGE)
    file = Path(chosen)
    text = read_text(file)
    document = {**KIND, **mapping_of(file, text)}
    with _lines_told(file, text):
        changed = _carry_out(session, document, prune, dry_run or check, passphrase_file, yes)
    if check and changed:
        raise typer.Exit(int(Status.DIFFERENT))


@contextlib.contextmanager
def _lines_told(file: Path, text: str) -> Iterator[None]:
    """What the API refuses of the document is told with the file and its line."""
    try:
        yield
    except CommandError as trouble:
        if trouble.problems:
            trouble.problems = with_lines(file, text, trouble.problems)
            trouble.hint = trouble.hint or "What a file may have: proxyfleet export shows all of it"
        raise


def _carry_out(
    session: Session, document: dict[str, Any], prune: bool, dry_run: bool, passphrase_file: Path | None, yes: bool
) -> bool:
    """Whether something changed, or would."""
    headers = _passphrase(passphrase_file) if "secrets" in document else {}
    query = {"prune": prune, "dry_run": True}
    plan = session.api.call("POST", "/config/import", query=query, body=document, headers=headers, timeout=PATIENCE)
    if dry_run or not plan["changed"]:
        plan["dry_run"] = dry_run
        session.out.data(plan, lambda: session.out.lines(_told(session, plan, document)))
        return bool(plan["changed"])
    if session.out.form != "json":
        session.out.lines(_told(session, plan, document))
    session.confirm("Do it?", yes)
    done = _commit(session, document, prune, headers)
    session.out.data(done, lambda: session.out.lines(_done(done)))
    return True


def _commit(session: Session, document: dict[str, Any], prune: bool, headers: dict[str, str | bytes]) -> Any:
    """Carry out what was shown, if the configuration is still the one that it was compared with."""
    bound = {**headers, "If-Match": session.api.etag or "*"}
    query = {"prune": prune}
    try:
        return session.api.call("POST", "/config/import", query=query, body=document, headers=bound, timeout=PATIENCE)
    except CommandError as trouble:
        if any(field == "If-Match" for field, _ in trouble.problems):
            raise CommandError(
                "Somebody changed the configuration meanwhile; nothing was done", "Look again"
            ) from trouble
        raise


SIGNS = {"create": ("+", GOOD), "update": ("~", WARN), "delete": ("-", BAD)}


def _told(session: Session, plan: dict[str, Any], document: Mapping[str, Any]) -> Iterator[str]:
    """The differences, a line for each field. Of what is new, the fields that the document has: the rest is as ever."""
    for change in plan["changes"]:
        if change["action"] not in SIGNS:
            continue
        sign, colour = SIGNS[change["action"]]
        yield session.out.colour(f"{sign} {change['kind']} {safe(change['name'])}", colour)
        if change["action"] == "update":
            yield from (_field(session, each) for each in change["fields"])
        elif change["action"] == "create":
            given = _given_fields(document, change)
            fields = [each for each in change["fields"] if given is None or each["field"].split(".")[0] in given]
            for each in fields:
                said = given.get(each["field"]) if given else None
                yield from (
                    f"    {safe(name)}: {shown(value)}" for name, value in _leaves(each["field"], each["after"], said)
                )
    yield _summary(plan["summary"], "would be " if plan["dry_run"] else "")


def _leaves(name: str, value: Any, said: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a group one by one, with units; only those that the document has, where it has the group."""
    if not isinstance(value, Mapping):
        yield name, with_unit(name, value)
        return
    for key, inner in value.items():
        if not isinstance(said, Mapping) or key in said:
            yield from _leaves(f"{name}.{key}", inner, said.get(key) if isinstance(said, Mapping) else None)


def _given_fields(document: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the document has of something that would be created; None when it can't be found there."""
    section = {"proxy": "proxies", "user": "users", "webhook": "webhooks"}.get(change["kind"], "")
    found = document.get(section)
    for one in found if isinstance(found, list) else []:
        if isinstance(one, dict) and change["name"] in (one.get("name"), one.get("username")):
            return {name: value for name, value in one.items() if name not in ("name", "username")}
    return None


def _field(session: Session, each: dict[str, Any]) -> str:
    name = each["field"]
    before = session.out.colour(shown(with_unit(name, each["before"])), DIM)
    return f"    {safe(name)}: {before} → {shown(with_unit(name, each['after']))}"


def _done(done: dict[str, Any]) -> Iterator[str]:
    yield _summary(done["summary"], "")
    for change in done["changes"]:
        if change.get("secret"):
            yield f"{safe(change['name'])}: {change['secret']} (its secret, shown this once)"


def _summary(summary: dict[str, int], mood: str) -> str:
    words = (("create", "created"), ("update", "changed"), ("delete", "deleted"))
    parts = [f"{summary[name]} {mood}{word}" for name, word in words if summary[name]]
    return f"{', '.join(parts) or 'Nothing to change'}; {summary['unchanged']} as they are."


def _passphrase(file: Path | None, twice: bool = False) -> dict[str, str | bytes]:
    """The header with the passphrase."""
    if file is None:
        text = ask_passphrase("Passphrase of the secrets", twice)
    else:
        try:
            text = file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"--passphrase-file: {file}: {error}", status=Status.USAGE) from error
    return {"X-Passphrase": text.encode()}


def _as_toml(data: dict[str, Any]) -> str:
    """Without nulls, which TOML doesn't have; what is left out stays as it is, and so does a header that is empty.

    So where null says something other than that, there is a word for it.
    """
    document = {name: value for name, value in data.items() if value is not None}
    document["users"] = [{**user, **_in_words(user)} for user in data["users"]]
    document["webhooks"] = [_with_header_texts(hook) for hook in data["webhooks"]]
    return toml.dumps(document)


def _with_header_texts(hook: dict[str, Any]) -> dict[str, Any]:
    if "headers" not in hook:
        return hook
    return {**hook, "headers": {name: value or "" for name, value in hook["headers"].items()}}


def _in_words(user: dict[str, Any]) -> dict[str, str]:
    words = {"email": "", "permissions": "role", "oauth": ""}
    return {name: word for name, word in words.items() if name in user and user[name] is None}


def _write(file: Path, text: str) -> None:
    """A private file, whole or not at all: names of users and addresses of proxies are nobody else's business."""
    try:
        replace_file_of_user(file, text.encode())
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from error
