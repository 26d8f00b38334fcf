"""Changes at two nodes at once that do not fit to each other: one is made, the other gets the usual refusal."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from api.engine.commit import Engine
from api.import_export.present_state import read_state
from api.oauth.id_token import Identity, IdentityRefused
from api.oauth.linking import admit
from api.objects.users.password_reset import reset
from api.security import users
from api.store import OutcomeUnknown
from config.passwords import check_password
from config.settings.groups import OAuth2
from tests.kit.api_stage import PASSWORD, PROXY
from tests.kit.tables import table
from tests.unit.api.cluster.node_api import NodeApi, two
from tests.unit.api.store.replicas import MemoryLedger, OfNode, nodes


@contextmanager
def overtaken(one: NodeApi, change: Callable[[], Any]) -> Iterator[list[Any]]:
    """Another node makes this change while the first one has checked its own, and has not its turn; what came of it."""
    found: list[Any] = []

    def overtake(node: str) -> None:
        if node == one.name and not found:
            thread = threading.Thread(target=lambda: found.append(change()))
            thread.start()
            thread.join()

    one.ledger.before = overtake
    yield found
    one.ledger.before = lambda _node: None
    assert found, "nothing was committed"


LIST = ("POST", "/lists", {"name": "listed", "kind": "domains", "entries": ["example.com"]})
RULED = ("POST", "/plans", {"name": "ruled", "deny_destinations": ["list:listed"]})
PLAN = ("POST", "/plans", {"name": "planned"})
ACCOUNT = ("POST", "/accounts", {"username": "alice", "password": PASSWORD})
OF_PLAN = ("POST", "/accounts", {"username": "alice", "password": PASSWORD, "plan": "planned"})
FIRST = ("POST", "/proxies", PROXY)
DESCRIBED = ("PATCH", "{id}", {"description": "theirs"})
SECOND = ("POST", "/proxies", {**PROXY, "name": "second", "port": 3129})
Request = tuple[str, str, Any]


@table(
    "before, first, second, field",
    [
        (None, FIRST, ("POST", "/proxies", {**PROXY, "port": 3129}), "name"),
        (None, FIRST, ("POST", "/proxies", {**PROXY, "name": "second"}), "port"),
        (None, FIRST, ("POST", "/proxies", {**PROXY, "name": "second", "host": "127.0.0.1"}), "port"),
        (FIRST, SECOND, ("PATCH", "{id}", {"port": 3129}), "port"),
        (None, FIRST, ("POST", "/proxies/batch", {"create": [{**PROXY, "name": "second"}]}), "create[0].port"),
        (FIRST, SECOND, ("PATCH", "{id}", {"name": "second"}), "name"),
        (None, LIST, LIST, "name"),
        (LIST, ("DELETE", "{id}", None), RULED, "deny_destinations"),
        (LIST, RULED, ("DELETE", "{id}", None), None),
        (LIST, RULED, ("PATCH", "{id}", {"name": "other"}), "name"),
        (None, PLAN, PLAN, "name"),
        (None, ACCOUNT, ACCOUNT, "username"),
        (None, ACCOUNT, ("POST", "/accounts/batch", {"create": [ACCOUNT[2]]}), "create[0].username"),
        (PLAN, ("DELETE", "{id}", None), OF_PLAN, "plan"),
        (PLAN, OF_PLAN, ("DELETE", "{id}", None), None),
        (
            FIRST,
            ACCOUNT,
            ("POST", "{id}/accounts", {"username": "alice", "password": PASSWORD}),
            "username",
        ),
    ],
)  # fmt: skip
def test_of_two_changes_at_once_that_clash_one_is_made_and_the_other_is_refused_as_on_one_machine(
    before: Request | None, first: Request, second: Request, field: str | None
) -> None:
    with two() as (one, other):
        path = "" if before is None else made_at(one, before)
        other.engine.catch_up()
        with overtaken(one, lambda: other.ask(*at(path, first))) as found:
            status, refused = one.ask(*at(path, second))
        assert found[0][0] < 300, found
        assert status == 400, refused
        assert field is None or field in str(refused[2]), refused
        one.engine.catch_up()
        for name in ("proxies", "lists", "policies", "plans", "accounts"):
            known = {each.id: each.body for each in one.engine.find(name)}
            assert known == {each.id: each.body for each in other.engine.find(name)}


def made_at(api: NodeApi, request: Request) -> str:
    """The path of an object that is made."""
    status, made = api.ask(*request)
    assert status == 201, made
    return f"{request[1]}/{next(each['id'] for each in made.values() if isinstance(each, dict))}"


def at(path: str, request: Request) -> Request:
    body = json.loads(json.dumps(request[2]).replace("{id}", path.rpartition("/")[2]))
    return request[0], request[1].replace("{id}", path), body


@table(
    "made, first, second, expected",
    [
        (FIRST, DESCRIBED, ("PATCH", "{id}", {"tags": ["ours"]}), ("theirs", ["ours"])),
        (FIRST, DESCRIBED, ("POST", "{id}/stop", None), ("theirs", "inactive")),
        (FIRST, DESCRIBED, ("DELETE", "{id}", None), ()),
        (
            FIRST,
            DESCRIBED,
            ("POST", "/proxies/tags", {"ids": ["{id}"], "add_tags": ["ours"]}),
            ("theirs", ["ours"]),
        ),
        (
            FIRST,
            DESCRIBED,
            ("POST", "/proxies/batch", {"update": [{"where": {"all": True}, "set": {"add_tags": ["ours"]}}]}),
            ("theirs", ["ours"]),
        ),
        (
            FIRST,
            ("POST", "{id}/accounts", {"username": "bob", "password": PASSWORD}),
            ("POST", "{id}/accounts", {"username": "eve", "password": PASSWORD}),
            ("bob", "eve"),
        ),
        (PLAN, DESCRIBED, ("PATCH", "{id}", {"name": "ours"}), ("theirs", "ours")),
        (
            None,
            ("PATCH", "/settings", {"logging": {"level": "error"}}),
            ("PATCH", "/settings", {"proxy": {"default_timeout": 77}}),
            ("error", 77),
        ),
    ],
)  # fmt: skip
def test_changes_of_one_object_at_two_nodes_both_hold_and_none_is_refused_that_named_no_revision(
    made: Request | None, first: Request, second: Request, expected: tuple[Any, ...]
) -> None:
    with two() as (one, other):
        path = "" if made is None else made_at(one, made)
        other.engine.catch_up()
        with overtaken(one, lambda: other.ask(*at(path, first))) as found:
            status, result = one.ask(*at(path, second))
            assert status < 300, result
        assert found[0][0] < 300, found
        for each in (one, other):
            each.engine.catch_up()
            (body,) = [
                one.body for one in each.engine.find(second[1].split("/")[1] if made is None else made[1][1:])
            ] or [{}]
            text = json.dumps(body)
            assert all(json.dumps(value) in text for value in expected), text
            assert bool(expected) == bool(body)


def test_a_change_that_names_a_revision_is_refused_when_another_node_has_made_one() -> None:
    with two() as (one, other):
        path = made_at(one, FIRST)
        other.engine.catch_up()
        headers = {**one.headers, "If-Match": f'"{one.engine.file.last_number}"'}
        for method, body in (("PATCH", {"tags": ["ours"]}), ("DELETE", None)):
            with overtaken(one, lambda: other.ask("PATCH", path, {"description": "theirs"})):
                result = one.request(method, path, headers, **({} if body is None else {"json": body}))
            assert result.status_code == 412, result.text
            other.ask("PATCH", path, {"description": "again"})
            one.engine.catch_up()
            headers["If-Match"] = f'"{one.engine.file.last_number}"'


def test_two_proxies_do_not_become_a_circle_by_changes_at_two_nodes() -> None:
    with two() as (one, other):
        paths = [made_at(one, each) for each in (FIRST, SECOND)]
        other.engine.catch_up()
        to_first, to_second = (
            {"upstreams": [{"protocol": "http", "host": "127.0.0.1", "port": port}]} for port in (3128, 3129)
        )
        with overtaken(one, lambda: other.ask("PATCH", paths[1], to_first)) as found:
            status, refused = one.ask("PATCH", paths[0], to_second)
        assert found[0][0] == 200, found
        assert (status, refused[2]["field"]) == (400, "upstreams[0]"), refused


def disabled(api: NodeApi, username: str) -> None:
    user = users.by_name(api.engine, username)
    assert user is not None
    api.engine.put("users", {**user.model_dump(mode="json"), "status": "disabled"})


def test_a_user_whom_another_node_disables_at_this_moment_does_not_sign_in() -> None:
    with two() as (one, other):
        one.add_user("eve")
        other.engine.catch_up()
        with overtaken(one, lambda: disabled(other, "eve")):
            result = one.post("/auth/login", {"username": "eve", "password": PASSWORD})
        assert result.status_code == 401, result.text
        assert one.engine.find("refresh_families", user_id=users.by_name(one.engine, "eve").id) == []  # type: ignore[union-attr]


def test_a_password_that_is_reset_keeps_what_another_node_has_changed_and_ends_what_began_there() -> None:
    with two() as (one, other):
        eve = one.add_user("eve")
        other.engine.catch_up()

        def change() -> None:
            other.token("eve")
            other.engine.put("users", {**eve.model_dump(mode="json"), "email": "eve@example.com"})

        with overtaken(one, change):
            reset(one.engine, "eve", "another password")
        found = users.by_name(one.engine, "eve")
        assert found is not None
        assert (found.email, check_password("another password", found.password_hash)) == ("eve@example.com", True)
        assert one.engine.find("refresh_families", user_id=eve.id) == []


@table(
    "change, refused",
    [
        (("DELETE", "/lists/listed", None), "allow_destinations"),
        (("PATCH", "{id}", {"enabled": False}), "disabled"),
        (("DELETE", "{id}", None), "not found"),
    ],
)
def test_no_credential_is_minted_for_what_another_node_has_taken_away_at_this_moment(
    change: Request, refused: str
) -> None:
    with two() as (one, other):
        made_at(one, LIST)
        path = made_at(one, ACCOUNT)
        other.engine.catch_up()
        body = {"ttl": 60, "allow_destinations": ["list:listed"]}
        with overtaken(one, lambda: other.ask(*at(path, change))) as found:
            status, result = one.ask("POST", f"{path}/credentials", body)
        assert found[0][0] < 300, found
        assert status in (400, 404), result
        assert refused in str(result).lower().replace("_found", " found"), result
        assert one.engine.find("credentials") == []


JANE = Identity("custom", "https://id.example", "1", "jane@example.com", {})
OTHER = replace(JANE, subject="2")


@table(
    "known, theirs, mine, expected",
    [
        (None, JANE, JANE, "the same account"),
        (None, OTHER, JANE, "refused"),
        ("jane@example.com", JANE, JANE, "the same account"),
        ("jane@example.com", OTHER, JANE, "refused"),
        (None, "named", JANE, "another name"),
        ("jane@example.com", "address", JANE, "refused"),
        ("jane@example.com", "disabled", JANE, "refused"),
    ],
)
def test_an_identity_has_one_account_and_an_account_one_identity_whichever_nodes_they_sign_in_at(
    known: str | None, theirs: Identity | str, mine: Identity, expected: str
) -> None:
    settings = OAuth2()
    with nodes(MemoryLedger()) as (one, other):
        if known is not None:
            put_user(one, "jane", known)
            other.catch_up()

        def overtake(node: str) -> None:
            if node != "a" or done:
                return
            done.append("begun")
            if isinstance(theirs, Identity):
                admit(other, theirs, settings)
            elif theirs == "disabled":
                other.put("users", {**other.find("users")[0].body, "status": "disabled"})
            else:
                name, email = ("jane@example.com", None) if theirs == "named" else ("second", "jane@example.com")
                put_user(other, name, email)

        done: list[str] = []
        ledger_of(one).before = overtake
        try:
            user, is_new = admit(one, mine, settings)
        except IdentityRefused:
            assert expected == "refused"
            linked = [each for each in one.find("users") if each.body["oauth"] is not None]
            assert len(linked) == isinstance(theirs, Identity)
        else:
            assert done
            if expected == "the same account":
                assert len(one.find("users")) == 1
                assert not is_new
            else:
                assert user.username.startswith("jane@example.com-")
                assert len({each.body["username"] for each in one.find("users")}) == 2


def put_user(engine: Engine, username: str, email: str | None) -> None:
    user = users.new_user(users.UserCreate(username=username, password=PASSWORD))
    engine.put("users", {**user.model_dump(mode="json"), "email": email}, 0)


def ledger_of(engine: Engine) -> MemoryLedger:
    return cast("OfNode", engine._ledger).ledger


READS = (
    *(
        "/proxies",
        "{id}",
        "/users",
        "/accounts",
        "/accounts?sort=-username",
        "/plans",
        "/lists",
        "/api-keys",
        "/webhooks",
    ),
    *("/audit", "/revisions", "/revisions/1", "/settings", "/auth/sessions", "/auth/test", "/health"),
)


def test_reads_go_on_while_a_commit_waits_for_the_database() -> None:
    asked, goes_on = threading.Event(), threading.Event()

    def append(make: Callable[[], UUID]) -> UUID:
        asked.set()
        assert goes_on.wait(60)
        return make()

    with closing(NodeApi(MemoryLedger(), "a")) as one, ThreadPoolExecutor(2) as pool:
        path = made_at(one, FIRST)
        one.ledger.append = append
        change = pool.submit(one.ask, "PATCH", path, {"tags": ["new"]})
        try:
            assert asked.wait(60)
            for each in READS:
                status, result = pool.submit(one.ask, "GET", each.replace("{id}", path)).result(30)
                assert status == 200, (each, result)
                assert '"new"' not in json.dumps(result)
            state = pool.submit(read_state, one.engine).result(30)
            assert [each.record.tags for each in state.records["proxies"]] == [[]]
        finally:
            goes_on.set()
        assert change.result()[0] == 200
        assert one.ask("GET", path)[1]["proxy"]["tags"] == ["new"]


def test_users_of_one_name_are_made_once_and_an_import_is_planned_anew() -> None:
    with two() as (one, other):
        made: list[Any] = []

        def overtake(node: str) -> None:
            if node == "a" and not made:
                made.append(users.new_user(users.UserCreate(username="eve", password=PASSWORD)))
                other.engine.put("users", made[0].model_dump(mode="json"), 0)

        one.ledger.before = overtake
        status, refused = one.ask("POST", "/users", {"username": "eve", "password": PASSWORD})
        assert (status, len(one.engine.find("users", username="eve"))) == (400, 1), refused
        one.ledger.before = lambda _node: None
        made.clear()

        def change(node: str) -> None:
            if node == "a" and not made:
                made.append("begun")
                other.engine.put("lists", {**one.engine.find("lists")[0].body, "description": "theirs"})

        assert one.ask(*LIST)[0] == 201
        other.engine.catch_up()
        one.ledger.before = change
        document = {"kind": "proxyfleet.config", "version": 1, "plans": [PLAN[2]]}
        status, outcome = one.ask("POST", "/config/import", document)
        assert status == 200, outcome
        assert [each.body["description"] for each in one.engine.every("lists")] == ["theirs"]
        assert [each.body["name"] for each in one.engine.every("plans")] == ["planned"]


@table("is_made", [True, False])
def test_a_repetition_of_a_change_whose_outcome_is_unknown_runs_when_it_is_known_that_it_was_not_made(
    is_made: bool,
) -> None:
    with two() as (one, _):
        key = {**one.headers, "Idempotency-Key": "k"}

        def lost(append: Callable[[], UUID]) -> UUID:
            if is_made:
                append()
            raise OutcomeUnknown

        def plan() -> Any:
            return one.post("/plans", PLAN[2], key)

        usual, one.ledger.append = one.ledger.append, lost
        assert [plan().json["error"]["code"] for _ in range(2)] == ["OUTCOME_UNKNOWN"] * 2
        one.ledger.append = usual
        assert one.ask("POST", "/plans", {"name": "other"})[0] == 201, "with it the outcome is known"
        found = plan()
        assert found.status_code == (400 if is_made else 201)
        if is_made:
            assert found.json["error"]["details"]["field"] == "Idempotency-Key"
        assert plan().status_code == found.status_code
        assert sorted(each.body["name"] for each in one.engine.every("plans")) == ["other", "planned"]
