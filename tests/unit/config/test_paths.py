"""Where data and sockets are: names that two releases share, and the data directory of a checkout."""

from __future__ import annotations

from pathlib import Path

from config.files.paths import RunDir, default_data_dir
from tests.kit.folders import ROOT


def test_in_a_checkout_the_data_are_beside_the_source() -> None:
    assert (ROOT / "pyproject.toml").is_file()
    assert default_data_dir() == ROOT / "data"


def test_names_in_the_run_directory_stay_since_an_upgrade_joins_two_releases() -> None:
    run = RunDir(Path("/run/x"))
    assert run.mailbox == "ipc:///run/x/mailbox"
    assert run.events_in == "ipc:///run/x/events.in"
    assert run.events_out == "ipc:///run/x/events.out"
    assert run.records == "ipc:///run/x/records"
