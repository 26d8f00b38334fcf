"""What follows from commits: in their order, behind the locks under which they are made, of another engine, too."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from actors.bus.messages.accounts import DropAccountUsage
from actors.bus.messages.common import METRICS, WEBHOOKS, Done
from actors.bus.messages.events import SetWebhooks
from actors.bus.messages.supervision import ReplaceProxies
from api.engine.effects import CommitEffect, Effects
from api.history.document_changes import DocumentChange
from api.objects.proxies import supervisor_link
from tests.kit.api_stage import Api
from tests.kit.wait import wait_until
from tests.unit.api.creating import create

LONG = 120.0


def change(identifier: str, collection: str = "proxies") -> DocumentChange:
    return DocumentChange(collection, identifier, None, {"id": identifier})


class Made:
    """An effect that notes what it gets, and waits before it if it is to."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.begun, self.free = threading.Event(), threading.Event()
        self.free.set()

    def __call__(self, changes: Sequence[DocumentChange]) -> None:
        self.begun.set()
        assert self.free.wait(LONG)
        self.calls.append([each.id for each in changes])
        if "wrong" in self.calls[-1]:
            raise ValueError("wrong")


def test_an_effect_gets_its_collections_at_the_end_of_the_outermost_block() -> None:
    made, effects = Made(), Effects()
    effects.follow(CommitEffect(["proxies"], made, lambda change: change.id != "unwanted"))
    with effects.settled():
        with effects.settled():
            effects.note([change("a"), change("b", "users"), change("unwanted")])
        effects.note([change("unwanted")])
        assert made.calls == []
    assert made.calls == [["a"]]
    with suppress(KeyError), effects.settled():
        effects.note([change("c")])
        raise KeyError
    assert made.calls[1:] == [["c"]], "what is committed is committed, whatever comes after it"


def test_one_that_watches_and_fails_has_no_change_wait_for_ever() -> None:
    def made(changes: Sequence[DocumentChange]) -> None:
        if any(each.id == "wrong" for each in changes):
            raise ValueError("wrong")

    def watch(_changes: Sequence[DocumentChange], _error: Exception | None) -> None:
        raise RuntimeError

    effect = CommitEffect(["proxies"], made)
    effect.subscribe(watch)
    noted = [effect.note([change(each)]) for each in ("a", "wrong", "b")]
    effect.finish()
    assert [each is not None and each.done() for each in noted] == [True] * 3


def test_effects_are_made_in_the_order_of_commits_and_their_errors_are_those_of_who_made_them() -> None:
    made, other, effects = Made(), Made(), Effects()
    effects.follow(CommitEffect(["proxies"], made), CommitEffect(["proxies"], other))
    made.free.clear()
    done: list[str] = []

    def commit(identifier: str) -> None:
        with effects.settled():
            effects.note([change(identifier)])
        done.append(identifier)

    threads = [threading.Thread(target=commit, args=(each,)) for each in ("first", "second", "third")]
    threads[0].start()
    assert made.begun.wait(LONG)
    for number, thread in enumerate(threads[1:], 1):
        thread.start()
        wait_until(lambda number=number: len(effects._table[0]._waiting) == number, "it has committed")  # type: ignore[misc]
    assert done == []
    made.free.set()
    for thread in threads:
        thread.join(LONG)
    assert made.calls == [["first"], ["second", "third"]]
    assert sorted(done) == ["first", "second", "third"]
    with pytest.raises(ValueError, match="wrong"):
        commit("wrong")
    assert other.calls[-1] == ["wrong"], "one effect that fails keeps no other one from being made"
    commit("right")
    assert done[-1] == "right"


def test_a_change_whose_effect_fails_takes_nothing_from_others_that_waited_with_it() -> None:
    made, effects = Made(), Effects()
    effects.follow(CommitEffect(["proxies"], made))
    made.free.clear()
    outcomes: dict[str, str] = {}

    def commit(identifier: str) -> None:
        try:
            with effects.settled():
                effects.note([change(identifier)])
            outcomes[identifier] = "made"
        except ValueError as error:
            outcomes[identifier] = str(error)

    threads = [threading.Thread(target=commit, args=(each,)) for each in ("first", "before", "wrong", "behind")]
    threads[0].start()
    assert made.begun.wait(LONG)
    for number, thread in enumerate(threads[1:], 1):
        thread.start()
        wait_until(lambda number=number: len(effects._table[0]._waiting) == number, "it has committed")  # type: ignore[misc]
    made.free.set()
    for thread in threads:
        thread.join(LONG)
    assert outcomes == {"first": "made", "before": "made", "wrong": "wrong", "behind": "made"}
    assert made.calls[2:] == [["before"], ["wrong"], ["behind"]]


def twin(api: Api) -> Api:
    """Another API on a copy of the data, with the key that both seal with."""
    api.services.seal.seal("a secret", "a purpose")
    other = Api()
    for each in (api, other):
        each.end()
    shutil.rmtree(other.data.path)
    shutil.copytree(api.data.path, other.data.path)
    for each in (api, other):
        each.fleet.others[WEBHOOKS] = each.fleet.others[METRICS] = lambda _message: Done()
        each.open()
        each.start()
    return other


LIST = {"name": "mirrors", "kind": "domains", "entries": ["a.example"]}
POOL = {"name": "paris", "upstreams": ["10.0.0.1:3128"]}
POLICY = {"name": "closed", "rules": [{"name": "all", "match": {}, "action": {"use": "deny"}}]}
HOOK = {"name": "hook", "url": "https://hooks.example/x", "events": ["proxy.*"]}
ACCOUNT = {"username": "ada", "password": "secret-word", "policy": "closed"}


def test_a_commit_that_was_made_elsewhere_has_the_effects_that_it_had_there(api: Api) -> None:
    other = twin(api)
    try:
        token = api.token()
        made = {path: api.post(path, body, token) for path, body in (
            ("/lists", LIST), ("/pools", POOL), ("/policies", POLICY), ("/webhooks", HOOK), ("/accounts", ACCOUNT),
        )}  # fmt: skip
        assert [each.json for each in made.values() if each.status_code != 201] == []
        for name, port in (("one", 3128), ("two", 3129), ("three", 3130)):
            create(api, token, name=name, port=port, pool="paris")
        api.patch("/settings", {"logging": {"level": "debug"}}, token)
        follow(api, other)
        assert other.fleet.desired == api.fleet.desired
        assert other.fleet.objects == api.fleet.objects
        assert other.fleet.stored == api.fleet.stored == {"logging": {"level": "debug"}}
        assert other.services.settings.logging.level == "debug"
        names = [path.name for path in api.data.lists.glob("*")]
        assert [path.name for path in other.data.lists.glob("*")] == names != []
        assert [each.name for each in sent(other, SetWebhooks)[-1].webhooks] == ["hook"]
        account = made["/accounts"].json["data"]["account"]["id"]
        for path in (f"/accounts/{account}", "/policies/closed", f"/proxies/{proxy_named(api, 'one')}"):
            assert api.request("DELETE", path, token).status_code == 200
        follow(api, other)
        assert other.fleet.desired.keys() == api.fleet.desired.keys()
        assert other.fleet.objects.keys() == api.fleet.objects.keys()
        assert sent(other, DropAccountUsage) == sent(api, DropAccountUsage) == [DropAccountUsage((account,))]
    finally:
        other.close()


def test_what_was_removed_is_not_remembered_for_ever(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_link, "GONE_MOST", 3)
    token = api.token()
    for _ in range(5):
        made = create(api, token)
        assert api.request("DELETE", f"/proxies/{made['id']}", token).status_code == 200
    assert [type(message) for _, message in api.fleet.received].count(ReplaceProxies) == 1


def follow(api: Api, other: Api) -> None:
    for each in api.engine.changes(other.engine.file.last_number):
        other.engine.adopt(each)


def sent(api: Api, kind: type[Any]) -> list[Any]:
    return [each for _, each in api.fleet.received if isinstance(each, kind)]


def proxy_named(api: Api, name: str) -> str:
    return next(each.id for each in api.fleet.desired.values() if each.name == name)
