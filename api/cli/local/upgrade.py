"""`proxyfleet upgrade`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.commands import RUN, local_command
from api.cli.local.offline import ConfigOption, DataOption, settings_of, translated
from api.cli.terminal.output import Output

RunOption = Annotated[Path | None, typer.Option("--run-dir", help="The product's directory of sockets and locks.")]


def add_commands(app: typer.Typer) -> None:
    """Add the command to `app`."""
    local_command(app, "upgrade", rich_help_panel=RUN)(upgrade)


def upgrade(
    out: Output,
    config: ConfigOption = None,
    data_dir: DataOption = None,
    run_dir: RunOption = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for the new program.")] = 120.0,
) -> None:
    """Replace the running product by the installed release, without refusing a connection; open ones drain."""
    from api.operator.upgrade import NotUpgraded  # only this command needs it
    from api.operator.upgrade import upgrade as upgrade_running

    given: dict[str, Any] = {"data_dir": data_dir, "run_dir": run_dir}
    settings = settings_of(config, {name: value for name, value in given.items() if value is not None})
    before, after = translated(NotUpgraded, lambda: upgrade_running(settings, timeout))
    text = (
        f"Upgraded from {before} to {after}; older connections drain for up to {settings.server.upgrade_drain:g} s, "
        "proxyfleet status counts them."
    )
    out.done({"before": before, "after": after}, text)
