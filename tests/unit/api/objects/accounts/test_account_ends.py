"""The event `account.expired`: once for each end of an account, whatever happens to the API in between."""

from __future__ import annotations

import time
from typing import Any

import pytest

from api.objects.accounts.credential_service import EXPIRED, AccountEnds, ExpiredAccounts
from api.store import StoreWriteError
from config.text.formatting import timestamp_text
from tests.kit.api_stage import Api
from tests.kit.wait import wait_until


def made(api: Api, username: str, end: float | None) -> str:
    expires_at = None if end is None else timestamp_text(end)
    response = api.post("/accounts", {"username": username, "expires_at": expires_at}, api.token())
    assert response.status_code == 201, response.text
    return str(response.json["data"]["account"]["id"])


def changed(api: Api, account_id: str, **fields: Any) -> None:
    assert api.patch(f"/accounts/{account_id}", fields, api.token()).status_code == 200


def announced(api: Api) -> list[tuple[str, str]]:
    """Names and event ids since the last call."""
    found = [(each.data["username"], each.id) for each in api.fleet.events if each.type == EXPIRED]
    api.fleet.events.clear()
    return found


def ends_at(api: Api, moment: float) -> AccountEnds:
    """As after a start of the API, at this time."""
    return AccountEnds(api.services.account_store, api.services.bridge, lambda: moment)


def names(api: Api) -> list[str]:
    return [username for username, _ in announced(api)]


def test_an_end_is_announced_once_also_after_a_restart(api: Api) -> None:
    soon = time.time() + 1000
    first = made(api, "ada", soon)
    made(api, "bob", soon + 50)
    made(api, "eve", None)
    ends = ends_at(api, soon - 1)
    assert (ends.announce(), names(api)) == (0, [])
    ends = ends_at(api, soon + 1)
    assert ends.announce() == 1
    assert api.fleet.published(EXPIRED) == [
        {"account_id": first, "username": "ada", "expires_at": timestamp_text(soon)},
    ]
    announced(api)
    ends.settle()
    assert (ends.announce(), ends_at(api, soon + 49).announce(), names(api)) == (0, 0, [])
    changed(api, first, tags=["late"], enabled=False)
    assert (ends_at(api, soon + 100).announce(), names(api)) == (1, ["bob"])


def test_an_end_that_was_moved_is_another_end(api: Api) -> None:
    soon = time.time() + 1000
    account = made(api, "ada", soon)
    gone = made(api, "bob", soon)
    changed(api, account, expires_at=timestamp_text(soon + 500))
    api.request("DELETE", f"/accounts/{gone}", api.token())
    ends = ends_at(api, soon + 400)
    assert ends.announce() == 0
    ends = ends_at(api, soon + 501)
    assert ends.announce() == 1
    ends.settle()
    changed(api, account, expires_at=timestamp_text(soon + 600))
    announced(api)
    assert (ends_at(api, soon + 599).announce(), ends_at(api, soon + 601).announce(), names(api)) == (0, 1, ["ada"])
    changed(api, account, expires_at=None)
    assert ends_at(api, soon + 9000).announce() == 0


def test_one_that_was_published_right_before_the_api_died_keeps_its_id(api: Api) -> None:
    soon = time.time() + 1000
    made(api, "ada", soon)
    ends_at(api, soon).announce()
    ends_at(api, soon + 5).announce()
    (_, one), (_, other) = announced(api)
    assert one == other


def test_a_full_disk_publishes_nothing_twice(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    soon = time.time() + 1000
    made(api, "ada", soon)
    ends = ends_at(api, soon)
    ends.announce()
    with monkeypatch.context() as patch:
        patch.setattr(api.services.account_store, "ends_announced", _full)
        for _ in range(2):
            with pytest.raises(StoreWriteError):
                ends.announce()
    assert names(api) == ["ada"]
    assert (ends.announce(), names(api)) == (0, [])


def _full(_ends: Any) -> None:
    raise StoreWriteError("the disk is full")


def test_the_job_announces_and_marks(api: Api) -> None:
    soon = time.time() + 1000
    made(api, "ada", soon)
    job = ExpiredAccounts(ends_at(api, soon), period=0.01)
    job.start()
    store = api.services.account_store
    try:
        wait_until(lambda: not store.due_ends(soon, 1), "the end is marked")
    finally:
        job.close()
    assert names(api) == ["ada"]
