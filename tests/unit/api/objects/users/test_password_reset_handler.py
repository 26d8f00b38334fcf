"""What the API does when the command line asks it for a new password of a user."""

from __future__ import annotations

import base64
import queue
from collections.abc import Callable
from typing import Any

import pytest

from actors.bus.messages.common import Done, Failed, PasswordReset, ResetPassword
from api.objects.users.password_reset import PasswordResetHandler
from api.security import users
from api.security.users import User
from api.store import StoreWriteError
from tests.kit.api_stage import PASSWORD, Api

LONG = 120.0
FRESH = "another good one"


class StandIn:
    """The loop of the API's process: calls at once."""

    def call(self, function: Callable[[], None]) -> None:
        function()


def handler(api: Api) -> PasswordResetHandler:
    services = api.services
    bridge: Any = StandIn()
    return PasswordResetHandler(services.store, services.login_throttle, services.publish, bridge)


def ask(api: Api, message: Any) -> Any:
    """The reply of the API to a message of the command line."""
    replies: queue.Queue[Any] = queue.Queue()
    assert handler(api).receive(message, replies.put)
    return replies.get(timeout=LONG)


@pytest.fixture
def ada(api: Api) -> User:
    return api.add_user("ada", role="operator")


def basic(username: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{username}:{PASSWORD}".encode()).decode()}


def sign_in(api: Api, password: str, name: str = "ada") -> int:
    return api.post("/auth/login", {"username": name, "password": password}).status_code


def test_a_reset_ends_all_sign_ins_in_one_step_lifts_locks_is_announced_and_is_on_record(api: Api, ada: User) -> None:
    token = api.token("ada")
    assert api.get("/auth/test", basic("ada")).status_code == 200
    while sign_in(api, "wrong") != 429:
        continue
    revision, families = api.store.revision, len(api.store.find("refresh_families"))
    assert ask(api, ResetPassword("ADA", FRESH)) == PasswordReset(False, FRESH)
    assert api.store.revision == revision + 1
    assert len(api.store.find("refresh_families")) == families - 1
    assert api.get("/auth/test", token).status_code == api.get("/auth/test", basic("ada")).status_code == 401
    assert (sign_in(api, PASSWORD), sign_in(api, FRESH)) == (401, 200)
    assert [each["username"] for each in api.fleet.published("user.updated")] == ["ada"]
    (row,) = api.get("/audit", api.token(), params={"action": "user.updated"}).json["data"]["audit"]
    assert (row["actor"]["type"], row["operation"]) == ("command_line", "reset-password")
    assert row["resource"]["name"] == "ada"
    assert FRESH not in str(row)


def test_without_a_password_a_random_one_is_made_and_the_first_password_of_the_administrator_is_forgotten(
    api: Api,
) -> None:
    api.data.initial_password.write_text("the first one\n")
    reply = ask(api, ResetPassword("admin"))
    assert len(reply.password) >= 20
    assert reply.password not in repr(reply)
    assert sign_in(api, reply.password, "admin") == 200
    assert not api.data.initial_password.exists()


@pytest.mark.parametrize(
    ("username", "password", "field", "error"),
    [
        ("adda", FRESH, "username", "users: ada, admin"),
        ("ada", "short", None, "8 to 128 characters"),
        ("ada", "password1", None, "tried first"),
    ],
)
def test_an_unknown_user_and_a_weak_password_are_refused_and_nothing_changes(
    api: Api, ada: User, username: str, password: str, field: str | None, error: str
) -> None:
    revision = api.store.revision
    reply = ask(api, ResetPassword(username, password))
    assert isinstance(reply, Failed)
    assert (reply.field, error in reply.error) == (field, True)
    assert api.store.revision == revision
    assert sign_in(api, PASSWORD) == 200


def test_a_store_that_can_not_write_is_reported_and_the_password_stays(
    api: Api, ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_writes: Any) -> list[int]:
        raise StoreWriteError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(api.engine.documents, "take", full)
        assert ask(api, ResetPassword("ada", FRESH)) == Failed("the disk is full")
    assert sign_in(api, PASSWORD) == 200
    assert api.fleet.published("user.updated") == []


def test_who_is_disabled_stays_so_and_the_reply_says_it(api: Api, ada: User) -> None:
    api.store.put(users.COLLECTION, ada.model_copy(update={"status": "disabled"}).model_dump(mode="json"))
    assert ask(api, ResetPassword("ada", FRESH)) == PasswordReset(True, FRESH)
    assert sign_in(api, FRESH) == 401


def test_what_is_no_message_of_the_command_line_is_left_to_others(api: Api) -> None:
    assert not handler(api).receive(Done(), lambda _reply: None)


def test_a_reset_is_published_as_the_command_lines(api: Api, ada: User) -> None:
    ask(api, ResetPassword("ada", FRESH))
    (data,) = api.fleet.published("user.updated")
    assert data["by"] == {"type": "command_line", "user_id": None, "method": None}
    assert data["changed"] == ["password"]
