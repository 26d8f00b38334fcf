"""docs/cli.md, made from the commands: their names, options and help.

`manual()` returns the page; run as a program, this writes it into the given file.
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

from api.cli.application import application
from api.cli.commands import common_options
from api.cli.errors import MEANINGS, OF_RUN

COMMON = {option.name for option in common_options()}

HEAD = """# The command line

`scripts/cli-manual` makes this page from the commands; `proxyfleet COMMAND --help` has the same texts.

```sh
proxyfleet serve                                        # run the product
proxyfleet login                                        # sign in; asks for the password
proxyfleet proxies create office --protocol http --port 3128 --username alice
proxyfleet proxies list
proxyfleet logs --follow --search example.com
proxyfleet top                                          # live, full screen
proxyfleet apply fleet.toml --dry-run                   # list the changes
```

Commands call the management API, except those that must work while the product is stopped; these are marked *offline*,
and run on its machine as its user.

## Credentials and address

- `proxyfleet login` keeps tokens in `$XDG_CONFIG_HOME/proxyfleet/credentials.json` (mode 0600) and renews them.
  Programs use an API key in `PROXYFLEET_API_KEY`; a key wins over a login.
- The API is the one of `--url` or `PROXYFLEET_URL`, else that of the last login, else `http://127.0.0.1:8080`. A key
  is never sent to the address of a login: another program may listen there by now, and a key is valid for long. With a
  key, name the address if it is not the default.
- `--ca-file` of a login is kept with it; later commands at the same address need neither the option nor its variable.
- Proxies of the environment (`https_proxy`, `no_proxy`) are used for other machines, never for this one.
- A password is asked for without an echo, or read from the first line of standard input with `--password-stdin`. No
  option takes one as its value: others on the machine see arguments, and shells keep them in their history.

## Output

- **At a terminal**: tables and colours, unless `NO_COLOR` is set or `TERM` is `dumb`. In a narrow one columns are left
  out, with a note, then long texts are wrapped.
- **In a pipe**: the same cells separated by tabs, under one line of titles; nothing is cut or coloured. Sizes are
  plain numbers of bytes and spans of time plain numbers of seconds, so that `sort -n` and `awk` can use them.
- **Units** are decimal: a `GB` is 1,000,000,000 bytes, as in bills and in the dashboard, and three digits are
  printed. A size or a rate (`--quota`, and `--set` of `quota.bytes`, `limits.bandwidth_in` and
  `limits.bandwidth_out`) is a number of bytes or `5MB`, `5MiB`, `1Mbit/s` or `125kB/s`, and is printed as it was
  typed: `20 GiB` is 1024-based. The API's own texts, which `-o json` has, call 1024-based units `KB`, `MB` and `GB`.
- **With `-o json`**: the `data` of the API's response ([its form](#json)). Commands with several requests (`status`)
  print one object with all data; errors are one JSON object on standard error, also of a wrong command line.
- Results go to standard output, all else to standard error. Characters that a terminal would obey are printed as
  escapes, also in JSON. Documents (`export`) are UTF-8 in every locale.
- Errors name the option, those of `apply` the line of the file, and most of them the next step.
- **Times** (`--since`, `--until`, `--expires`) are `15m`, `2h` or `7d` from now, `12:30`, `yesterday`,
  `yesterday 12:30`, `2030-01-31`, or ISO 8601. They are UTC unless they have an offset. All printed
  times are UTC.
- **`-h`** after any command is its help; `proxyfleet --version` prints the version.
- **A name or an id** selects a proxy, user, key or webhook; an id wins.

## Exit statuses

| status | meaning |
|---|---|
"""

ENTRIES = {
    "proxies list": "proxies",
    "accounts list": "accounts",
    "plans list": "plans",
    "lists list": "lists",
    "pools list": "pools",
    "pools state": "upstreams",
    "policies list": "policies",
    "credentials list": "credentials",
    "connections list": "connections",
    "users list": "users",
    "sessions list": "sessions",
    "keys list": "api_keys",
    "webhooks list": "webhooks",
    "webhooks deliveries": "deliveries",
    "settings sources": "settings",
    "dns cache": "entries",
    "logs": "logs",
    "audit list": "audit",
    "history": "revisions",
    "history N": "changes",
    "usage": "usage",
}
"""The member with the entries in the JSON of commands that print several."""

JSON = """
## JSON

With `-o json` each command prints one object, and `jq` finds its content at:

| command | content |
|---|---|
| `show`, `create`, `update` | the kind: `.proxy`, `.account`, `.list`, `.api_key` …; `.warnings[]` if there are any |
| `keys create`, `keys rotate` | `.api_key`, and the key itself in `.key` |
| `credentials mint` | `.credential`, and the secret in `.secret` |
| `delete`, `revoke` | `.id`, and `.deleted` or `.revoked` |
| `proxies start`, `stop`, `restart`, `test` | `.results[]`, in the order of the arguments |
| `settings show`, `set`, `unset` | `.logging.level` and all others by group and key |
| `proxies explain` | `.decision`, `.rule`, `.rules[]` |
| `audit show`, `history N` | `.entry`; `.revision` |
| `import`, `apply`, `rollback` | `.changed`, `.summary`, `.changes[]`, of a file `.not_compared` |
| `status` | `.health`, `.status` |
| `metrics` | `.metrics`, by name |
| `logs --follow` | a record on each line |
"""

COMPLETION = """
## Backups

`proxyfleet backup [TARGET]` runs on the product's machine as its user, while the product runs or not, and makes one
gzipped tar of mode 0600 with a manifest of SHA-256 sums. It holds the configuration, the audit trail, totals and
series of metrics, the outbox of webhooks, and with `--with-logs` the access records. The configuration is that of one
moment. A complete new archive replaces an older one of the same name, and no other file. TARGET must be outside of the
data directory, with which the archive would be lost.

- **Keys** (signing, sealed secrets) are sealed under a passphrase with scrypt and AES-256-GCM; the seal covers the
  whole archive. With `--without-keys` they are left out, and the archive is usable only where the keys still are. A key
  that systemd gives to the service (`secrets-key`) is in no archive. The rest of it holds hashes of passwords and
  names, so keep it private.
- **`restore FILE`**, while the product is stopped, reads and checks all of it first: sums, the seal, that this
  release knows every document, that the keys open every secret, the hash chain of the audit trail. It lists the
  resources and keys that it would add, change and remove, and asks. `--dry-run` ends there, and works while the product
  runs, too. If nothing differs, nothing is done without `--force`, which restores audit trail, metrics and records. The
  earlier data are kept in `before-restore-…`; the newest two of these stay.
- **`restore FILE --without-secrets`** needs neither passphrase nor keys: for an archive made without keys, or a lost
  passphrase. Users, accounts and API keys keep their credentials, which are hashed. Passwords for upstream proxies and
  header values of webhooks and of sources of lists are removed, and webhooks get new signing secrets; the command lists
  what to enter again.
- A restore that is killed leaves the old state, or, after its decision, the next start completes it. An archive that is
  incomplete, of a later format, or that this release can't read is refused, and nothing is changed.
- **After a restore** all users and account holders must sign in again: sessions that ended since the backup stay so. An
  API key that was revoked since is valid again, and listed as `added`; so is a credential of an account. Deliveries of
  webhooks that waited then wait again. Responses
  kept for `Idempotency-Key` are not restored. `initial-admin-password` stays if it is valid for the
  restored `admin`. The restored audit trail has a row `backup.restored`.

## Completion

```sh
eval "$(proxyfleet completion bash)"     # in ~/.bashrc
eval "$(proxyfleet completion zsh)"      # in ~/.zshrc
proxyfleet completion fish | source      # in ~/.config/fish/config.fish
```

Tab then completes commands, options, and the names of proxies, users, keys and webhooks, which the API lists. For a
name that a shell would interpret (`a b`, `$(x)`) it offers the id.

"""


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


def manual() -> str:
    """The whole page."""
    meanings = {**{str(int(status)): meaning for status, meaning in MEANINGS.items()}, **OF_RUN}
    statuses = "".join(f"| {status} | {meaning} |\n" for status, meaning in meanings.items())
    common = _table([(option, *get_args(option.annotation)[:2]) for option in common_options()])
    pages = "\n".join(_page(command) for command in commands(application()))
    title = "## Options of all commands that call the API"
    entries = "".join(f"| `{command}` | `.{member}[]` |\n" for command, member in ENTRIES.items())
    return f"{HEAD}{statuses}{JSON}{entries}{COMPLETION}{title}\n\n{common}\n## Commands\n\n{pages}"


def _page(command: Command) -> str:
    parameters = list(command.parameters())
    arguments = [synopsis(parameter, info) for parameter, _, info in parameters if isinstance(info, ArgumentInfo)]
    usage = " ".join(["proxyfleet", command.name, *arguments])
    mark = "*offline* — " if command.offline else ""
    text = inspect.getdoc(command.function) or ""
    table = _table(parameters)
    return f"### `{usage}`\n\n{mark}{text}\n{'' if not table else chr(10) + table}"


def _table(parameters: list[tuple[inspect.Parameter, Any, Any]]) -> str:
    if not parameters:
        return ""
    rows = [
        f"| {label} | {value_text(kind, info, label)} | {description(each, info)} |"
        for each, kind, info in parameters
        for label in (option_names(each, info),)
    ]
    return "| option | value | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def option_names(parameter: inspect.Parameter, info: ArgumentInfo | OptionInfo) -> str:
    """All names of an option, or the argument, as code."""
    if isinstance(info, ArgumentInfo):
        return f"`{synopsis(parameter, info)}`"
    first = (info.default,) if isinstance(info.default, str) and info.default.startswith("-") else ()
    names = (*first, *(info.param_decls or ())) or (f"--{parameter.name.replace('_', '-')}",)
    return ", ".join(f"`{name}`" for name in names)


def synopsis(parameter: inspect.Parameter, info: ArgumentInfo | OptionInfo) -> str:
    """An argument in a synopsis: in brackets if it is optional, with dots if there may be several."""
    name = info.metavar or parameter.name.upper()
    many = "..." if "list" in str(parameter.annotation) else ""
    return f"{name}{many}" if parameter.default is inspect.Parameter.empty else f"[{name}]{many}"


def value_text(kind: Any, info: ArgumentInfo | OptionInfo, label: str) -> str:
    """The allowed values. An option whose help repeats its name as the value has its type instead."""
    if info.metavar and isinstance(info, OptionInfo) and f"`--{info.metavar.lower()}`" not in label:
        return f"`{info.metavar}`"
    while get_origin(kind) is not Literal and get_args(kind):
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if kind is bool:
        return ""
    named = {str: "text", int: "integer", float: "number", Path: "file"}.get(kind, kind.__name__)
    lowest, highest = info.min, info.max
    if lowest is not None and highest is not None:
        return f"{named} from {lowest:g} to {highest:g}"
    return f"{named} from {lowest:g}" if lowest is not None else named


def description(parameter: inspect.Parameter, info: ArgumentInfo | OptionInfo) -> str:
    """The help of an option, its default and its variable."""
    help_text = (info.help or "").replace("|", "\\|")
    variable = f" Variable: `{info.envvar}`." if info.envvar else ""
    default = parameter.default
    default_text = "" if default in (None, False, inspect.Parameter.empty) else f" Default: `{default}`."
    return f"{help_text}{default_text}{variable}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(manual())
