"""The application with all commands."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from api.cli.commands import CONFIGURE, OTHER, RECOVER, RESOURCES, RUN, WATCH, command, local_command
from api.cli.flags import FlagsGroup
from api.cli.local import backup, check, convert, effective_settings, offline, reset_password, restore, upgrade
from api.cli.remote import (
    account_files,
    accounts,
    audit,
    connections,
    credentials,
    dns,
    history,
    import_export,
    keys,
    plans,
    proxies,
    proxy_tests,
    records,
    sessions,
    shared_objects,
    sign_in,
    system,
    top,
    usage,
    users,
    webhooks,
)
from api.cli.serve_application import new_application, version
from api.cli.terminal.output import Output
from api.cli.time_options import PERIOD


def _add_commands(app: typer.Typer) -> None:
    """Add all commands but `serve`, in the order of the help."""
    local_command(app, "check-config", rich_help_panel=RUN)(check.check_config)
    whole = typer.Typer(help="The configuration as a whole.", no_args_is_help=True)
    local_command(whole, "show")(effective_settings.show_config)
    app.add_typer(whole, name="config", cls=FlagsGroup, rich_help_panel=RUN)
    sign_in.add_commands(app)
    proxy_tests.add_commands(proxies.group)
    account_files.add_commands(accounts.group)
    for name, group in _GROUPS.items():
        app.add_typer(group, name=name, cls=FlagsGroup, rich_help_panel=RESOURCES)
    records.add_logs(app)
    system.add_commands(app)
    command(app, "top", rich_help_panel=WATCH)(top.top)
    command(app, "usage", usage.OPTIONS, rich_help_panel=WATCH)(usage.usage)
    import_export.add_commands(app)
    local_command(app, "convert", rich_help_panel=CONFIGURE)(convert.convert)
    history.add_commands(app)
    trail = typer.Typer(help="The audit trail.", no_args_is_help=True)
    command(trail, "list", PERIOD)(audit.list_audit)
    command(trail, "show")(audit.show_audit)
    local_command(trail, "verify")(offline.verify_audit)
    app.add_typer(trail, name="audit", cls=FlagsGroup, rich_help_panel=WATCH)
    local_command(app, "backup", rich_help_panel=RECOVER)(backup.backup)
    local_command(app, "restore", rich_help_panel=RECOVER)(restore.restore)
    local_command(app, "upgrade", rich_help_panel=RUN)(upgrade.upgrade)
    offline.add_commands(app)
    local_command(app, "reset-password", rich_help_panel=RECOVER)(reset_password.reset_password)
    local_command(app, "completion", rich_help_panel=OTHER)(completion)
    local_command(app, "version", rich_help_panel=OTHER)(version)


_GROUPS = {
    "proxies": proxies.group,
    "accounts": accounts.group,
    "plans": plans.group,
    "lists": shared_objects.lists,
    "pools": shared_objects.pools,
    "policies": shared_objects.policies,
    "credentials": credentials.group,
    "connections": connections.group,
    "dns": dns.group,
    "users": users.group,
    "sessions": sessions.group,
    "keys": keys.group,
    "webhooks": webhooks.group,
    "settings": system.settings_group,
}


def completion(
    out: Output, shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Your shell.")] = "bash"
) -> None:
    """Print the completion for a shell. For bash: eval "$(proxyfleet completion bash)" in ~/.bashrc."""
    from api.cli.terminal.completion import script_of

    script = script_of(shell)
    out.data({"shell": shell, "script": script}, lambda: out.line(script))


app = new_application()
_add_commands(app)
