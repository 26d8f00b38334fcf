"""Another password and disabling end all sign-ins of a user, also those that began at a node that was cut off."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.kit.api_stage import PASSWORD
from tests.kit.gated_relay import REFUSE, GatedRelay
from tests.kit.postgresql import database, needs_postgresql, shared_server
from tests.kit.wait import wait_until
from tests.unit.api.cluster.node_api import FollowingApi, following

pytestmark = needs_postgresql

OTHER = "another good password"


class Cut:
    """Two nodes, one of which can be cut off."""

    def __init__(self, relay: GatedRelay, nodes: list[FollowingApi]) -> None:
        self.relay, (self.one, self.cut_off) = relay, nodes

    def part(self) -> None:
        self.relay.gates["*"] = REFUSE
        self.relay.cut()
        wait_until(lambda: not self.cut_off.node.database.is_available, "the outage is known", 20)

    def change_password(self) -> None:
        headers = {"Authorization": f"Bearer {self.one.login()['access_token']}"}
        body = {"password": OTHER, "current_password": PASSWORD}
        assert self.one.patch(f"/users/{self.one.admin.id}", body, headers).status_code == 200

    def return_(self) -> float:
        """When the database can be reached again."""
        self.relay.gates.clear()
        wait_until(lambda: self.cut_off.node.database.is_available, "it is back", 20)
        return time.monotonic()


@pytest.fixture
def cut() -> Iterator[Cut]:
    port = shared_server().port
    with GatedRelay(port) as relay, database() as dsn:
        through = dsn.replace(f"port={port}", f"port={relay.port}") + " sslmode=disable gssencmode=disable"
        with following(dsn, through) as nodes:
            nodes[0].login()  # which makes the key of tokens
            nodes[1].engine.catch_up()
            yield Cut(relay, nodes)


def test_a_sign_in_of_an_outage_ends_when_its_password_was_changed_at_another_node(cut: Cut) -> None:
    cut.part()
    before, after = cut.cut_off.login(), cut.cut_off.login()
    cut.change_password()
    goes_on = cut.one.login(OTHER)
    assert cut.cut_off.refresh(after) == 200, "this node can not know"
    since = cut.return_()
    wait_until(lambda: cut.cut_off.post("/auth/login", {"username": "admin", "password": PASSWORD}).status_code == 401,
               "the password is known", 2)  # fmt: skip
    assert [node.refresh(before) for node in (cut.cut_off, cut.one)] == [401, 401]
    assert time.monotonic() - since < 2
    assert cut.cut_off.refresh(goes_on) == 200


def test_one_that_its_node_has_sent_and_not_ended_is_refused_and_ended_at_any_other(cut: Cut) -> None:
    """The node that made it may be gone for good."""
    tokens = cut.cut_off.login()
    known = cut.cut_off.engine.find("refresh_families")
    cut.part()
    cut.change_password()
    (family,) = [each for each in known if tokens["refresh_token"].startswith(f"rt_{each.id}_")]
    late = {**family.body, "id": "e" * 24}
    cut.one.engine.put("refresh_families", late)
    token = tokens["refresh_token"].replace(family.id, late["id"])
    assert cut.one.services.sessions.lives(cut.one.admin.id, late["id"]) is False
    assert cut.one.post("/auth/refresh", {"refresh_token": token}).status_code == 401
    assert cut.one.engine.get("refresh_families", late["id"]) is None


def test_a_sign_in_of_an_outage_ends_when_its_user_was_disabled_meanwhile_and_is_active_again(cut: Cut) -> None:
    token = cut.one.token()
    eva = cut.one.post("/users", {"username": "eva", "password": PASSWORD}, token).json["data"]["user"]["id"]
    cut.cut_off.engine.catch_up()
    cut.part()
    tokens = cut.cut_off.login(username="eva")
    for status in ("disabled", "active"):
        assert cut.one.patch(f"/users/{eva}", {"status": status}, token).status_code == 200
    goes_on = cut.one.login(username="eva")
    number = cut.one.engine.file.last_number
    cut.return_()
    wait_until(lambda: cut.cut_off.engine.file.last_number >= number, "what was changed is known", 5)
    assert [node.refresh(tokens) for node in (cut.cut_off, cut.one)] == [401, 401]
    assert cut.cut_off.refresh(goes_on) == 200
