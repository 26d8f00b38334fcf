"""What all commands share: options, the session, and the output of a `CommandError`.

    @command(group, "show")
    def show_proxy(session: Session, proxy: ProxyArgument) -> None:
        "Show a proxy."

Typer gets the function without `session` and with the common options after its own.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TextIO, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from api.cli.client import DEFAULT_URL, Client
from api.cli.credentials import Credentials
from api.cli.errors import CommandError, Status
from api.cli.flags import FlagsCommand, FlagsGroup
from api.cli.terminal.output import Format, Output, safe
from config.settings.env import ENV_PREFIX

Command = Callable[..., None]

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

OutputOption = Annotated[
    Format, typer.Option("--output", "-o", help="A table for people, or JSON for programs.", rich_help_panel=_PANEL)
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar=URL_VARIABLE,
        show_envvar=True,
        help=f"The management API; by default that of the last login, else {DEFAULT_URL}.",
        rich_help_panel=_PANEL,
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar=KEY_VARIABLE,
        show_envvar=True,
        show_default=False,
        help="An API key instead of a login. Prefer the variable: others on this machine see arguments.",
        rich_help_panel=_PANEL,
    ),
]
CaOption = Annotated[
    str | None,
    typer.Option(
        "--ca-file",
        envvar=CA_VARIABLE,
        show_envvar=True,
        help="A PEM file with the certificate authority to trust.",
        rich_help_panel=_PANEL,
    ),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, help="Seconds that a response may take.", rich_help_panel=_PANEL)
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


@dataclass(frozen=True, slots=True)
class Session:
    """The API and the output of a command."""

    api: Client
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
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = (
        ("output_", OutputOption, "table"),  # commands have arguments of the names without the underscore
        ("url_", UrlOption, None),
        ("key_", KeyOption, None),
        ("ca_file_", CaOption, None),
        ("timeout_", TimeoutOption, 30.0),
    )
    return [inspect.Parameter(name, keyword, default=default, annotation=kind) for name, kind, default in options]


def command(
    group: typer.Typer,
    name: str,
    options: Mapping[str, str] | None = None,
    fields: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Callable[[Command], Command]:
    """Make a function that takes a session a command of `group`.

    `fields` are options by the dotted field of the API that they set, each the annotation of a parameter. The function
    gets their values by field as its parameter `fields`, None for those that were not given. `options` names the
    options for further fields. Errors of the API name the option if it differs from the field.
    """
    by_parameter = {field.replace(".", "_"): field for field in fields or {}}
    by_field = {field: _option_of(kind) for field, kind in (fields or {}).items()}
    renamed = {field: option for field, option in by_field.items() if option != f"--{field}"} | dict(options or {})

    def decorate(function: Command) -> Command:
        def run(**given: Any) -> None:
            out = Output(given.pop("output_"))
            connection = {each: given.pop(f"{each}_") for each in ("url", "key", "ca_file", "timeout")}
            if fields is not None:
                found = {field: given.pop(parameter) for parameter, field in by_parameter.items()}
                given["fields"] = {field: None if value == [] else value for field, value in found.items()}
            guarded(out, lambda: function(connect(out, **connection), **given), renamed)

        group.command(name, cls=FlagsCommand, **settings)(_with_signature(run, function, common_options(), fields))
        return function

    return decorate


def _is_named(info: OptionInfo) -> bool:
    return any(str(each).startswith("--") for each in (info.default, *(info.param_decls or ())))


def _option_of(kind: Any) -> str:
    """`--name` of the annotation of an option."""
    info = next(each for each in get_args(kind) if isinstance(each, OptionInfo))
    names = (str(info.default), *(info.param_decls or ()))  # Typer takes the first name for the default
    return next(each for each in names if each.startswith("--")).partition("/")[0]


def add_group(app: typer.Typer, name: str, group: typer.Typer, panel: str = RESOURCES) -> None:
    """Add a group of commands to the application."""
    app.add_typer(group, name=name, cls=FlagsGroup, rich_help_panel=panel)


def add_alias(group: typer.Typer, name: str, function: Command) -> None:
    """Give a command of `group` another name, which help omits."""
    run = next(each.callback for each in group.registered_commands if _name(each.callback) == _name(function))
    assert run is not None
    group.command(name, cls=FlagsCommand, hidden=True)(run)


def _name(function: Command | None) -> str | None:
    return None if function is None else function.__name__


def either(name: str, positional: str | None, option: str | None) -> str | None:
    """A value that is an argument or the option `name`; None for neither. Raises `CommandError` for two different
    ones."""
    if positional is not None and option is not None and positional != option:
        raise CommandError(f"{positional!r} and {name} {option!r}: give one of them", status=Status.USAGE)
    return option if positional is None else positional


def local_command(group: typer.Typer, name: str, **settings: Any) -> Callable[[Command], Command]:
    """Make a function that takes an `Output` a command that calls no API."""

    def decorate(function: Command) -> Command:
        def run(**given: Any) -> None:
            out = Output(given.pop("output_"))
            guarded(out, lambda: function(out, **given))

        group.command(name, cls=FlagsCommand, **settings)(_with_signature(run, function, common_options()[:1]))
        return function

    return decorate


def connect(out: Output, url: str | None, key: str | None, ca_file: str | None, timeout: float) -> Session:
    """A session at the given address, else at that of the last login."""
    credentials = Credentials()
    where = url or (credentials.last_url if key is None else None) or DEFAULT_URL
    api = Client(where, key or None, credentials, timeout, ca_file)
    api.on_wait = lambda seconds: out.note(f"Too many requests; waiting {seconds} s")
    return Session(api, out)


def guarded(out: Output, work: Callable[[], None], options: Mapping[str, str] | None = None) -> None:
    """Run `work`; print its error and raise `typer.Exit` with the exit status."""
    try:
        work()
        out.out.flush()
    except CommandError as error:
        error.options = options or {}
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


def _with_signature(
    run: Command, function: Command, more: list[inspect.Parameter], fields: Mapping[str, Any] | None = None
) -> Command:
    """`run` with the parameters of `function` but the first; the options of `fields` replace the one of that name."""
    hints = get_type_hints(function, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters: list[inspect.Parameter] = []
    for each in list(inspect.signature(function).parameters.values())[1:]:
        if each.name == "fields":
            parameters += [
                inspect.Parameter(field.replace(".", "_"), keyword, default=None, annotation=kind)
                for field, kind in (fields or {}).items()
            ]
        else:
            parameters.append(each.replace(kind=keyword, annotation=hints[each.name]))
    parameters += more
    for each in parameters:
        _name_value(each)
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _name_value(parameter: inspect.Parameter) -> None:
    """Have help print the value of a text option as `--client CLIENT`, not as a type of Python."""
    annotation = parameter.annotation
    kind, *info = get_args(annotation) if get_origin(annotation) is Annotated else (None,)
    texts = (kind, *get_args(kind))  # str, str | None, list[str] | None
    for each in info:
        if isinstance(each, OptionInfo) and not each.metavar and (str in texts or list[str] in texts):
            each.metavar = _option_of(annotation)[2:].upper() if _is_named(each) else parameter.name.upper()
