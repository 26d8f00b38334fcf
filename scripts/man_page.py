"""docs/proxyfleet.1, the manual page in the man macros of roff (man(7)), made from the commands like docs/cli.md."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any, get_args

from cli_manual import Command, commands, description, option_names, synopsis, value_text
from typer.models import ArgumentInfo

from api.cli.application import application
from api.cli.commands import common_options
from api.cli.errors import MEANINGS, OF_RUN
from config import VERSION

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


def _text(text: str) -> str:
    """Plain text of Markdown for roff: no line begins with a control character, and hyphens are minus signs."""
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text).replace("`", "").replace("\\|", "|")
    escaped = plain.replace("\\", r"\e").replace("-", r"\-")
    paragraphs = re.split(r"\n\s*\n", escaped)
    lines = "\n.PP\n".join(" ".join(each.split()) for each in paragraphs)
    return re.sub(r"^(?=[.'](?!PP$))", r"\\&", lines, flags=re.MULTILINE)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
