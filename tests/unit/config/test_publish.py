"""Where live metrics may be published, and to whom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from config.settings.loading import load
from config.settings.settings import ConfigError
from tests.kit.tables import table

KEY = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
"""The public key of the example in ZeroMQ's documentation (zmq_curve)."""


def loaded(folder: Path, **keys: object) -> object:
    file = folder / "fleet.toml"
    file.write_text("[metrics]\n" + "".join(f"{name} = {value!r}\n" for name, value in keys.items()))
    return load(file).metrics


@pytest.mark.parametrize("address", ["", "tcp://127.0.0.1:5556", "tcp://127.9.9.9:0", "tcp://[::1]:5556"])
def test_a_loopback_address_and_none_need_no_key(tmp_path: Path, address: str) -> None:
    loaded(tmp_path, publish=address)


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:5556", "tcp://192.0.2.1:5556", "tcp://[::]:5556"])
def test_any_other_address_needs_the_keys_of_subscribers(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics: publish: .* needs curve_clients"):
        loaded(tmp_path, publish=address)
    loaded(tmp_path, publish=address, curve_clients=[KEY])


@table(
    "address",
    [
        "127.0.0.1:5556", "udp://127.0.0.1:1", "tcp://localhost:1", "tcp://127.0.0.1", "tcp://127.0.0.1:65536",
        "tcp://1.2.3:5", "tcp://[127.0.0.1]:5", "tcp://*:5", "tcp://127.0.0.1:५",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.publish: must be empty, or tcp://"):
        loaded(tmp_path, publish=address, curve_clients=[KEY])


@pytest.mark.parametrize("key", ["", KEY[:-1], KEY + "0", KEY[:-1] + "é", KEY[:-1] + '"', "#####" * 8, "a" * 39 + "\n"])
def test_what_is_no_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("PROXYFLEET_METRICS__CURVE_CLIENTS", json.dumps([key]))
    with pytest.raises(ConfigError, match=r"metrics\.curve_clients.*: must be a public CURVE key"):
        load()


def test_keys_come_from_the_environment_as_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYFLEET_METRICS__CURVE_CLIENTS", KEY)
    with pytest.raises(ConfigError, match="must be a JSON list"):
        load()
