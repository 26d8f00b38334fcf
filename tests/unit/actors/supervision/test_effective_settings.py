"""Which settings are in force: the configuration, over it what was set through the API; what waits for a restart."""

from __future__ import annotations

import json

import pytest
from pydantic import SecretStr

from actors.supervision.settings_updates import EffectiveSettings
from config.settings import loading
from config.settings.groups import Logging, OAuth2, Otlp, Telemetry
from config.settings.loading import Configured, EffectiveValue, Origins, SettingOrigin
from config.settings.runtime import InvalidOverride, shadowed_keys
from config.settings.settings import Auth, Jwt, MetricsSettings, ProxyGroup, Server, Settings

PORT, TTL = ("server", "port"), ("auth", "jwt", "access_token_ttl")


def test_what_was_set_through_the_api_wins_before_and_after_the_file_is_read_again() -> None:
    force = EffectiveSettings.of(Settings(logging=Logging(level="info")), {"logging": {"level": "debug"}})
    assert force.now.logging == Logging(level="debug")
    assert force.reread(Settings(logging=Logging(level="error", format="json"))) == []
    assert force.now.logging == Logging(level="debug", format="json")
    force.put({})
    assert force.now.logging == Logging(level="error", format="json")


def test_a_new_address_in_the_file_waits_for_a_restart_and_is_not_shown_before() -> None:
    force = EffectiveSettings.of(Settings(server=Server(port=1001)), {})
    assert force.reread(Settings(server=Server(port=1002, drain_timeout=3))) == ["server.port"]
    assert (force.now.server.port, force.now.server.drain_timeout) == (1001, 3)
    assert force.preview({"logging": {"level": "debug"}}).server.port == 1001


def test_a_session_timeout_of_the_api_wins_over_both_keys_of_the_file() -> None:
    force = EffectiveSettings.of(Settings(auth=Auth(session_timeout=10, jwt=Jwt(access_token_ttl=20))), {})
    assert force.now.auth.access_token_ttl == 20
    force.put({"auth": {"session_timeout": 30}})
    assert force.now.auth.access_token_ttl == 30


def test_keys_that_the_configuration_says_otherwise_are_named() -> None:
    stored = {"server": {"port": 1002, "max_connections": 1000}}
    (sentence,) = shadowed_keys(Settings(server=Server(port=1001)), stored)
    assert sentence == "server.port is 1002 as set through the API; the configuration says 1001"


def test_what_waits_for_a_restart_is_described_beside_what_is_effective() -> None:
    before, after = (Origins({PORT: SettingOrigin("file", f"f:{line}")}) for line in (1, 2))
    force = EffectiveSettings.of(Settings(server=Server(port=1001)), {}, before)
    force.reread(Settings(server=Server(port=1002)), after)
    row = described(force, "server.port")
    assert (row.value, row.source, row.place, row.waits) == (1001, "file", "f:1", True)
    assert row.configured == Configured(1002, "file", "f:2")
    force.reread(Settings(server=Server(port=1001)), after)
    assert (described(force, "server.port").waits, described(force, "server.port").configured) == (False, None)


def test_an_override_is_described_with_what_it_hides() -> None:
    settings = Settings(auth=Auth(session_timeout=10, jwt=Jwt(access_token_ttl=20)))
    force = EffectiveSettings.of(settings, {}, Origins({TTL: SettingOrigin("environment", "X")}))
    row = described(force, "auth.session_timeout")
    assert (row.value, row.source, row.place, row.configured) == (20, "environment", "X", None)
    force.put({"auth": {"session_timeout": 30}})
    row = described(force, "auth.session_timeout")
    assert (row.value, row.source, row.place) == (30, "api", None)
    assert row.configured == Configured(20, "environment", "X")
    assert described(force, "auth.jwt.access_token_ttl").source == "api"


def test_no_description_has_a_secret() -> None:
    hidden = SecretStr("sesame-sesame-sesame")
    settings = Settings(
        admin_password=hidden,
        metrics=MetricsSettings(prometheus_token=hidden),
        auth=Auth(oauth2=OAuth2(client_secret=hidden)),
        proxy=ProxyGroup(test_url="https://alice:sesame@example.com/"),
        telemetry=Telemetry(otlp=Otlp(headers={"key": hidden})),
    )
    rows = [each.plain() for each in loading.described(loading.Reading(settings), {}, settings)]
    assert "sesame" not in json.dumps(rows)
    assert "https://***@example.com/" in json.dumps(rows)


def described(force: EffectiveSettings, key: str) -> EffectiveValue:
    (row,) = [each for each in force.described() if each.key == key]
    return row


def test_what_is_no_good_any_more_changes_nothing() -> None:
    force = EffectiveSettings.of(Settings(), {})
    with pytest.raises(InvalidOverride):
        force.put({"server": {"port": "no"}})
    assert (force.stored, force.now.server.port) == ({}, 8080)
