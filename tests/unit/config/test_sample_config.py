"""docs/proxyfleet.toml has every key with its default, and stays what the keys and their documentation say."""

from __future__ import annotations

import re
from pathlib import Path

from sample_config import rows, sample

from config.settings.loading import load
from tests.kit.folders import ROOT

FILE = ROOT / "docs" / "proxyfleet.toml"


def test_the_sample_is_up_to_date() -> None:
    assert FILE.read_text() == sample(), "make it anew: scripts/sample-config"


def test_every_documented_key_is_in_it() -> None:
    keys = [name.rpartition(".")[2] for names, _, _ in rows() for name in names]
    assert sorted(re.findall(r"^#([a-z0-9_]+) =", FILE.read_text(), re.MULTILINE)) == sorted(keys)


def test_a_meaning_that_begins_with_a_key_or_a_value_leaves_it_as_it_is() -> None:
    assert "\n# public_only (all addresses" in sample()
    assert "\n# Seconds that" in sample()


def test_with_all_its_defaults_in_force_the_configuration_is_that_without_a_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    text = re.sub(r"^#(?=[a-z0-9_]+ = +[^ #])", "", FILE.read_text(), flags=re.MULTILINE)
    file.write_text(text)
    assert "\nport = 8080\n" in text
    assert load(file, {}).model_dump() == load(None, {}).model_dump()
