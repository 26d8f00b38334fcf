"""One proxy for all tests of a module, as new for each of them, and what others need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from actors.bus.messages.specs import LimitsSpec
from tests.actor.forwarding.shared_accounts import AccountsTable
from tests.kit.certificates import make_pair
from tests.kit.forwarding_rig import Rig


@pytest.fixture(scope="module")
def shared() -> Iterator[Rig]:
    with Rig() as rig:
        yield rig


@pytest.fixture(scope="module")
def five() -> Iterator[Rig]:
    with Rig(protocol="socks5") as rig:
        yield rig


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The files of a certificate and its key."""
    return make_pair(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def written(rig: Rig) -> Iterator[AccountsTable]:
    """Accounts of the fleet beside the rig of a module, which lasts as long."""
    table = AccountsTable(rig)
    yield table
    table.close()


@pytest.fixture
def rig(shared: Rig) -> Rig:
    """Without accounts and limits of the test before."""
    shared.configure(accounts=(), auth_required=False, limits=LimitsSpec(), timeout=30.0)
    shared.records.clear()
    return shared
