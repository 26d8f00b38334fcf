"""`proxyfleet config show`: every key with its value, the source of it, and what a change needs."""

from __future__ import annotations

from typing import Any

import typer

from api.cli.commands import RUN, add_group, local_command
from api.cli.local.offline import ConfigOption, DataOption, peek, translated
from api.cli.terminal.output import Output
from api.cli.terminal.setting_sources import ChangedOption, print_sources, source_text


def add_commands(app: typer.Typer) -> None:
    """Add the group `config` to `app`."""
    group = typer.Typer(help="The configuration as a whole.", no_args_is_help=True)
    local_command(group, "show")(show_config)
    add_group(app, "config", group, RUN)


def show_config(
    out: Output, config: ConfigOption = None, data_dir: DataOption = None, changed: ChangedOption = False
) -> None:
    """Show the whole configuration with the source of each value: a line of the file, a variable, the API.

    CHANGE is what a change needs: at once (proxyfleet settings set), reload or restart. Secrets are masked. Options of
    a running `serve` are not included.
    """
    from config.settings.settings import ConfigError
    from config.settings.sources import Origins, Reading, described

    settings, _data, stored, effective = peek(config, data_dir)
    overrides: dict[str, Any] = {"data_dir": data_dir} if data_dir else {}
    origins = translated(ConfigError, lambda: Origins.read(config, overrides))
    found = [each.plain() for each in described(Reading(settings, origins), stored, effective)]
    print_sources(out, "config", [{**each, "source": source_text(each)} for each in found], changed)
