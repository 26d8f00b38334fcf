"""`proxyfleet check-config`: everything that is wrong with the configuration at once, before the product is started."""

from __future__ import annotations

from api.cli.offline import ConfigOption, DataOption, settings_of, translated
from api.cli.output import Output


def check_config(out: Output, config: ConfigOption = None, data_dir: DataOption = None) -> None:
    """Say whether the configuration is good, and what is wrong with it; and what was set through the API instead."""
    from actors.supervision.in_force import hidden_keys, with_stored
    from api.offline import peek_settings
    from config.live import BadStored
    from config.paths import DataDir, default_data_dir

    settings = settings_of(config, {"data_dir": data_dir} if data_dir else {})
    stored = translated(ValueError, lambda: peek_settings(DataDir(settings.data_dir or default_data_dir())))
    translated(BadStored, lambda: with_stored(settings, stored))
    notes = hidden_keys(settings, stored)

    def view() -> None:
        out.message("The configuration is good.")
        for sentence in notes:
            out.message(f"note: {sentence}")

    out.data({"good": True, "notes": notes}, view)
