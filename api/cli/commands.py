"""What all commands share: options, the session, and the output of a `CommandError`.

    @command(group, "list", {"proxy": argument("PROXY", "A name or id.", of=PROXY), "user": text("--user", "…")})
    def list_connections(session: Session, proxy: str, fields: Given) -> None:
        "List live connections."

A command's options and arguments are the table, in the order of the help: by the dotted field of the API that each sets
(`options.py`). Those that the function names are parameters of their own; the others come as one mapping by field,
None for what was not given. Errors of the API name the option where it differs from the field.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from keyword import iskeyword
from types import MappingProxyType
from typing import Any, Literal, TextIO, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from api.cli.client import DEFAULT_URL, ApiClient, quoted
from api.cli.documents import body_of, require_changes, whole_body
from api.cli.errors import CommandError, Status
from api.cli.options import Option, ResourceKind, argument, find, find_id, flag, option, sent, text
from api.cli.quantities import span_option
from api.cli.terminal import Column, Detail, Format, Output, Pairs, Row, pairs_of, safe
from api.cli.tokens import CallerCredentials
from config.settings.env import ENV_PREFIX

Command = Callable[..., None]
Given = dict[str, Any]
"""Values by the dotted field of the API."""
NOTHING: Mapping[str, Any] = MappingProxyType({})
TOP = typer.Typer()
"""Commands and groups of the modules that are loaded; `application.py` chooses those that a command line needs."""

URL_VARIABLE = f"{ENV_PREFIX}URL"
KEY_VARIABLE = f"{ENV_PREFIX}API_KEY"
CA_VARIABLE = f"{ENV_PREFIX}CA_FILE"
_PANEL = "Connection and output"

RUN, RESOURCES, WATCH, CONFIGURE, RECOVER, OTHER = (
    "Run and sign in",
    "Resources",
    "Watch",
    "Configuration as a whole",
    "On the product's machine",
    "Other",
)
"""Panels of the help at a wide terminal."""

_URL = f"The management API; by default that of the last login, else {DEFAULT_URL}."
_KEY = "An API key instead of a login. Prefer the variable: others on this machine see arguments."
_CA = "A PEM file with the certificate authority to trust."
_COMMON: Mapping[str, Option] = {  # commands have arguments of the names without the underscore
    "output_": option(
        Format, "--output -o", "A table for people, or JSON for programs.", default="table", rich_help_panel=_PANEL
    ),
    "url_": text("--url", _URL, envvar=URL_VARIABLE, show_envvar=True, rich_help_panel=_PANEL),
    "key_": text("--key", _KEY, envvar=KEY_VARIABLE, show_envvar=True, show_default=False, rich_help_panel=_PANEL),
    "ca_file_": text("--ca-file", _CA, envvar=CA_VARIABLE, show_envvar=True, rich_help_panel=_PANEL),
    "timeout_": span_option("--timeout", "How long a response may take.", "30s", 0.1, rich_help_panel=_PANEL),
}
YES = flag("--yes -y", "Don't ask.")


@dataclass(frozen=True, slots=True)
class Session:
    """The API and the output of a command."""

    api: ApiClient
    out: Output


def confirm(question: str, yes: bool) -> None:
    """Return if `--yes` was given or a person at the terminal agrees. Raises `CommandError`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError("Confirmation required", "There is no terminal to ask at: --yes confirms", Status.USAGE)
    sys.stderr.write(f"{safe(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("Nothing was done")


def common_options() -> list[inspect.Parameter]:
    """The options of every command that calls the API."""
    return _signature(_COMMON)


def command(
    group: typer.Typer,
    name: str,
    fields: Mapping[str, Option] = NOTHING,
    options: Mapping[str, str] = NOTHING,
    about: str | None = None,
    aliases: Sequence[str] = (),
    **settings: Any,
) -> Callable[[Command], Command]:
    """Make a function that takes a session a command of `group`.

    `options` names the options of further fields in errors of the API. `about` takes the place of the docstring; help
    omits the `aliases`.
    """
    labels = {field: each.label for field, each in fields.items() if each.label is not None}
    renamed = {field: label for field, label in labels.items() if label != f"--{field}"} | dict(options)

    def decorate(function: Command) -> Command:
        def run(**given: Any) -> None:
            out = Output(given.pop("output_"))
            connection = {each: given.pop(f"{each}_") for each in ("url", "key", "ca_file", "timeout")}

            def work() -> None:
                session = connect(out, **{**connection, "timeout": _COMMON["timeout_"].parsed(connection["timeout"])})
                function(session, **_given(function, fields, given, session.api))

            guarded(out, work, renamed)

        _add_signature(run, about or function.__doc__, {**fields, **_COMMON})
        group.command(name, cls=FlagsCommand, **settings)(run)
        for alias in aliases:
            group.command(alias, cls=FlagsCommand, hidden=True)(run)
        return function

    return decorate


def local_command(
    group: typer.Typer, name: str, fields: Mapping[str, Option] = NOTHING, module: str | None = None, **settings: Any
) -> Callable[[Command], Command]:
    """Make a function that takes an `Output` a command that calls no API.

    With a `module` of `local`, which takes long to load, it is the function of this name there: it is loaded when it is
    called, and the one that is decorated has only the help.
    """

    def decorate(function: Command) -> Command:
        def run(**given: Any) -> None:
            out = Output(given.pop("output_"))

            def work() -> None:
                called = function
                if module is not None:
                    called = getattr(import_module(f"api.cli.local.{module}"), function.__name__)
                called(out, **_given(called, fields, given))

            guarded(out, work)

        _add_signature(run, function.__doc__, {**fields, "output_": _COMMON["output_"]})
        group.command(name, cls=FlagsCommand, **settings)(run)
        return function

    return decorate


def _add_signature(run: Callable[..., None], about: str | None, parameters: Mapping[str, Option]) -> None:
    """Give the function of a command its help and its parameters, from which Typer reads the options."""
    signature = inspect.Signature(_signature(parameters))
    run.__doc__ = about
    run.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    run.__signature__ = signature  # type: ignore[attr-defined]


def _signature(parameters: Mapping[str, Option]) -> list[inspect.Parameter]:
    keyword, required = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    return [
        inspect.Parameter(
            _name(field), keyword, default=required if each.default is ... else each.default, annotation=each.annotation
        )
        for field, each in parameters.items()
    ]


def _name(field: str) -> str:
    """The name of the parameter for a field: `from` and `to.x` can't be one."""
    name = field.replace(".", "_")
    return f"{name}_" if iskeyword(name) else name


def _given(
    function: Command, fields: Mapping[str, Option], given: Mapping[str, Any], api: ApiClient | None = None
) -> dict[str, Any]:
    """The arguments of the function. Raises `CommandError`."""
    own = inspect.signature(function).parameters
    values = {field: each.parsed(given[_name(field)]) for field, each in fields.items()}
    if api is not None:
        values = {field: each.found(api, values[field]) for field, each in fields.items()}
    named = {_name(field): value for field, value in values.items() if _name(field) in own}
    rest = {field: value for field, value in values.items() if _name(field) not in own}
    return {**named, "fields": rest} if "fields" in own else named


def new_group(name: str, about: str, panel: str = RESOURCES, cls: type[TyperGroup] | None = None) -> typer.Typer:
    """A group of commands in the application."""
    group = typer.Typer(help=about, no_args_is_help=True)
    TOP.add_typer(group, name=name, cls=cls or FlagsGroup, rich_help_panel=panel)
    return group


def either(name: str, positional: str | None, given: str | None) -> str | None:
    """A value that is an argument or the option `name`; None for neither. Raises `CommandError` for two different
    ones."""
    if positional is not None and given is not None and positional != given:
        raise CommandError(f"{positional!r} and {name} {given!r}: give one of them", status=Status.USAGE)
    return given if positional is None else positional


def connect(out: Output, url: str | None, key: str | None, ca_file: str | None, timeout: float) -> Session:
    """A session at the given address, else at that of the last login."""
    credentials = CallerCredentials()
    where = url or (credentials.last_url if key is None else None) or DEFAULT_URL
    api = ApiClient(where, key or None, credentials, timeout, ca_file)
    api.on_wait = lambda seconds: out.note(f"Too many requests; waiting {seconds} s")
    return Session(api, out)


def guarded(out: Output, work: Callable[[], None], options: Mapping[str, str] = NOTHING) -> None:
    """Run `work`; print its error and raise `typer.Exit` with the exit status."""
    try:
        work()
        out.out.flush()
    except CommandError as error:
        error.options = options
        out.error(error)
        raise typer.Exit(int(error.status)) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(int(Status.INTERRUPTED)) from error
    except BrokenPipeError as error:  # the reader has left (`| head`)
        discard_output()
        raise typer.Exit(int(Status.OK)) from error
    except OSError as error:  # commands translate their own; this one is of the output, as on a full disk
        discard_output()
        out.error(output_error(error))
        raise typer.Exit(int(Status.FAILED)) from error


def output_error(error: OSError) -> CommandError:
    """The error of results that can't be written."""
    return CommandError(f"{error.filename or 'The output'} can't be written: {error.strerror or error}")


def discard_output(stream: TextIO | None = None) -> None:
    """Keep the interpreter from writing the same output again when it exits; standard output, unless one is given."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())


# --- parameters of Typer that suit ours ---


def _adapted(params: list[Any]) -> list[Any]:
    """The parameters of a command or group: flags have no type, and values that need no conversion get none."""
    for each in params:
        if getattr(each, "is_flag", False):
            each.metavar = ""
        usual = getattr(each, "get_runtime_param", None)  # other releases have no such models
        if usual is not None and not isinstance(getattr(usual, "__self__", None), _Conversion):
            each.get_runtime_param = _Conversion(each).itself
    return params


class _Conversion:
    """Converts the values of a parameter as Typer does, and leaves to it what needs a look at the value."""

    def __init__(self, parameter: Any) -> None:
        self._usual = parameter.get_runtime_param
        self._annotation = parameter.type_descriptor.annotation

    def itself(self) -> _Conversion:
        """In place of Typer's own object for the parameter."""
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value that the function of the command gets."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        found = converted(self._annotation, value)
        return self._usual().coerce(value, param=param, ctx=ctx) if found is None else found


def converted(annotation: Any, value: Any) -> Any:
    """What Typer makes of `value`, where that depends on its type alone; else None. A number is a default already."""
    if get_origin(annotation) is list and isinstance(value, (list, tuple)):
        found = [converted(get_args(annotation)[0], each) for each in value]
        return None if None in found else found
    if get_origin(annotation) is Literal:
        return value if value in get_args(annotation) else None
    return value if annotation in (str, bool, int, float) and type(value) is annotation else None


class FlagsCommand(TyperCommand):
    """A command of ours. Typer's help at a terminal would add a type to flags, which take no value: `--yes <bool>`.

    And it judges every value by models of pydantic, the absent ones, too: loading that takes longer than all the rest
    of a short command.
    """

    def get_params(self, ctx: Any) -> Any:
        """See `_adapted`."""
        return _adapted(super().get_params(ctx))


class FlagsGroup(TyperGroup):
    """A group of commands of ours."""

    def get_params(self, ctx: Any) -> Any:
        """See `_adapted`."""
        return _adapted(super().get_params(ctx))


def named_alone(name: str) -> type[TyperGroup]:
    """A group that is this command of its own when no command is named."""

    class GroupAlone(FlagsGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            names_none = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
            return super().parse_args(ctx, [name, *args] if names_none and not ctx.resilient_parsing else args)

    return GroupAlone


# --- the usual commands of a kind ---

ALL = ("list", "show", "create", "update", "delete")


def key_argument(kind: ResourceKind, about: str = "Its name or id.") -> Option:
    """The argument that names an object of the kind."""
    return argument(kind.title.rpartition(" ")[2].upper(), about, complete=kind)


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands `list show create update delete` of a kind of object, from one row.

        plans = Commands(
            PLAN,
            "Plans: what accounts have in common.",
            columns=(Column("NAME", "name"), Column("QUOTA", quota_of, right=True), …),
            details=("name", "id", ("quota", quota_of), "created_at"),
            fields={"policy": text("--policy", "The policy that judges requests."), …},
            examples=("limits.bandwidth_out=1Mbit/s",),
        ).group()

    A kind says how the API lists, names and finds its objects; the row what people see and type: the columns of `list`,
    the lines of `show`, and the options of `create` and `update` by the API's field. The words that differ are values
    of the row too, and so is what is printed once (`afterwards`: a secret). Sentences and questions have the object's
    fields in braces. A command that no row can say is left out of `only` and written with `command` for the same group,
    as are the others of the kind.

    `texts` are the help of commands whose help is not the usual one; `key` is that of the argument that names one, and
    `name` that of the argument of `create`. `delete` is the name of the command that deletes. `rows` makes rows for
    people of what the API lists, `afterwards` prints what only a person sees of what was created or changed.
    """

    kind: ResourceKind
    about: str
    columns: Sequence[Column]
    details: Sequence[Detail] | Callable[[Row], Pairs] = ()
    fields: Mapping[str, Option] = field(default_factory=dict)
    new_name: Option | None = None
    examples: Sequence[str] = ()
    only: Sequence[str] = ALL
    texts: Mapping[str, str] = field(default_factory=dict)
    key: str = "Its name or id."
    name: str = "What others name it by; or in a file."
    question: str = "Delete the {title} {name}?"
    delete: str = "delete"
    deleted: str = "{name} is deleted."
    rows: Callable[[Session, list[dict[str, Any]]], Sequence[Row]] = lambda _session, found: found
    afterwards: Callable[[Session, Any], None] = lambda _session, _made: None
    group_class: type[TyperGroup] = FlagsGroup

    def group(self) -> typer.Typer:
        """The group, with the commands of `only`."""
        made = new_group(self.kind.group, self.about, cls=self.group_class)
        commands = (self._list, self._show, self._create, self._update, self._delete)
        for name, add in zip(ALL, commands, strict=True):
            if name in self.only:
                add(made)
        return made

    @property
    def _key(self) -> Mapping[str, Option]:
        return {"key": key_argument(self.kind, self.key)}

    def _about(self, name: str, usual: str) -> str:
        return self.texts.get(name, usual.format(title=self.kind.title, many=self.kind.group))

    def _list(self, group: typer.Typer) -> None:
        def list_objects(session: Session) -> None:
            data = self.kind.listed(session.api)
            found = data[self.kind.member]
            nothing = f"There is no {self.kind.title}."
            session.out.data(data, lambda: session.out.table(self.columns, self.rows(session, found), nothing))

        command(group, "list", about=self._about("list", "List {many}."))(list_objects)

    def _show(self, group: typer.Typer) -> None:
        def show_object(session: Session, key: str) -> None:
            data = self._sent(session, "GET", key)
            session.out.data(data, lambda: session.out.details(pairs_of(data[self.kind.title], self.details)))

        command(group, "show", self._key, about=self._about("show", "Show a {title}."))(show_object)

    def _create(self, group: typer.Typer) -> None:
        def create_object(session: Session, given_name: str | None, fields: Given) -> None:
            fields["name"] = either("--name", given_name, fields.get("name"))
            data = session.api.post(self.kind.path, body_of(fields))
            self._print(session, data, "{name} is created ({id}).")

        table = {"given_name": argument("NAME", self.name, default=None), **self.fields, **whole_body(*self.examples)}
        command(group, "create", table, about=self._about("create", "Create a {title}."))(create_object)

    def _update(self, group: typer.Typer) -> None:
        def update_object(session: Session, key: str, fields: Given) -> None:
            body = body_of(fields)
            require_changes(body, self.kind.group)
            self._print(session, self._sent(session, "PATCH", key, body), "{name} is changed.")

        more = {} if self.new_name is None else {"name": self.new_name}
        table = {**self._key, **self.fields, **more, **whole_body(*self.examples)}
        usual = "Change a {title}: only what is given changes."
        command(group, "update", table, about=self._about("update", usual))(update_object)

    def _delete(self, group: typer.Typer) -> None:
        def delete_object(session: Session, key: str, yes: bool) -> None:
            found = find(session.api, self.kind, key)
            words = {**found, "title": self.kind.title}
            confirm(self.question.format(**words), yes)
            data = session.api.delete(f"{self.kind.path}/{quoted(found['id'])}")
            session.out.done(data, self.deleted.format(**words))

        usual = "Delete a {title} that nothing names."
        command(group, self.delete, {**self._key, "yes": YES}, about=self._about("delete", usual))(delete_object)

    def _sent(self, session: Session, method: str, key: str, body: Any = None) -> Any:
        """The response to a request about one object."""
        name_or_id = key if self.kind.by_name else find_id(session.api, self.kind, key)
        path = f"{self.kind.path}/{quoted(name_or_id)}"
        return sent(session.api, self.kind, key, lambda: session.api.call(method, path, body=body))

    def _print(self, session: Session, data: Any, text: str) -> None:
        """Print warnings, and for people what was done."""
        warn(session, data, in_json=True)
        made = data[self.kind.title]

        def view() -> None:
            session.out.message(text.format(**made))
            self.afterwards(session, made)

        session.out.data(data, view)


def warn(session: Session, data: Mapping[str, Any], in_json: bool = False) -> None:
    """Print the warnings of a response. Programs have them in the data, and get notes only where `in_json`."""
    for each in data.get("warnings") or () if in_json or session.out.format != "json" else ():
        session.out.note(f"warning: {each['field']}: {each['warning']}")
