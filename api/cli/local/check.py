"""`proxyfleet check-config`: all errors of the configuration at once, before the product is started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.commands import RUN, local_command
from api.cli.errors import CommandError
from api.cli.local.offline import ConfigOption, DataOption, peek, translated
from api.cli.terminal.output import Output, counted

if TYPE_CHECKING:
    from api.cli.local.probes import Finding
    from config.files.paths import DataDir
    from config.model.proxies import ProxyRecord
    from config.settings.loading import Places
    from config.settings.settings import Settings

ProbeOption = Annotated[
    bool, typer.Option("--probe", help="Also try whether ports are free and the upstreams of proxies can be reached.")
]


def add_commands(app: typer.Typer) -> None:
    """Add the command to `app`."""
    local_command(app, "check-config", rich_help_panel=RUN)(check_config)


def check_config(
    out: Output, config: ConfigOption = None, data_dir: DataOption = None, probe: ProbeOption = False
) -> None:
    """Print all errors of the configuration with file and line, and the keys that the API overrides.

    Checks certificates, also those of stored proxies. Ends with 1 if the product or a proxy could not start.
    """
    from actors.supervision.effective_settings import shadowed_keys
    from api.operator.offline import peek_proxies
    from config.settings.loading import Places

    settings, data, stored, effective = peek(config, data_dir)
    proxies = translated(ValueError, lambda: peek_proxies(data))
    findings = list(_findings(effective, proxies, data, probe))
    bad = [finding for finding in findings if finding.bad]
    notes = shadowed_keys(settings, stored) + [
        f"{one.where}: {one.error}" for one in findings if one.error and not one.bad
    ]
    if bad:
        places = Places(config, {})
        problems = tuple((_placed(finding.where, places, stored), str(finding.error)) for finding in bad)
        raise CommandError(
            f"The configuration is well-formed, but {counted(len(bad), 'thing')} would fail", problems=problems
        )
    checked = [finding.where for finding in findings]
    out.data({"good": True, "notes": notes, "looked_at": checked}, lambda: _print(out, notes, checked))


def _print(out: Output, notes: list[str], checked: list[str]) -> None:
    out.message(f"The configuration is valid. Checked: {'; '.join(checked)}.")
    for sentence in notes:
        out.message(f"note: {sentence}")


def _findings(settings: Settings, proxies: list[ProxyRecord], data: DataDir, probe: bool) -> Iterator[Finding]:
    from actors.supervision.locks import holder
    from api.cli.local import probes
    from api.operator.offline import has_users

    yield from probes.data_directory(data)
    yield from probes.accounts(data)
    yield from probes.first_password(settings, not has_users(data))
    yield from probes.certificates(settings, proxies)
    yield probes.descriptors(proxies)
    if not probe:
        return
    process = holder(data.lock)
    if process is None:
        yield from probes.ports(settings, proxies)
    else:
        yield probes.Finding("ports", f"not tried: the product runs as process {process} and has them", "note")
    yield from probes.upstreams(proxies)


def _placed(where: str, places: Places, stored: Mapping[str, Any]) -> str:
    """A key preceded by file and line or variable, unless the API overrides it."""
    group, _, key = where.partition(".")
    if " " in where or key in stored.get(group, {}):
        return where
    return f"{places.of(tuple(where.split('.')))}{where}"
