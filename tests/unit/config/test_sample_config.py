"""docs/proxyfleet.toml has each key with its default, below what it means."""

from __future__ import annotations

import re
from pathlib import Path

from config.settings.loading import load
from tests.kit.folders import ROOT

FILE = ROOT / "docs" / "proxyfleet.toml"
KEY = re.compile(r"^#[a-z0-9_]+ =")


def test_above_each_key_stands_what_it_means() -> None:
    lines = FILE.read_text().splitlines()
    explained = False
    for line in lines:
        if KEY.match(line):
            assert explained, line
        else:
            explained = line.startswith("# ")


def test_with_all_its_defaults_in_force_the_configuration_is_that_without_a_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    text = re.sub(r"^#(?=[a-z0-9_]+ = +[^ #])", "", FILE.read_text(), flags=re.MULTILINE)
    file.write_text(text)
    assert "\nport = 8080\n" in text
    assert load(file, {}).model_dump() == load(None, {}).model_dump()
