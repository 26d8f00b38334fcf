"""What all commands have in common: their options, their session, and what becomes of a `CommandError`.

    @command(group, "show")
    def show_proxy(session: Session, proxy: ProxyArgument) -> None:
        "Show a proxy."

Typer sees the function without `session` and with the common options behind its own.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, NoReturn, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from api.cli.client import DEFAULT_URL, Client
from api.cli.credentials import Credentials
from api.cli.errors import CommandError, Status
from api.cli.flags import FlagsCommand
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
"""Panels of the help at a terminal."""

OutputOption = Annotated[
    Format, typer.Option("--output", "-o", help="A table for people, or JSON for programs.", rich_help_panel=_PANEL)
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar=URL_VARIABLE,
        show_envvar=True,
        help=f"The management API; unless said where the last login was, else {DEFAULT_URL}.",
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
        help="An API key in place of a login. Better in the variable: others on this machine see arguments.",
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
    float, typer.Option("--timeout", min=0.1, help="Seconds that an answer may take.", rich_help_panel=_PANEL)
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


@dataclass(frozen=True, slots=True)
class Session:
    """What a command works with."""

    api: Client
    out: Output

    def confirm(self, question: str, yes: bool) -> None:
        """Go on only if somebody at a terminal says so, or `--yes` did. Raises `CommandError`."""
        confirm(question, yes)


def confirm(question: str, yes: bool) -> None:
    """As `Session.confirm`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError("This is not done without being asked for", "There is no terminal here: --yes", Status.USAGE)
    sys.stderr.write(f"{safe(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("Nothing was done")


def common_options() -> list[inspect.Parameter]:
    """The options that every command of the API has."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = (
        ("output_", OutputOption, "table"),  # a command may have arguments of the names without the underscore
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
    """Make a function of a session a command of `group`.

    `fields` are options by the dotted field of the API that they set, each the annotation of a parameter. The function
    gets what was given of them as its parameter `fields`, by field. `options` has fields of the API that other options
    of this command set. Errors of the API name the option where it is not the field's own name.
    """
    by_parameter = {field.replace(".", "_"): field for field in fields or {}}
    called = {field: _option_of(kind) for field, kind in (fields or {}).items()}
    named = {field: option for field, option in called.items() if option != f"--{field}"} | dict(options or {})

    def decorate(function: Command) -> Command:
        def run(**given: Any) -> None:
            out = Output(given.pop("output_"))
            connection = {each: given.pop(f"{each}_") for each in ("url", "key", "ca_file", "timeout")}
            if fields is not None:
                found = {field: given.pop(parameter) for parameter, field in by_parameter.items()}
                given["fields"] = {field: None if value == [] else value for field, value in found.items()}
            guarded(out, lambda: function(connect(out, **connection), **given), named)

        made = _with_signature(run, function, drop=1, more=common_options(), fields=fields or {})
        group.command(name, cls=FlagsCommand, **settings)(made)
        return function

    return decorate


def _is_named(info: OptionInfo) -> bool:
    return any(str(each).startswith("--") for each in (info.default, *(info.param_decls or ())))


def _option_of(kind: Any) -> str:
    """`--name` of the annotation of an option."""
    info = next(each for each in get_args(kind) if isinstance(each, OptionInfo))
    names = (str(info.default), *(info.param_decls or ()))  # Typer takes the first name for the default
    return next(each for each in names if each.startswith("--")).partition("/")[0]


def also_called(group: typer.Typer, name: str, function: Command) -> None:
    """Give a command of `group` another name, which help doesn't list."""
    run = next(each.callback for each in group.registered_commands if _name(each.callback) == _name(function))
    assert run is not None
    group.command(name, cls=FlagsCommand, hidden=True)(run)


def _name(function: Command | None) -> str | None:
    return None if function is None else function.__name__


def either(name: str, positional: str | None, option: str | None) -> str | None:
    """What may be given as an argument or by the option `name`; None for neither. Raises `CommandError` for both."""
    if positional is not None and option is not None and positional != option:
        raise CommandError(f"{positional!r} and {name} {option!r}: give one of them", status=Status.USAGE)
    return option if positional is None else positional


def local_command(group: typer.Typer, name: str, **settings: Any) -> Callable[[Command], Command]:
    """Make a function of an `Output` a command that talks to no API."""

    def decorate(function: Command) -> Command:
        def run(**given: Any) -> None:
            out = Output(given.pop("output_"))
            guarded(out, lambda: function(out, **given))

        more = common_options()[:1]
        group.command(name, cls=FlagsCommand, **settings)(_with_signature(run, function, drop=1, more=more))
        return function

    return decorate


def connect(out: Output, url: str | None, key: str | None, ca_file: str | None, timeout: float) -> Session:
    """A session at the API that was named, or was signed in at last."""
    credentials = Credentials()
    where = url or (credentials.last_url if key is None else None) or DEFAULT_URL
    api = Client(where, key or None, credentials, timeout, ca_file)
    api.on_wait = lambda seconds: out.note(f"Too many requests; waiting {seconds} s")
    return Session(api, out)


def guarded(out: Output, work: Callable[[], None], options: Mapping[str, str] | None = None) -> None:
    """Do it; what goes wrong becomes its words and its exit status."""
    try:
        work()
        out.out.flush()
    except CommandError as trouble:
        trouble.options = options or {}
        out.trouble(trouble)
        raise typer.Exit(int(trouble.status)) from trouble
    except KeyboardInterrupt as error:
        raise typer.Exit(int(Status.INTERRUPTED)) from error
    except BrokenPipeError as error:  # whoever read our output has seen enough (`| head`)
        forget_output()
        raise typer.Exit(int(Status.OK)) from error
    except OSError as error:  # commands translate what is theirs; what is left is the output, on a full disk or so
        forget_output()
        out.trouble(unwritten(error))
        raise typer.Exit(int(Status.FAILED)) from error


def unwritten(error: OSError) -> CommandError:
    """The results went nowhere."""
    return CommandError(f"{error.filename or 'The output'} can't be written: {error.strerror or error}")


def forget_output() -> None:
    """The interpreter must not try once more, at its end, to write what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def usage(message: str, hint: str | None = None) -> NoReturn:
    """The command line is wrong."""
    raise CommandError(message, hint, Status.USAGE)


def _with_signature(
    run: Command,
    function: Command,
    drop: int,
    more: list[inspect.Parameter],
    fields: Mapping[str, Any] = MappingProxyType({}),
) -> Command:
    """`run` with the parameters of `function`, the options of `fields` in the place of its parameter of that name."""
    hints = get_type_hints(function, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters: list[inspect.Parameter] = []
    for each in list(inspect.signature(function).parameters.values())[drop:]:
        if each.name == "fields":
            parameters += [
                inspect.Parameter(field.replace(".", "_"), keyword, default=None, annotation=kind)
                for field, kind in fields.items()
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
    """Let help show the text of an option as `--client CLIENT`, not by a type of Python."""
    annotation = parameter.annotation
    kind, *told = get_args(annotation) if get_origin(annotation) is Annotated else (None,)
    texts = (kind, *get_args(kind))  # str, str | None, list[str] | None
    for each in told:
        if isinstance(each, OptionInfo) and not each.metavar and (str in texts or list[str] in texts):
            each.metavar = _option_of(annotation)[2:].upper() if _is_named(each) else parameter.name.upper()
