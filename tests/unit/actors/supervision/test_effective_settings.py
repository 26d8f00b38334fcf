"""Which settings are in force: the configuration, over it what was set through the API; what waits for a restart."""

from __future__ import annotations

import pytest

from actors.supervision.effective_settings import EffectiveSettings, shadowed_keys
from config.settings.groups import Logging
from config.settings.runtime import InvalidOverride
from config.settings.settings import Auth, Jwt, Server, Settings


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


def test_what_is_no_good_any_more_changes_nothing() -> None:
    force = EffectiveSettings.of(Settings(), {})
    with pytest.raises(InvalidOverride):
        force.put({"server": {"port": "no"}})
    assert (force.stored, force.now.server.port) == ({}, 8080)
