"""Fixtures of the API's tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.api_settings import ApiSettings
from api.cluster import roles
from api.import_export import document
from api.oauth import transport
from config import passwords
from config.settings.settings import Auth
from tests.kit.api_stage import QUIET, Api
from tests.kit.fake_provider import FakeProvider, Make
from tests.kit.ledgers import EACH, ledger_of_test, ledgers_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    path = metafunc.definition.nodeid.partition("::")[0]
    names = ledgers_of(path, metafunc.config.getoption("--ledger"))
    if names != ["embedded"] and metafunc.definition.get_closest_marker("embedded") is None:
        metafunc.parametrize("_ledger", [EACH[name] for name in names], indirect=True)


@pytest.fixture(autouse=True)
def _ledger(request: pytest.FixtureRequest) -> Iterator[None]:
    """See `tests.kit.ledgers`."""
    with ledger_of_test(getattr(request, "param", "embedded")):
        yield


@pytest.fixture(autouse=True)
def _cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """bcrypt at its lowest cost: what is tested here is who may, not how dear it is to guess."""
    monkeypatch.setattr(passwords.hash_password, "__defaults__", (4,))


@pytest.fixture(autouse=True, scope="module")
def _cheap_keys() -> Iterator[None]:
    """Keys of sealed secrets, and of passwords of roles, are derived at the lowest cost; documents state the usual one.

    Not for longer than a module: other tests of the process send what they seal to the product.
    """
    with pytest.MonkeyPatch.context() as patch:
        derive = document._key
        patch.setattr(document, "_key", lambda passphrase, salt, _cost: derive(passphrase, salt, 2))
        patch.setattr(roles.verifier, "__defaults__", (1,))
        yield


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    yield made
    made.close()


@pytest.fixture
def headers(api: Api) -> dict[str, str]:
    """Of the administrator."""
    return api.token()


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProvider]:
    """It has time to respond: on a busy machine its thread may have to wait for seconds."""
    for name in ("SILENCE", "DEADLINE"):
        monkeypatch.setattr(transport, name, 120.0)
    made = FakeProvider()
    yield made
    made.close()


@pytest.fixture
def make(provider: FakeProvider) -> Iterator[Make]:
    """An API that trusts the provider, with settings of one's own."""
    made: list[Api] = []

    def start(**settings: Any) -> Api:
        made.append(Api(ApiSettings(auth=Auth(oauth2=provider.settings(**settings)), security=QUIET)))
        return made[-1]

    yield start
    for each in made:
        each.close()
