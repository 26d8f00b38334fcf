"""The manual page proxyfleet.1 in the man macros of roff (man(7)), made from the commands: names, options and help.

`page()` returns it; run as a program, this writes it into the given file.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from api.cli.application import application
from api.cli.commands import common_options
from api.cli.errors import MEANINGS, OF_RUN
from config import VERSION

COMMON = {option.name for option in common_options()}
INTRODUCTION = """Proxyfleet is a forward-proxy service with a management API.
.B proxyfleet serve
runs it; the other commands manage it over the API, or work on its data directory.
Commands that are marked as offline need no API."""
ENVIRONMENT = {
    "PROXYFLEET_URL": "Address of the API.",
    "PROXYFLEET_API_KEY": "API key instead of a sign-in.",
    "PROXYFLEET_CA_FILE": "Certificate authority of the API's certificate.",
    "PROXYFLEET_CONFIG": "Configuration file of serve and of the offline commands.",
}
FILES = {
    "/etc/proxyfleet/config.toml": "Configuration of the systemd service.",
    "/var/lib/proxyfleet": "Data directory of the systemd service.",
}


@dataclass(frozen=True)
class Command:
    """One command: its full name, and the function that Typer gets."""

    name: str
    function: Callable[..., Any]

    @property
    def offline(self) -> bool:
        """True if it works without the API."""
        return "url_" not in inspect.signature(self.function).parameters

    def parameters(self) -> Iterator[tuple[inspect.Parameter, Any, ArgumentInfo | OptionInfo]]:
        """Its own arguments and options: the parameter, its type, and what Typer has of it."""
        signature = inspect.signature(self.function)
        hints = get_type_hints(self.function, include_extras=True)
        for name, parameter in signature.parameters.items():
            if name not in COMMON and get_origin(hints[name]) is Annotated:
                kind, info = get_args(hints[name])[:2]
                yield parameter, kind, info


def commands(group: typer.Typer, prefix: str = "") -> Iterator[Command]:
    """All commands below `group`, those of groups last."""
    for command in group.registered_commands:
        function = command.callback
        assert function is not None
        if command.hidden:
            continue  # an alias
        yield Command(f"{prefix}{command.name or function.__name__.replace('_', '-')}", function)
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from commands(inner.typer_instance, f"{prefix}{inner.name} ")


def page() -> str:
    """The whole manual page."""
    parts = [
        f'.TH PROXYFLEET 1 "" "proxyfleet {VERSION}" "User Commands"',
        ".nh",
        ".SH NAME",
        r"proxyfleet \- forward-proxy service with a management API",
        ".SH SYNOPSIS",
        ".B proxyfleet\n.I command\n[options]",
        ".SH DESCRIPTION",
        INTRODUCTION,
        ".SH COMMANDS",
        *(_command(each) for each in commands(application())),
        ".SH COMMON OPTIONS",
        "All commands that call the API have these.",
        *(_option(option, *get_args(option.annotation)[:2]) for option in common_options()),
        ".SH EXIT STATUS",
        *(f".TP\n.B {int(status)}\n{_text(meaning)}" for status, meaning in MEANINGS.items()),
        *(f".TP\n.B {status}\n{_text(meaning)}" for status, meaning in OF_RUN.items()),
        ".SH ENVIRONMENT",
        "Every key of the configuration has a variable: PROXYFLEET_SERVER__PORT is server.port.",
        *(f".TP\n.B {name}\n{_text(meaning)}" for name, meaning in ENVIRONMENT.items()),
        ".SH FILES",
        *(f".TP\n.I {name}\n{_text(meaning)}" for name, meaning in FILES.items()),
    ]
    return "\n".join(parts) + "\n"


def _command(command: Command) -> str:
    parameters = list(command.parameters())
    arguments = [synopsis(each, info) for each, _, info in parameters if isinstance(info, ArgumentInfo)]
    offline = "(offline) " if command.offline else ""
    title = " ".join(["proxyfleet", command.name, *arguments])
    lines = [f".SS {_text(title)}", _text(offline + (inspect.getdoc(command.function) or ""))]
    return "\n".join([*lines, *(_option(*each) for each in parameters)])


def _option(parameter: inspect.Parameter, kind: Any, info: Any) -> str:
    name = option_names(parameter, info)
    value = value_text(kind, info, name)
    return f".TP\n\\fB{_text(name)}\\fR {_text(value)}".rstrip() + f"\n{_text(description(parameter, info))}"


def option_names(parameter: inspect.Parameter, info: ArgumentInfo | OptionInfo) -> str:
    """All names of an option, or the argument."""
    if isinstance(info, ArgumentInfo):
        return synopsis(parameter, info)
    first = (info.default,) if isinstance(info.default, str) and info.default.startswith("-") else ()
    names = (*first, *(info.param_decls or ())) or (f"--{parameter.name.replace('_', '-')}",)
    return ", ".join(names)


def synopsis(parameter: inspect.Parameter, info: ArgumentInfo | OptionInfo) -> str:
    """An argument in a synopsis: in brackets if it is optional, with dots if there may be several."""
    name = info.metavar or parameter.name.upper()
    many = "..." if "list" in str(parameter.annotation) else ""
    return f"{name}{many}" if parameter.default is inspect.Parameter.empty else f"[{name}]{many}"


def value_text(kind: Any, info: ArgumentInfo | OptionInfo, label: str) -> str:
    """The allowed values. An option whose help repeats its name as the value has its type instead."""
    if info.metavar and isinstance(info, OptionInfo) and f"--{info.metavar.lower()}" not in label.split(", "):
        return info.metavar
    while get_origin(kind) is not Literal and get_args(kind):
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return ", ".join(str(value) for value in get_args(kind))
    if kind is bool:
        return ""
    named = {str: "text", int: "integer", float: "number", Path: "file"}.get(kind, kind.__name__)
    lowest, highest = info.min, info.max
    if lowest is not None and highest is not None:
        return f"{named} from {lowest:g} to {highest:g}"
    return f"{named} from {lowest:g}" if lowest is not None else named


def description(parameter: inspect.Parameter, info: ArgumentInfo | OptionInfo) -> str:
    """The help of an option, its default and its variable."""
    variable = f" Variable: {info.envvar}." if info.envvar else ""
    default = parameter.default
    default_text = "" if default in (None, False, inspect.Parameter.empty) else f" Default: {default}."
    return f"{info.help or ''}{default_text}{variable}"


def _text(text: str) -> str:
    """Plain text of Markdown for roff: no line begins with a control character, and hyphens are minus signs."""
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text).replace("`", "")
    escaped = plain.replace("\\", r"\e").replace("-", r"\-")
    paragraphs = re.split(r"\n\s*\n", escaped)
    lines = "\n.PP\n".join(" ".join(each.split()) for each in paragraphs)
    return re.sub(r"^(?=[.'](?!PP$))", r"\\&", lines, flags=re.MULTILINE)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
