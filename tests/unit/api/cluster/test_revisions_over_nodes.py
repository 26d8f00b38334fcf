"""`X-Config-Revision`: what was changed at one node is read at another, which says so while it does not have it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing
from itertools import islice

import pytest

from api.concurrency_limit import REVISIONS_EACH
from api.engine.commit import Engine
from api.fleet import ThisNode
from api.http import revision_wait
from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.tables import table
from tests.unit.api.cluster.node_api import NodeApi
from tests.unit.api.store.replicas import MemoryLedger

HEADER = revision_wait.REVISION


class Waiting(ThisNode):
    """What a node has that takes what others have committed when a request waits for it."""

    def __init__(self, name: str) -> None:
        self.node_id = name
        self.may_follow = threading.Event()
        self.engine: Engine | None = None

    def wait_for(self, number: int, seconds: float) -> bool:
        assert self.engine is not None
        if self.may_follow.wait(seconds):
            self.engine.catch_up()
        return self.engine.file.last_number >= number


class Node(NodeApi):
    def open(self) -> None:
        super().open()
        self.waiting = self.node = Waiting(self.name)
        self.waiting.engine = self.engine


@pytest.fixture
def two() -> Iterator[tuple[Node, Node]]:
    ledger = MemoryLedger()
    with ExitStack() as stack:
        one = stack.enter_context(closing(Node(ledger, "a")))
        yield one, stack.enter_context(closing(Node(ledger, "b", one)))


def test_what_was_changed_at_one_node_is_read_at_another_by_its_revision(two: tuple[Node, Node]) -> None:
    one, other = two
    made = one.post("/proxies", PROXY, one.headers)
    number = made.headers[HEADER]
    assert int(number) == one.engine.file.last_number
    proxy = made.json["data"]["proxy"]["id"]
    assert other.get(f"/proxies/{proxy}", other.headers).status_code == 404
    other.waiting.may_follow.set()
    read = other.get(f"/proxies/{proxy}", {**other.headers, HEADER: number})
    assert (read.status_code, HEADER in read.headers) == (200, False)
    changed = other.patch(f"/proxies/{proxy}", {"description": "x"}, {**other.headers, HEADER: number})
    assert int(changed.headers[HEADER]) == int(number) + 1
    assert HEADER not in other.patch(f"/proxies/{proxy}", {"description": "x"}, other.headers).headers
    gone = other.request("DELETE", f"/proxies/{proxy}", other.headers)
    assert int(gone.headers[HEADER]) == int(number) + 2


def test_a_repetition_has_the_revision_of_the_first_response(two: tuple[Node, Node]) -> None:
    one, _ = two
    headers = {**one.headers, "Idempotency-Key": "k"}
    first, second = (one.post("/proxies", PROXY, headers) for _ in range(2))
    assert second.headers["Idempotency-Replayed"] == "true"
    assert first.headers[HEADER] == second.headers[HEADER]


def test_a_node_that_does_not_have_it_in_time_says_so(two: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revision_wait, "REVISION_WAIT", 0.05)
    one, _ = two
    number = one.engine.file.last_number + 1
    refused = one.get("/proxies", {**one.headers, HEADER: str(number)})
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert error_of(refused)[1:] == ("BEHIND", {"revision": number})
    unknown = one.get("/proxies", {HEADER: str(number)})
    assert unknown.status_code == 401


def test_a_key_is_good_at_another_node_at_once_by_the_revision_that_made_it(two: tuple[Node, Node]) -> None:
    one, other = two
    made = one.post("/api-keys", {"name": "fresh"}, one.headers)
    key = {"X-API-Key": made.json["data"]["key"]}
    assert other.get("/proxies", key).status_code == 401
    other.waiting.may_follow.set()
    assert other.get("/proxies", {**key, HEADER: made.headers[HEADER]}).status_code == 200


def test_strangers_wait_in_few_places_and_others_go_on(two: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = two
    waiting, may_end = threading.Semaphore(0), threading.Event()

    def wait_for(_number: int, _seconds: float) -> bool:
        waiting.release()
        may_end.wait()
        return False

    wait = revision_wait.RevisionWait()
    threads = [threading.Thread(target=wait, args=(9, wait_for)) for _ in range(revision_wait.STRANGERS)]
    for each in threads:
        each.start()
        waiting.acquire()
    assert wait(9, wait_for) == 0.0
    may_end.set()
    for each in threads:
        each.join()
    monkeypatch.setattr(revision_wait, "REVISION_WAIT", 0.05)
    unknown = one.get("/proxies", {"X-API-Key": "pfk_unknown", HEADER: str(one.engine.file.last_number + 1)})
    assert unknown.status_code == 401


def test_waits_for_a_revision_take_no_more_threads_than_they_have(two: tuple[Node, Node]) -> None:
    one, other = two
    number = other.post("/proxies", PROXY, other.headers).headers[HEADER]
    of_user, of_stranger = ("/proxies", {**one.headers, HEADER: number}), ("/auth/methods", {HEADER: number})
    wait = REVISIONS_EACH * 2 + revision_wait.STRANGERS
    requests = [of_user] * (REVISIONS_EACH + revision_wait.STRANGERS + 1) + [of_stranger] * (REVISIONS_EACH + 1)
    with ThreadPoolExecutor(len(requests)) as threads:
        asked = [threads.submit(one.get, *each) for each in requests]
        refused = [each.result().status_code for each in islice(as_completed(asked), 2)]
        one.waiting.may_follow.set()
        statuses = [each.result().status_code for each in asked]
    assert (refused, sorted(statuses)) == ([503] * 2, [200] * wait + [503] * 2)


@table("given", ["", "x", "-1", "1.0", "9" * 19, "٣"])
def test_what_is_no_number_is_refused(two: tuple[Node, Node], given: str) -> None:
    one, _ = two
    refused = one.get("/proxies", {**one.headers, HEADER: given})
    assert refused.status_code == 400
    assert error_of(refused)[2]["field"] == HEADER


def test_one_machine_neither_sends_nor_reads_it() -> None:
    with closing(Api()) as api:
        headers = {**api.token(), HEADER: "x"}
        made = api.post("/proxies", PROXY, headers)
        assert (made.status_code, HEADER in made.headers) == (201, False)


def test_the_history_names_the_node_that_made_a_revision_and_its_id_when_it_is_removed(two: tuple[Node, Node]) -> None:
    one, other = two

    def seen(api: Node) -> list[str | None]:
        found = api.get("/revisions", api.headers).json["data"]["revisions"]
        (first,) = [api.get(f"/revisions/{found[0]['revision']}", api.headers).json["data"]["revision"]]
        assert first == found[0]
        return [each["node"] for each in found if each["kinds"] == ["proxy"]]

    assert one.post("/proxies", PROXY, one.headers).status_code == 201
    other.engine.catch_up()
    assert other.post("/proxies", {**PROXY, "name": "second", "port": 3129}, other.headers).status_code == 201
    one.engine.catch_up()
    assert seen(one) == seen(other) == ["b", "a"]
    one.engine.put("nodes", {"id": "b", "name": "fra2"})
    assert seen(one) == ["fra2", "a"]


def test_on_one_machine_the_history_names_no_node(api: Api) -> None:
    api.post("/proxies", PROXY, api.token())
    (made, *_) = api.get("/revisions", api.token()).json["data"]["revisions"]
    assert "node" not in made
