"""The configuration: where it comes from, and what is refused with the key, the value and what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from config.settings import ConfigError, load


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("PROXYFLEET_")]:
        monkeypatch.delenv(name)


def test_command_line_over_environment_over_file_over_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text("[server]\nport = 1001\nhost = '127.0.0.2'\ndrain_timeout = 3\n")
    monkeypatch.setenv("PROXYFLEET_SERVER__PORT", "1002")
    monkeypatch.setenv("PROXYFLEET_SERVER__HOST", "127.0.0.3")
    settings = load(file, {"server": {"port": 1003}})
    assert settings.server.port == 1003
    assert settings.server.host == "127.0.0.3"
    assert settings.server.drain_timeout == 3
    assert settings.server.max_connections == 1000


def test_lists_in_the_environment_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYFLEET_PROXY__EGRESS_ALLOW", '["127.0.0.0/8", "::1", "*.intra.example"]')
    assert load().proxy.egress_allow == ("127.0.0.0/8", "::1", "*.intra.example")
    monkeypatch.setenv("PROXYFLEET_PROXY__EGRESS_ALLOW", "127.0.0.0/8")
    with pytest.raises(ConfigError, match=r"PROXYFLEET_PROXY__EGRESS_ALLOW: must be a JSON list"):
        load()


def test_a_variable_of_our_prefix_that_names_no_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYFLEET_SEVER__PORT", "1")
    with pytest.raises(ConfigError, match="PROXYFLEET_SEVER__PORT: unknown key; allowed: "):
        load()


def test_variables_that_are_options_of_commands_are_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYFLEET_NEW_PASSWORD", "something long")
    load()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[server]\nport = 0", "server.port: "),
        ("[server]\nprot = 1", "server.prot: unknown key; allowed here: "),
        ("[logging]\nlevel = 'loud'", "logging.level: "),
        ("[server.tls]\nenabled = true", "server.tls: "),
        ("[proxy]\negress_allow = ['10.0.0.0/33']", "proxy.egress_allow.0: "),
        ("[proxy]\negress_allow = ['bad name']", "proxy.egress_allow.0: "),
        ("[proxy]\ntest_url = 'nonsense'", "proxy.test_url: "),
        ("[server]\ntrusted_proxies = ['x']", "server.trusted_proxies.0: "),
        ("not toml", "not TOML"),
    ],
)
def test_bad_files_are_refused_by_key(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert any(problem in each for each in caught.value.problems)


def test_all_problems_are_told_at_once() -> None:
    overrides: dict[str, Any] = {"server": {"port": 0, "nonsense": 1}, "logging": {"format": "xml"}}
    with pytest.raises(ConfigError) as caught:
        load(None, overrides)
    assert len(caught.value.problems) == 3


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        load(tmp_path / "none.toml")


def test_the_first_password_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYFLEET_ADMIN_PASSWORD", "planted-secret")
    assert "planted-secret" not in repr(load())
