"""docs/cli.md, made from the commands themselves: what they are called, what they take, what they say of themselves.

`manual()` is its text; run as a program it writes the file that is named.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from api.cli.commands import common_options
from api.cli.errors import MEANINGS
from supervisor import app

COMMON = {option.name for option in common_options()}

HEAD = """# The command line

This page is made from the commands by `scripts/cli-manual`; `proxyfleet COMMAND --help` says the same.

```sh
proxyfleet serve                                        # run the product
proxyfleet login                                        # sign in; asks for the password
proxyfleet proxies create office --protocol http --port 3128 --username alice
proxyfleet proxies list
proxyfleet logs --follow --search example.com
proxyfleet top                                          # live, full screen
proxyfleet apply fleet.toml --dry-run                   # what would change
```

Commands talk to the management API alone, except those that must work while the product is stopped; these are marked
*offline*, and run on its machine as its user.

## Who you are, and where

- `proxyfleet login` keeps tokens in `$XDG_CONFIG_HOME/proxyfleet/credentials.json` (mode 0600) and renews them.
  Programs use an API key in `PROXYFLEET_API_KEY`; a key wins over a login.
- The API is the one of `--url` or `PROXYFLEET_URL`, else that of the last login, else `http://127.0.0.1:8080`. A key
  is never sent to where only a login was: with a key, name the address if it is another.
- `--ca-file` of a login is kept with it; later commands at the same address need neither the option nor its variable.
- Proxies of the environment (`https_proxy`, `no_proxy`) are used on the way elsewhere, never to this machine itself.
- A password is asked for without an echo, or read from the first line of standard input with `--password-stdin`. No
  option takes one as its value: others on the machine see the arguments of commands, and shells keep them.

## What is printed

- **At a terminal**: tables and colours, unless `NO_COLOR` is set or `TERM` is `dumb`. In a narrow one columns are left
  out, which is said, then long texts wrapped.
- **In a pipe**: the same cells with tabs between, under one line of titles; nothing is cut or coloured. Sizes are
  plain numbers of bytes and spans of time of seconds there, so that `sort -n` and `awk` can use them.
- **Units**: `KiB`, `MiB` and `GiB` are 1024-based, `kB`, `MB` and `GB` 1000-based. Where a size or a rate is given
  (`--quota`, and `--set` of `quota.bytes`, `limits.bandwidth_in` and `limits.bandwidth_out`), a number of bytes is good
  as well as `5MB`, `5MiB`, `1Mbit/s` or `125kB/s`. The API's own texts, which `-o json` has, call 1024-based units
  `KB`, `MB` and `GB`.
- **With `-o json`**: the `data` of the API's answer. Commands that ask several things (`proxies start A B`, `status`)
  print an object that holds the answers; errors are one JSON object on standard error, also of a wrong command line.
- Results go to standard output, all else to standard error. Characters that a terminal would obey are shown as escapes,
  also in JSON. Documents (`export`) are UTF-8 in every locale.
- Errors name the option that they are about, `apply` the line of the file, and most of them what to do next.
- **Times** (`--since`, `--until`, `--expires`) are `15m`, `2h` or `7d` from now, `12:30`, `yesterday`,
  `yesterday 12:30`, `2030-01-31`, or ISO 8601. They are UTC unless they have an offset, and so are all times that are
  printed.
- **`-h`** after any command is its help; `proxyfleet --version` prints the version.
- **A name or an id** says which proxy, user, key or webhook is meant; an id wins.

## Exit statuses

| status | meaning |
|---|---|
"""

COMPLETION = """
## Backups

`proxyfleet backup [TARGET]` runs on the product's machine as its user, while the product runs or not, and makes one
gzipped tar of mode 0600 with a manifest of SHA-256 sums. In it are the configuration, the audit trail, totals and
series of metrics, the outbox of webhooks, and with `--with-logs` the access records. The configuration is that of one
moment. An older archive of the same name is replaced when the new one is whole; no other file is, and nothing is put
into the data directory, with which it would be lost.

- **Keys** (signing, sealed secrets) are sealed under a passphrase with scrypt and AES-256-GCM; the seal covers the
  whole archive. With `--without-keys` they are left out, and the archive is good only where the keys still are. A key
  that systemd gives to the service (`secrets-key`) is in no archive. What isn't sealed holds hashes of passwords and
  names, so keep it private.
- **`restore FILE`**, while the product is stopped, reads and checks all of it first: sums, the seal, that this
  release knows every document, that the keys open every secret, the hash chain of the audit trail. It shows which
  resources and keys it would add, change and remove, and asks. `--dry-run` ends there, and works while the product
  runs, too. Where nothing differs, nothing
  is done unless `--force` says so, which is the way to audit trail, metrics and records alone. What was there is kept
  beside, in `before-restore-…`; the newest two of these stay.
- **`restore FILE --without-secrets`** needs neither passphrase nor keys: for an archive made without keys, or a lost
  passphrase. Users, accounts and API keys keep their credentials, which are hashed. Passwords for upstream proxies and
  header values of webhooks are removed, and webhooks get new signing secrets; the command lists what to enter again.
- A restore that is killed leaves the old state, or, once it was decided, is completed by the next start. What is no
  whole archive, is of a later format, or can't be read by this release is refused, and nothing is touched.
- **After a restore** everybody signs in again: what was signed out since the backup stays so. An API key that was
  revoked since is there again, and shown as `added`; deliveries of webhooks that waited then wait again. Answers that
  are kept for `Idempotency-Key` are not restored. `initial-admin-password` stays where it is if it is good for the
  restored `admin`. The restored audit trail has a row `backup.restored`.

## Completion

```sh
eval "$(proxyfleet completion bash)"     # in ~/.bashrc
eval "$(proxyfleet completion zsh)"      # in ~/.zshrc
proxyfleet completion fish | source      # in ~/.config/fish/config.fish
```

Tab then offers commands, options, and the names of proxies, users, keys and webhooks, as the API knows them. A name
that a shell would read as more than its letters (`a b`, `$(x)`) is offered by its id.

"""


@dataclass(frozen=True)
class Command:
    """One command: its whole name, its function as Typer sees it."""

    name: str
    function: Callable[..., Any]

    @property
    def offline(self) -> bool:
        """Does it work without the API?"""
        return "url_" not in inspect.signature(self.function).parameters

    def parameters(self) -> Iterator[tuple[inspect.Parameter, Any, ArgumentInfo | OptionInfo]]:
        """Its own arguments and options: the parameter, its type, what Typer was told."""
        signature = inspect.signature(self.function)
        hints = get_type_hints(self.function, include_extras=True)
        for name, parameter in signature.parameters.items():
            if name not in COMMON and get_origin(hints[name]) is Annotated:
                kind, told = get_args(hints[name])[:2]
                yield parameter, kind, told


def commands(group: typer.Typer, prefix: str = "") -> Iterator[Command]:
    """All commands below `group`, those of groups behind the others."""
    for command in group.registered_commands:
        function = command.callback
        assert function is not None
        if command.hidden:
            continue  # another name of one that is there
        yield Command(f"{prefix}{command.name or function.__name__.replace('_', '-')}", function)
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from commands(inner.typer_instance, f"{prefix}{inner.name} ")


def manual() -> str:
    """The whole page."""
    statuses = "".join(f"| {int(status)} | {meaning} |\n" for status, meaning in MEANINGS.items())
    common = _table([(option, *get_args(option.annotation)[:2]) for option in common_options()])
    pages = "\n".join(_page(command) for command in commands(app))
    title = "## Options of all commands that talk to the API"
    return f"{HEAD}{statuses}{COMPLETION}{title}\n\n{common}\n## Commands\n\n{pages}"


def _page(command: Command) -> str:
    parameters = list(command.parameters())
    arguments = [called(parameter, told) for parameter, _, told in parameters if isinstance(told, ArgumentInfo)]
    usage = " ".join(["proxyfleet", command.name, *arguments])
    mark = "*offline* — " if command.offline else ""
    text = inspect.getdoc(command.function) or ""
    table = _table(parameters)
    return f"### `{usage}`\n\n{mark}{text}\n{'' if not table else chr(10) + table}"


def _table(parameters: list[tuple[inspect.Parameter, Any, Any]]) -> str:
    if not parameters:
        return ""
    rows = [
        f"| {label} | {kind_of(kind, told, label)} | {meaning_of(each, told)} |"
        for each, kind, told in parameters
        for label in (called_in_table(each, told),)
    ]
    return "| option | value | what it means |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def called_in_table(parameter: inspect.Parameter, told: ArgumentInfo | OptionInfo) -> str:
    """All names of an option, or the argument, as code."""
    if isinstance(told, ArgumentInfo):
        return f"`{called(parameter, told)}`"
    first = (told.default,) if isinstance(told.default, str) and told.default.startswith("-") else ()
    names = (*first, *(told.param_decls or ())) or (f"--{parameter.name.replace('_', '-')}",)
    return ", ".join(f"`{name}`" for name in names)


def called(parameter: inspect.Parameter, told: ArgumentInfo | OptionInfo) -> str:
    """An argument as in a synopsis: in brackets if it is optional, with dots if there may be several."""
    name = told.metavar or parameter.name.upper()
    many = "..." if "list" in str(parameter.annotation) else ""
    return f"{name}{many}" if parameter.default is inspect.Parameter.empty else f"[{name}]{many}"


def kind_of(kind: Any, told: ArgumentInfo | OptionInfo, label: str) -> str:
    """What a value may be. That of an option which help calls by the option's own name is told by its type."""
    if told.metavar and isinstance(told, OptionInfo) and f"`--{told.metavar.lower()}`" not in label:
        return f"`{told.metavar}`"
    while get_origin(kind) is not Literal and get_args(kind):
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if kind is bool:
        return ""
    named = {str: "text", int: "integer", float: "number", Path: "file"}.get(kind, kind.__name__)
    lowest, highest = told.min, told.max
    if lowest is not None and highest is not None:
        return f"{named} from {lowest:g} to {highest:g}"
    return f"{named} from {lowest:g}" if lowest is not None else named


def meaning_of(parameter: inspect.Parameter, told: ArgumentInfo | OptionInfo) -> str:
    """The help of an option, its default and its variable."""
    help_text = (told.help or "").replace("|", "\\|")
    variable = f" Variable: `{told.envvar}`." if told.envvar else ""
    default = parameter.default
    shown = "" if default in (None, False, inspect.Parameter.empty) else f" Default: `{default}`."
    return f"{help_text}{shown}{variable}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(manual())
