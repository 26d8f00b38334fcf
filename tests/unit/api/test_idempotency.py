"""A repeated POST: executed once, with the same response, and never for another caller."""

from __future__ import annotations

import threading
import time
from typing import Any

from falcon.testing import Result

from api.call import Reply
from api.http.idempotency import RETENTION, Idempotency
from config.files.secret_box import secret_box_of
from tests.kit.api_stage import PASSWORD, PROXY, Api, error_of
from tests.kit.tables import table

KEY = {"Idempotency-Key": "4f0c-1"}


def create(api: Api, headers: dict[str, str], **fields: Any) -> Result:
    return api.post("/proxies", {**PROXY, **fields}, {**headers, **KEY})


def test_the_same_request_is_executed_once_and_has_the_same_response(api: Api) -> None:
    first, second = create(api, api.token()), create(api, api.token())
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json == second.json
    assert second.headers["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first.headers
    for name in ("ETag", "Location"):
        assert first.headers[name] == second.headers[name]
    assert first.headers["X-Request-Id"] != second.headers["X-Request-Id"]
    assert len(api.store.find("proxies")) == 1
    assert api.services.audit.head.seq == 1


def test_it_is_remembered_after_a_restart_and_forgotten_after_a_day(api: Api) -> None:
    first = create(api, api.token())
    api.start()
    assert create(api, api.token()).json == first.json
    api.services.idempotency._clock = lambda: time.time() + RETENTION + 1
    assert error_of(create(api, api.token()))[2]["field"] == "name"


def test_another_request_with_the_same_key_is_refused(api: Api) -> None:
    create(api, api.token())
    for response in (create(api, api.token(), port=3129), api.post("/users", _USER, {**api.token(), **KEY})):
        status, code, details = error_of(response)
        assert (status, code, details["field"]) == (400, "INVALID_REQUEST", "Idempotency-Key")
    assert len(api.store.find("proxies")) == 1


_USER = {"username": "eva", "password": PASSWORD}


def test_a_key_belongs_to_its_caller(api: Api) -> None:
    api.add_user("bob", role="administrator")
    first = create(api, api.token())
    other = create(api, api.token("bob"), name="other", port=3129)
    assert (first.status_code, other.status_code) == (201, 201)


@table("key", ["", "a b", "ä", "x" * 256])
def test_a_key_that_is_none_is_refused(api: Api, key: str) -> None:
    response = api.post("/proxies", PROXY, {**api.token(), "Idempotency-Key": key})
    assert error_of(response)[2]["field"] == "Idempotency-Key"


def test_what_failed_is_tried_again(api: Api) -> None:
    api.fleet.bound["127.0.0.1", 3128] = "someuser"
    assert create(api, api.token()).status_code == 400
    api.fleet.bound.clear()
    assert create(api, api.token()).status_code == 201


def test_a_caller_who_lost_the_permission_gets_no_earlier_response(api: Api) -> None:
    eva = api.add_user("eva", role="operator")
    assert create(api, api.token("eva")).status_code == 201
    api.patch(f"/users/{eva.id}", {"role": "user"}, api.token())
    assert create(api, api.token("eva")).status_code == 403


def test_a_response_with_a_secret_is_repeated_but_stored_nowhere_in_the_clear(api: Api) -> None:
    body = {"name": "deploy"}
    first = api.post("/api-keys", body, {**api.token(), **KEY})
    again = api.post("/api-keys", body, {**api.token(), **KEY})
    key = first.json["data"]["key"]
    assert again.json["data"]["key"] == key
    assert again.headers["Cache-Control"] == "no-store"
    files = list(api.data.idempotency.iterdir())
    assert all(key.encode() not in file.read_bytes() for file in files)
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_signing_in_makes_new_tokens_whatever_the_key(api: Api) -> None:
    body = {"username": "admin", "password": PASSWORD}
    first, second = (api.post("/auth/login", body, KEY).json["data"]["access_token"] for _ in range(2))
    assert first != second


def test_of_many_at_once_one_is_executed_and_all_get_its_response(api: Api) -> None:
    kept = Idempotency(api.data, secret_box_of(api.data))
    done: list[int] = []
    responses: list[Any] = []
    gate = threading.Barrier(8)

    def execute() -> Reply:
        done.append(1)
        return Reply({"number": len(done)})

    def send() -> None:
        gate.wait()
        responses.append(kept.once("usr_1", "k", ["request"], execute))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [1]
    first = Reply({"number": 1})
    assert sorted(responses, key=lambda each: isinstance(each, dict)) == [first] + [first.plain()] * 7
    assert kept._turns == {}
    kept.close()


def test_a_request_whose_response_can_not_be_read_any_more_is_executed(api: Api) -> None:
    kept = Idempotency(api.data, secret_box_of(api.data))
    kept.once("usr_1", "k", [], lambda: Reply({"number": 1}))
    (api.data.keys / "secrets.key").write_text("00" * 32)
    other = Idempotency(api.data, secret_box_of(api.data))
    assert other.once("usr_1", "k", [], lambda: Reply({"number": 2})) == Reply({"number": 2})
    kept.close()
    other.close()
