"""Options and help of `serve`, `check-config` and `config show`; what they do is loaded when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.commands import RUN, FlagsCommand, add_group, guarded, local_command
from api.cli.local.upkeep import DATA_OPTIONS
from api.cli.options import flag
from api.cli.terminal.output import Output
from api.cli.terminal.setting_sources import CHANGED
from config.settings.env import ENV_PREFIX

_CHECK = {
    **DATA_OPTIONS,
    "probe": flag("--probe", "Also try whether ports are free and the upstreams of proxies can be reached."),
}


def add_commands(app: typer.Typer) -> None:
    """Add `serve`, the only command that knows of its context, and has no output as JSON; and the others."""
    app.command("serve", cls=FlagsCommand, rich_help_panel=RUN)(serve)
    local_command(app, "check-config", _CHECK, rich_help_panel=RUN)(check_config)
    group = typer.Typer(help="The configuration as a whole.", no_args_is_help=True)
    local_command(group, "show", {**DATA_OPTIONS, "changed": CHANGED})(show_config)
    add_group(app, "config", group, RUN)


def serve(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option("--config", envvar=f"{ENV_PREFIX}CONFIG", help="A TOML file.")] = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="The directory of all lasting data.")] = None,
    run_dir: Annotated[Path | None, typer.Option("--run-dir", help="Sockets and locks; a short path.")] = None,
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Where the management API listens: address.")] = None,
    port: Annotated[int | None, typer.Option(help="Where the management API listens: port.")] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning, error or critical.")
    ] = None,
    lab: Annotated[
        bool, typer.Option("--lab", help="Run an origin on loopback to try proxies with, and let them reach loopback.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only say whether it would start, whatever runs now.")] = False,
) -> None:
    """Run the product in the foreground until SIGTERM or Ctrl-C."""
    given = {
        "data_dir": data_dir,
        "run_dir": run_dir,
        "server": _given({"host": host, "port": port}),
        "logging": _given({"level": log_level}),
    }

    def start() -> None:
        from api.cli.local.serve import check_or_serve

        check_or_serve(config, _given(given), context.obj, lab, check)

    guarded(Output(), start)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that the command line has."""
    return {name: value for name, value in options.items() if value is not None and value != {}}


def check_config(out: Output, **given: Any) -> None:
    """Print all errors of the configuration with file and line, and the keys that the API overrides.

    Checks certificates, also those of stored proxies. Ends with 1 if the product or a proxy could not start.
    """
    from api.cli.local import check

    check.check_config(out, **given)


def show_config(out: Output, **given: Any) -> None:
    """Show the whole configuration with the source of each value: a line of the file, a variable, the API.

    CHANGE is what a change needs: at once (proxyfleet settings set), reload or restart. Secrets are masked. Options of
    a running `serve` are not included.
    """
    from api.cli.local import check

    check.show_config(out, **given)
