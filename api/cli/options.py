"""Options and arguments of commands, a line each: what `command` (`commands.py`) takes by the API's field.

    "tags": texts("--tag", "A tag; may be given several times."),
    "expires_at": text("--expires", "When it expires.", parse=from_now),
    "proxy_id": text("--proxy", "Only of this proxy.", of=PROXY),

`parse` makes the API's value of what was given; `of` finds the id of what a name stands for, and completes names. Both
may raise `CommandError`, and see nothing that was not given. `complete` only completes names of a kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from api.cli.client import Client
from api.cli.lookup import ACCOUNT, Kind, find_id, names_of


@dataclass(frozen=True, slots=True)
class Option:
    """An option or an argument: its annotation for Typer, its default, and how the API takes its value.

    `label` is the option's first long name; None for an argument.
    """

    annotation: Any
    default: Any
    label: str | None
    parse: Callable[[Any], Any] | None
    of: Kind | None

    def parsed(self, given: Any) -> Any:
        """The value; None for what was not given. Raises `CommandError`."""
        if given is None or given == []:
            return None
        return given if self.parse is None else self.parse(given)

    def found(self, api: Client, value: Any) -> Any:
        """The value with ids in place of names; an empty option counts as not given. Raises `CommandError`."""
        kind = self.of
        if kind is None or value is None:
            return value
        if value == "" and self.label is not None:
            return None
        return [find_id(api, kind, each) for each in value] if isinstance(value, list) else find_id(api, kind, value)


def option(
    kind: Any,
    names: str,
    about: str,
    parse: Callable[[Any], Any] | None = None,
    of: Kind | None = None,
    complete: Kind | None = None,
    default: Any = None,
    **settings: Any,
) -> Option:
    """An option of any type; `names` are separated by spaces, the long one first."""
    label = names.split(" ", 1)[0].partition("/")[0]
    if kind in (str | None, list[str] | None, str):  # help prints the value as `--client CLIENT`, not a type of Python
        settings.setdefault("metavar", label[2:].upper())
    info = typer.Option(*names.split(" "), help=about, autocompletion=_completion(complete or of), **settings)
    return Option(Annotated[kind, info], default, label, parse, of)


def text(names: str, about: str, **settings: Any) -> Option:
    """A text."""
    return option(str | None, names, about, **settings)


def texts(names: str, about: str, **settings: Any) -> Option:
    """Texts: the option may be given several times."""
    return option(list[str] | None, names, about, **settings)


def number(names: str, about: str, **settings: Any) -> Option:
    """A whole number; `min` and `max` limit it."""
    return option(int | None if settings.get("default") is None else int, names, about, **settings)


def seconds_option(names: str, about: str, default: float, **settings: Any) -> Option:
    """A number of seconds, with a fraction."""
    return option(float, names, about, default=default, **settings)


def switch(names: str, about: str) -> Option:
    """`--enable/--disable`: on, off or not given."""
    return option(bool | None, names, about, show_default=False)


def flag(names: str, about: str, **settings: Any) -> Option:
    """On if it is given."""
    return option(bool, names, about, default=False, **settings)


def choice(names: str, about: str, kind: Any, **settings: Any) -> Option:
    """One of the words of a `Literal`, or of a tuple."""
    words = Literal[kind] if isinstance(kind, tuple) else kind
    return option(words if settings.get("default") else words | None, names, about, **settings)


def file_option(names: str, about: str, metavar: str | None = "FILE", **settings: Any) -> Option:
    """A path."""
    return option(Path | None, names, about, metavar=metavar, **settings)


_REQUIRED: Any = ...


def argument(
    metavar: str,
    about: str,
    kind: Any = str,
    parse: Callable[[Any], Any] | None = None,
    of: Kind | None = None,
    complete: Kind | None = None,
    default: Any = _REQUIRED,
    **settings: Any,
) -> Option:
    """A word without an option; required unless it has a `default`, of which help says nothing if it is None."""
    completion = _completion(complete or of)
    info = typer.Argument(metavar=metavar, help=about, autocompletion=completion, **settings)
    return Option(Annotated[kind if default is not None else kind | None, info], default, None, parse, of)


def _completion(kind: Kind | None) -> Callable[[str], list[str]] | None:
    """None for accounts: there may be too many to list."""
    return None if kind is None or kind is ACCOUNT else names_of(kind)


OF_LISTENING = {
    "listen_port": number("--listen-port", "Only at this port of the proxy.", min=1, max=65535),
    "tls_name": text("--tls-name", "Only with this text in the name of the TLS handshake."),
    "alpn": text("--alpn", "Only with this protocol offered in the TLS handshake."),
}
"""Filters of connections and of records by where a client came in."""
