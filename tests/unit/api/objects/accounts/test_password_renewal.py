"""Hashes from elsewhere are replaced when the right password comes: here or at a proxy."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any

import bcrypt
import pytest

from actors.bus.messages.accounts import RenewPassword
from actors.bus.messages.common import Done, Failed
from api.api_settings import ApiSettings
from api.objects.accounts.password_renewal import PasswordRenewalHandler
from api.store import LedgerError, StoreError, StoreWriteError
from config.model.fleet_accounts import FleetAccount, FleetAccountCreate, FleetAccountUpdate
from config.passwords import COST, hash_password, is_foreign
from config.settings.settings import AccountSettings
from tests.kit.api_stage import INTRANET, QUIET, Api
from tests.kit.tables import table
from tests.unit.api.audit_reader import rows
from tests.unit.api.holding import sign_in

WORD = "a long enough word"
OURS = hash_password(WORD)


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api(ApiSettings(security=QUIET, proxy=INTRANET, accounts=AccountSettings(self_service=True)))
    yield made
    made.close()


def imported(api: Api, name: str = "alice", cost: int = 4) -> FleetAccount:
    hashed = bcrypt.hashpw(WORD.encode(), bcrypt.gensalt(cost)).decode()
    body = FleetAccountCreate.model_validate({"username": name, "password_hash": hashed})
    return api.services.fleet_accounts.create(body).record


def stored(api: Api, account_id: str) -> FleetAccount:
    return api.services.fleet_accounts.get(account_id).record


class StandIn:
    """The loop of the API's process: calls at once."""

    def call(self, function: Callable[[], None]) -> None:
        function()


def tell(api: Api, account_id: str, previous: str, renewed: str) -> Any:
    """The reply to a message of a forwarding actor."""
    bridge: Any = StandIn()
    handler = PasswordRenewalHandler(api.services.password_renewal, bridge)
    replies: queue.Queue[Any] = queue.Queue()
    assert handler.receive(RenewPassword(account_id, previous, renewed), replies.put)
    reply = replies.get(timeout=120)
    handler.close()
    return reply


def test_the_new_hash_is_stored_by_the_system_and_is_of_the_same_password(api: Api) -> None:
    before = imported(api)
    assert before.password_hash is not None
    assert tell(api, before.id, before.password_hash, OURS) == Done()
    after = stored(api, before.id)
    assert after.password_hash == OURS
    assert after.updated_at == before.updated_at
    (entry,) = rows(api, action="account.updated")
    assert (entry["actor"]["type"], entry["operation"]) == ("system", "renew-password")
    assert OURS not in str(entry)
    assert "renewal_hash" not in api.get(f"/accounts/{before.id}", api.token()).text
    assert is_foreign(before.password_hash)


def test_it_is_no_revision_and_the_states_before_it_come_back_with_the_same_password(api: Api) -> None:
    before = imported(api)
    reader = api.services.revisions
    base = reader.newest
    api.services.fleet_accounts.update(before.id, FleetAccountUpdate(tags=["a"]), None)
    assert tell(api, before.id, before.password_hash or "", OURS) == Done()
    assert reader.newest == base + 1
    api.services.fleet_accounts.update(before.id, FleetAccountUpdate(tags=["b"]), None)
    assert reader.newest == base + 2
    (change,) = api.get(f"/revisions/{base}...{base + 2}", api.token()).json["data"]["changes"]
    assert [each["field"] for each in change["fields"]] == ["tags"]
    for query in ("with_passwords=false", "with_passwords=true"):
        done = api.post(f"/revisions/{base}/restore", None, api.token(), query_string=query).json["data"]
        assert done["not_restored"] == []
        assert (stored(api, before.id).tags, stored(api, before.id).password_hash) == ([], OURS)


@pytest.mark.parametrize(
    "renewed",
    ["plain:" + OURS, hash_password(WORD, 5), "", OURS + "x", OURS.replace("$2b$10$", "$2b$31$")],
    ids=["from elsewhere", "cheap", "empty", "too long", "too dear"],
)
def test_a_hash_that_is_none_of_our_own_is_not_stored(api: Api, renewed: str) -> None:
    before = imported(api)
    assert isinstance(tell(api, before.id, before.password_hash or "", renewed), Failed)
    assert stored(api, before.id) == before


def test_a_hash_of_our_own_and_one_that_has_changed_meanwhile_stay(api: Api) -> None:
    before = imported(api)
    previous = before.password_hash or ""
    api.services.fleet_accounts.update(before.id, FleetAccountUpdate(password="another long word"), None)
    now = stored(api, before.id).password_hash or ""
    for hashed in (previous, now):
        assert isinstance(tell(api, before.id, hashed, OURS), Failed)
    assert isinstance(tell(api, "acc_none", previous, OURS), Failed)
    assert stored(api, before.id).password_hash == now


@table(("error", "levels"), [(LedgerError("db: gone"), []), (StoreWriteError("No space left on device"), ["ERROR"])])
def test_a_hash_that_can_not_be_stored_now_is_refused_and_an_outage_of_the_database_is_no_error(
    api: Api, caplog: pytest.LogCaptureFixture, error: StoreError, levels: list[str]
) -> None:
    def fail(*_: Any) -> None:
        raise error

    caplog.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api.services.password_renewal, "renew", fail)
        assert tell(api, "acc_1", "", OURS) == Failed(str(error))
    assert [each.levelname for each in caplog.records] == levels


def test_a_sign_in_of_the_holder_renews_too_and_no_token_ends_by_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_password, "__defaults__", (COST,))
    before = imported(api)
    first = sign_in(api, password=WORD)
    after = stored(api, before.id)
    assert not is_foreign(after.password_hash or "plain:")
    assert api.get("/me", first).status_code == 200
    api.services.fleet_accounts.update(before.id, FleetAccountUpdate(password="another long word"), None)
    assert api.get("/me", first).status_code == 401


def test_a_token_from_before_the_renewal_stays(api: Api) -> None:
    before = imported(api)
    renew, api.services.password_renewal.renew = api.services.password_renewal.renew, lambda *_: False  # type: ignore[method-assign]
    token = sign_in(api, password=WORD)
    assert stored(api, before.id).password_hash == before.password_hash
    assert renew(before.id, before.password_hash or "", OURS)
    assert api.get("/me", token).status_code == 200
