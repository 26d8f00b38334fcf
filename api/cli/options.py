"""Options and arguments of commands, a line each: what `command` (`commands.py`) takes by the API's field; and kinds of
objects, which are found by the names that are given.

    "tags": texts("--tag", "A tag; may be given several times."),
    "expires_at": text("--expires", "When it expires.", parse=from_now),
    "proxy_id": text("--proxy", "Only of this proxy.", of=PROXY),

`parse` makes the API's value of what was given; `of` finds the id of what a name stands for, and completes names. Both
may raise `CommandError`, and see nothing that was not given. `complete` only completes names of a kind.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from api.cli.client import DEFAULT_URL, ApiClient
from api.cli.errors import CommandError, Status
from api.cli.tokens import CallerCredentials
from config.settings.env import ENV_PREFIX


@dataclass(frozen=True, slots=True)
class Option:
    """An option or an argument: its annotation for Typer, its default, and how the API takes its value.

    `label` is the option's first long name; None for an argument.
    """

    annotation: Any
    default: Any
    label: str | None
    parse: Callable[[Any], Any] | None
    of: ResourceKind | None

    def parsed(self, given: Any) -> Any:
        """The value; None for what was not given. Raises `CommandError`."""
        if given is None or given == []:
            return None
        return given if self.parse is None else self.parse(given)

    def found(self, api: ApiClient, value: Any) -> Any:
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
    of: ResourceKind | None = None,
    complete: ResourceKind | None = None,
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
    of: ResourceKind | None = None,
    complete: ResourceKind | None = None,
    default: Any = _REQUIRED,
    **settings: Any,
) -> Option:
    """A word without an option; required unless it has a `default`, of which help says nothing if it is None."""
    completion = _completion(complete or of)
    info = typer.Argument(metavar=metavar, help=about, autocompletion=completion, **settings)
    return Option(Annotated[kind if default is not None else kind | None, info], default, None, parse, of)


def _completion(kind: ResourceKind | None) -> Callable[[str], list[str]] | None:
    """None for accounts: there may be too many to list."""
    return None if kind is None or kind is ACCOUNT else names_of(kind)


OF_LISTENING = {
    "listen_port": number("--listen-port", "Only at this port of the proxy.", min=1, max=65535),
    "tls_name": text("--tls-name", "Only with this text in the name of the TLS handshake."),
    "alpn": text("--alpn", "Only with this protocol offered in the TLS handshake."),
}
"""Filters of connections and of records by where a client came in."""


# --- kinds of objects: found, listed and completed by their names ---


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A kind of resource: its name in messages, its group of commands, the field that names one, and the API's list.

    The list is at `path`, by default the name of the group; `page_size` is the parameter with the length of a page,
    None where the API lists all at once. Paths of one resource have its id, or `by_name` its name as well.
    """

    title: str
    group: str
    name_field: str = "name"
    path: str = ""
    page_size: str | None = "limit"
    query: Mapping[str, Any] = field(default_factory=dict)
    by_name: bool = False
    list_command: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", self.path or f"/{self.group}")
        object.__setattr__(self, "list_command", self.list_command or f"proxyfleet {self.group} list")

    @property
    def member(self) -> str:
        """The member of responses with all of them."""
        return self.path.rpartition("/")[2].replace("-", "_")

    def listed(self, api: ApiClient) -> dict[str, Any]:
        """All that the caller may see, in the API's response or in one of several."""
        found: dict[str, Any]
        if self.page_size is None:
            found = api.get(self.path)
        else:
            found = {self.member: list(api.pages(self.path, self.member, self.page_size, **self.query))}
        return found

    def all(self, api: ApiClient) -> list[dict[str, Any]]:
        """All that the caller may see, as the API lists them."""
        found: list[dict[str, Any]] = self.listed(api)[self.member]
        return found


PROXY = ResourceKind("proxy", "proxies", page_size="per_page")
USER = ResourceKind("user", "users", "username", page_size=None)
KEY = ResourceKind("API key", "keys", path="/api-keys", page_size=None)
WEBHOOK = ResourceKind("webhook", "webhooks", page_size=None)
PLAN = ResourceKind("plan", "plans", page_size=None)
LIST = ResourceKind("list", "lists", by_name=True)
POOL = ResourceKind("pool", "pools", by_name=True)
POLICY = ResourceKind("policy", "policies", by_name=True)
NODE = ResourceKind("node", "nodes", page_size=None, by_name=True)
ACCOUNT = ResourceKind("account", "accounts", "username", query={"inline": False})

ACCOUNT_ID = "acc_"


def account_id(api: ApiClient, name_or_id: str, inline: bool = False) -> str:
    """The id of an account of the fleet. An id isn't looked up: a key with a scope of accounts may not list them.

    With `inline`, also of an account of one proxy alone. Raises `CommandError`.
    """
    if name_or_id.startswith(ACCOUNT_ID):
        return name_or_id
    found = api.pages("/accounts", "accounts", q=name_or_id)
    named = [one for one in found if one["username"] == name_or_id]
    fleet = [one for one in named if inline or not one["inline"]]
    if named and not fleet:
        identifier = named[0]["proxies"]["ids"][0]
        proxy = names(api, PROXY).get(identifier, identifier)
        raise CommandError(
            f"{name_or_id!r} is an account of the proxy {proxy} alone, not of the fleet",
            f"It is changed there: proxyfleet accounts update {proxy} {name_or_id}; it has no credentials",
            Status.NOT_FOUND,
        )
    return str(_chosen(ACCOUNT, fleet, name_or_id)["id"])


def find(api: ApiClient, kind: ResourceKind, name_or_id: str) -> dict[str, Any]:
    """The resource as the API lists it; an id wins over a name. Raises `CommandError` for none and for several."""
    return _chosen(kind, kind.all(api), name_or_id)


def _chosen(kind: ResourceKind, everything: list[dict[str, Any]], name_or_id: str) -> dict[str, Any]:
    by_id = [one for one in everything if one["id"] == name_or_id]
    found = by_id or [one for one in everything if one[kind.name_field] == name_or_id]
    if len(found) > 1:
        ids = ", ".join(str(one["id"]) for one in found)
        raise CommandError(
            f"There are {len(found)} {kind.title}s called {name_or_id!r}", f"Give the id: {ids}", Status.USAGE
        )
    if not found:
        known = [str(one[kind.name_field]) for one in everything if one[kind.name_field]]
        near = [f"Did you mean {each!r}? " for each in get_close_matches(name_or_id, known, n=1)]
        hint = f"{''.join(near)}All of them: {kind.list_command}"
        raise CommandError(f"There is no {kind.title} {name_or_id!r}", hint, Status.NOT_FOUND)
    return found[0]


def sent(api: ApiClient, kind: ResourceKind, name_or_id: str, send: Callable[[], Any]) -> Any:
    """What `send` returns, a request about that resource. If there is none, the error names those that there are."""
    try:
        return send()
    except CommandError as error:
        if error.status is Status.NOT_FOUND:
            find(api, kind, name_or_id)
        raise


def find_id(api: ApiClient, kind: ResourceKind, name_or_id: str) -> str:
    """The id of the resource. Raises `CommandError`."""
    return account_id(api, name_or_id) if kind is ACCOUNT else str(find(api, kind, name_or_id)["id"])


def names(api: ApiClient, kind: ResourceKind) -> dict[str, str]:
    """Names by id; empty if the caller may not list the resources."""
    try:
        return {str(one["id"]): str(one[kind.name_field]) for one in kind.all(api)}
    except CommandError as error:
        if error.status is not Status.NOT_AUTHORISED:
            raise
        return {}


# --- completion of names ---

TIMEOUT = 1.0
"""Seconds that a completion waits for the API."""

_PLAIN = re.compile(r"\w[\w.@+/-]*")
"""Letters and digits of any script, and marks that bash, zsh and fish do not interpret inside a word."""

_ZSH_TITLE = "#compdef proxyfleet\n"
_ZSH_FIRST = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }\n"
"""A zsh without a configuration of its own has no `compdef` yet."""


def script_of(shell: str) -> str:
    """The script that a shell evaluates, or keeps as a file among its completions."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = str(get_completion_script(prog_name="proxyfleet", complete_var=VARIABLE, shell=shell))
    return script.replace(_ZSH_TITLE, _ZSH_TITLE + _ZSH_FIRST) if shell == "zsh" else script


VARIABLE = "_PROXYFLEET_COMPLETE"


def names_of(kind: ResourceKind) -> Callable[[str], list[str]]:
    """A completion function with the names of `kind` that the API knows, within a second; without a response none."""

    def complete(incomplete: str) -> list[str]:
        try:
            words = [plain(one, kind) for one in kind.all(_client())]
        except CommandError:
            return []  # a completion must not print anything
        return sorted(name for name in words if name.startswith(incomplete))

    return complete


def plain(one: dict[str, Any], kind: ResourceKind) -> str:
    """Its name if no shell interprets it, else its id.

    Shells insert an offered word unquoted, and zsh evaluates it before one is chosen. A user who may name a proxy must
    not run commands in another user's shell.
    """
    name = str(one[kind.name_field])
    return name if _PLAIN.fullmatch(name) else str(one["id"])


def _client() -> ApiClient:
    """From the environment and the last login: options on the command line are not read."""
    key, credentials = os.environ.get(f"{ENV_PREFIX}API_KEY"), CallerCredentials()
    url = os.environ.get(f"{ENV_PREFIX}URL") or (None if key else credentials.last_url) or DEFAULT_URL
    return ApiClient(url, key, credentials, TIMEOUT, os.environ.get(f"{ENV_PREFIX}CA_FILE"))


OF_NODE = {"node": text("--node", "Only of this node of a fleet; self: the one that is asked.", complete=NODE)}
"""Of what is on machines, by the API's parameter."""
