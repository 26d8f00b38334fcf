"""`proxyfleet check-config`: all errors of the configuration at once, before the product is started."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.errors import CommandError
from api.cli.local.offline import ConfigOption, DataOption, refuse_newer, settings_of, translated
from api.cli.terminal.output import Output, counted

if TYPE_CHECKING:
    from api.cli.local.probes import Finding
    from config.files.paths import DataDir
    from config.model.proxies import ProxyRecord
    from config.settings.settings import Places, Settings

ProbeOption = Annotated[
    bool, typer.Option("--probe", help="Also try whether ports are free and the upstreams of proxies can be reached.")
]


def check_config(
    out: Output, config: ConfigOption = None, data_dir: DataOption = None, probe: ProbeOption = False
) -> None:
    """Print all errors of the configuration with file and line, and the keys that the API overrides.

    Checks certificates, also those of stored proxies. Ends with 1 if the product or a proxy could not start.
    """
    from actors.supervision.effective_settings import shadowed_keys, with_overrides
    from api.operator.offline import peek_proxies, peek_settings
    from config.files.paths import DataDir, default_data_dir
    from config.settings.runtime import InvalidOverride
    from config.settings.settings import Places

    settings = settings_of(config, {"data_dir": data_dir} if data_dir else {})
    data = DataDir(settings.data_dir or default_data_dir())
    if os.access(data.path, os.R_OK | os.X_OK):  # else another user checks the file alone
        refuse_newer(data.path)
    stored = translated(ValueError, lambda: peek_settings(data))
    effective = translated(InvalidOverride, lambda: with_overrides(settings, stored))
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
    data_of_it: dict[str, Any] = {"good": True, "notes": notes, "looked_at": [finding.where for finding in findings]}
    out.data(data_of_it, lambda: _view(out, notes, data_of_it["looked_at"]))


def _view(out: Output, notes: list[str], looked_at: list[str]) -> None:
    out.message(f"The configuration is valid. Checked: {'; '.join(looked_at)}.")
    for sentence in notes:
        out.message(f"note: {sentence}")


def _findings(settings: Settings, proxies: list[ProxyRecord], data: DataDir, probe: bool) -> Iterator[Finding]:
    from api.cli.local import probes
    from api.operator.offline import has_users

    yield from probes.data_directory(data)
    yield from probes.first_password(settings, not has_users(data))
    yield from probes.certificates(settings, proxies)
    if not probe:
        return
    holder = _holder(data)
    if holder is None:
        yield from probes.ports(settings, proxies)
    else:
        yield probes.Finding("ports", f"not tried: the product runs as process {holder} and has them", "note")
    yield from probes.upstreams(proxies)


def _placed(where: str, places: Places, stored: Mapping[str, Any]) -> str:
    """A key preceded by file and line or variable, unless the API overrides it."""
    group, _, key = where.partition(".")
    if " " in where or key in stored.get(group, {}):
        return where
    return f"{places.of(tuple(where.split('.')))}{where}"


def _holder(data: DataDir) -> int | None:
    """The process that runs the product on this data; None if none does."""
    from actors.supervision.locks import holder

    return holder(data.lock)
