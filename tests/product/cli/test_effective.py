"""`proxyfleet config show`: all of the configuration, and who has said what."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from api.cli.terminal import BY_API
from api.store import open_store
from config.files.paths import DataDir
from config.settings.settings import Settings
from tests.product.cli.shell import Shell

FILE = """
[logging]
level = "warning"
access = "errors"

[metrics]
prometheus_token = "sesame-sesame-sesame"

[telemetry.otlp]
endpoint = "http://127.0.0.1:4318"
headers = { key = "sesame" }

[security.rate_limiting]
session_per_hour = 5000
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "fleet.toml").write_text(FILE)
    return Shell(tmp_path / "home", PROXYFLEET_CONFIG=str(tmp_path / "fleet.toml"))


def test_each_value_comes_with_the_line_the_variable_or_the_api_that_said_it(shell: Shell, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(parents=True)
    body = {"id": "settings", "logging": {"level": "debug"}}
    with closing(open_store(DataDir(data))) as store:
        store.put("settings", body)
    printed = shell.good("config", "show", "--data-dir", str(data), PROXYFLEET_SERVER__PORT="8099")
    rows = {key: (value, source) for key, value, source, _change in printed.rows}
    file = tmp_path / "fleet.toml"
    assert rows["logging.level"] == ("debug", BY_API)
    assert rows["logging.access"] == ("errors", f"{file}:4")
    assert rows["server.port"] == ("8099", "PROXYFLEET_SERVER__PORT")
    assert rows["security.rate_limiting.session_per_hour"] == ("5000", f"{file}:14")
    assert rows["server.host"] == ("127.0.0.1", "default")
    assert rows["data_dir"] == (str(data), "command line")
    assert {key.partition(".")[0] for key in rows} == set(Settings.model_fields)


def test_no_secret_is_shown(shell: Shell) -> None:
    for form in ("table", "json"):
        printed = shell.good("config", "show", "-o", form, PROXYFLEET_ADMIN_PASSWORD="sesame sesame")
        assert "sesame" not in printed.out
        assert "prometheus_token" in printed.out


def test_only_what_has_no_default_is_shown_when_that_is_asked_for(shell: Shell, tmp_path: Path) -> None:
    keys = {row[0] for row in shell.good("config", "show", "--changed", "--data-dir", str(tmp_path / "none")).rows}
    assert keys == {
        "data_dir",
        "logging.level",
        "logging.access",
        "metrics.prometheus_token",
        "telemetry.otlp.endpoint",
        "telemetry.otlp.headers",
        "security.rate_limiting.session_per_hour",
    }


def test_what_systemd_has_given_is_named_a_credential(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "admin-password").write_text("open, sesame, open\n")
    printed = shell.good("config", "show", "-o", "json", CREDENTIALS_DIRECTORY=str(tmp_path))
    (row,) = [each for each in printed.data["config"] if each["key"] == "admin_password"]
    assert (row["source"], row["value"]) == ("credential", "***")


def test_what_a_change_needs_depends_on_the_key_and_on_who_has_set_it(shell: Shell) -> None:
    rows = shell.good("config", "show", PROXYFLEET_ALERTS__WINDOW="60", PROXYFLEET_AUTH='{"max_api_keys": 7}').rows
    needed = {row[0]: (row[2], row[3]) for row in rows}
    assert needed["logging.level"][1] == "at once"
    assert needed["security.rate_limiting.session_per_hour"][1] == "reload"
    assert needed["telemetry.otlp.endpoint"][1] == "restart"
    assert needed["alerts.window"] == ("PROXYFLEET_ALERTS__WINDOW", "restart")
    assert needed["auth.max_api_keys"] == ("PROXYFLEET_AUTH", "restart")
    assert needed["auth.session_timeout"] == ("default", "at once")
