"""Users that only an authentication back end knows, at a real actor, with a real HTTP server as the back end."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.forwarding import Explain
from actors.bus.messages.specs import BackendSpec, EgressSpec
from actors.forwarding.access.backend import FAILED_PAUSE, STALE_MAX, UNDER_WAY_MAX, Backend, Question
from actors.forwarding.access.backend_request import TTL_MAX, read_verdict
from actors.forwarding.protocols.failures import Failure
from actors.state.live_state import LiveState
from tests.actor.forwarding.account_client import WORD, account, credentials
from tests.actor.forwarding.connection_pages import page
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.actor.forwarding.shared_accounts import AccountsTable, fetch, socks4_code, socks5_status, tunnel
from tests.kit.auth_backends import PRIVATE_ALLOWED, AuthBackend
from tests.kit.forwarding_rig import PROXY_ID, Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, responds
from tests.kit.tables import table
from tests.kit.wait import wait_until

YES = responds(*[counted(b"yes")] * 99)
ALICE = credentials("alice", "pw")

_numbers = itertools.count(1)


def allow(**more: Any) -> Any:
    return lambda _content: {"allow": True, **more}


def deny(_content: dict[str, Any]) -> dict[str, Any]:
    return {"allow": False}


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Each test gives it its own back end."""
    with Rig(egress=PRIVATE_ALLOWED, auth_required=True) as rig:
        yield rig


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin(YES) as origin:
        yield origin


@pytest.fixture
def backend(rig: Rig) -> Iterator[AuthBackend]:
    with AuthBackend(allow()) as backend:
        configure(rig, backend)
        yield backend


def configure(rig: Rig, backend: AuthBackend, **fields: Any) -> None:
    """`protocol` and `accounts` are of the proxy, the other fields of its back end."""
    own = {"protocol": fields.pop("protocol", "http"), "accounts": fields.pop("accounts", ())}
    rig.configure(backend=backend.spec(**fields), **own)


def status(rig: Rig, origin: Origin, field: str = ALICE) -> int:
    return fetch(rig, origin, field)[0]


def fails(rig: Rig, origin: Origin) -> str:
    """The sentence in the record of a request that the back end fails; the client gets 503 and not the sentence."""
    user = f"user{next(_numbers)}"
    code, head = fetch(rig, origin, credentials(user, "pw"))
    assert code == 503
    detail: str = rig.record(reason="auth_backend_failed", user=user)["detail"]
    assert detail.encode() not in head
    return detail


def test_a_user_that_the_back_end_allows_gets_in_and_the_request_is_signed(
    rig: Rig, origin: Origin, backend: AuthBackend
) -> None:
    assert status(rig, origin) == 200
    (asked,) = backend.received
    assert asked.verified(backend.secret) == {
        "username": "alice",
        "password": "pw",
        "client_ip": "127.0.0.1",
        "proxy_id": PROXY_ID,
        "target": origin.authority,
    }
    assert asked.headers["accept-encoding"] == "identity"
    assert rig.record(status_code=200, user="alice")


def test_a_user_that_it_denies_gets_407_and_is_asked_for_again_after_negative_seconds_only(
    rig: Rig, origin: Origin, backend: AuthBackend
) -> None:
    backend.decides = deny
    assert [status(rig, origin), status(rig, origin)] == [407, 407]
    assert backend.asked == ["alice"]
    configure(rig, backend, negative_seconds=0.0)
    assert [status(rig, origin), status(rig, origin)] == [407, 407]
    assert backend.asked == ["alice"] * 3


def test_a_result_is_cached_for_these_credentials_alone(rig: Rig, origin: Origin, backend: AuthBackend) -> None:
    backend.decides = lambda content: {"allow": content["password"] == "pw"}
    assert [status(rig, origin), status(rig, origin), status(rig, origin, credentials("alice", "px"))] == [
        200,
        200,
        407,
    ]
    assert backend.asked == ["alice", "alice"]


@pytest.mark.parametrize(("cache", "ttl", "asked"), [(0.0, None, 2), (60.0, 0, 2), (0.0, 60, 1)])
def test_ttl_is_in_place_of_cache_seconds(
    rig: Rig, origin: Origin, backend: AuthBackend, cache: float, ttl: int | None, asked: int
) -> None:
    backend.decides = allow(ttl=ttl)
    configure(rig, backend, cache_seconds=cache)
    assert [status(rig, origin), status(rig, origin)] == [200, 200]
    assert len(backend.received) == asked


def test_the_same_credentials_are_asked_for_once_at_a_time(rig: Rig, origin: Origin, backend: AuthBackend) -> None:
    configure(rig, backend, cache_seconds=0.0, timeout=30.0)
    backend.decides = backend.hang
    found: list[int] = []
    clients = [threading.Thread(target=lambda: found.append(status(rig, origin))) for _ in range(5)]
    for each in clients:
        each.start()
    until(lambda: backend.received, "the back end is asked")
    until(lambda: sum(each.bytes_in > 0 for each in page(rig).connections) == 5, "all clients wait")
    backend.release.set()
    for each in clients:
        each.join(120)
    assert found == [200] * 5
    assert backend.asked == ["alice"]


def test_an_account_that_it_names_is_used_with_its_rules(rig: Rig, origin: Origin, backend: AuthBackend) -> None:
    configure(rig, backend, accounts=(account("staff", enabled=False),))
    backend.decides = allow(account="staff")
    code, head = fetch(rig, origin, ALICE)
    assert code == 403
    assert b"account is disabled" in head
    configure(rig, backend, accounts=(account("staff"),))
    assert status(rig, origin) == 200
    assert rig.record(status_code=200, user="staff")


def test_an_account_of_the_table_may_be_named(rig: Rig, origin: Origin, backend: AuthBackend) -> None:
    table = AccountsTable(rig)
    try:
        table.account("shared")
        backend.decides = allow(account="shared")
        assert status(rig, origin) == 200
        assert rig.record(status_code=200, user="shared")
    finally:
        table.close()


def test_an_account_that_is_not_there_is_a_failure(rig: Rig, origin: Origin, backend: AuthBackend) -> None:
    backend.decides = allow(account="missing")
    assert "does not have" in fails(rig, origin)


def test_own_accounts_come_first(rig: Rig, origin: Origin, backend: AuthBackend) -> None:
    configure(rig, backend, accounts=(account("alice"),))
    assert status(rig, origin, credentials("alice", WORD)) == 200
    assert status(rig, origin, credentials("alice", "wrong")) == 407
    assert backend.received == []


def test_limits_that_it_gives_hold(rig: Rig, backend: AuthBackend) -> None:
    backend.decides = allow(limits={"connections": 1})
    with Origin(echoes) as origin, tunnel(rig, origin, ALICE), connect(rig) as another:
        another.sendall(get(origin, "/", ALICE))
        assert read_response(another)[0].startswith(b"HTTP/1.1 429 ")
        tunnel(rig, origin, credentials("bob", "pw")).close()


@table(
    ("body", "said"),
    [
        (b"no JSON", "is not JSON"),
        (b"[" * 60_000, "is not JSON"),
        ([], "boolean `allow`"),
        ({}, "boolean `allow`"),
        ({"allow": "yes"}, "boolean `allow`"),
        ({"allow": 1}, "boolean `allow`"),
        ({"allow": True, "account": 7}, "`account`"),
        ({"allow": True, "ttl": -1}, "`ttl`"),
        ({"allow": True, "ttl": True}, "`ttl`"),
        ({"allow": True, "limits": []}, "`limits`"),
        ({"allow": True, "limits": {"speed": 1}}, "'speed'"),
        ({"allow": True, "limits": {"connections": "1"}}, "`limits.connections`"),
        (b'{"allow": true}' + b" " * 65_536, "more than 65536 bytes"),
    ],
)
def test_a_wrong_response_is_a_failure(rig: Rig, origin: Origin, backend: AuthBackend, body: Any, said: str) -> None:
    backend.decides = lambda _content: body
    assert said in fails(rig, origin)


def test_a_redirect_is_not_followed(rig: Rig, origin: Origin, backend: AuthBackend) -> None:
    with AuthBackend(allow()) as other:
        backend.status, backend.headers = 307, {"location": other.url}
        assert "status 307" in fails(rig, origin)
        assert other.received == []


def test_a_compressed_response_is_a_failure(rig: Rig, origin: Origin, backend: AuthBackend) -> None:
    backend.headers = {"content-encoding": "gzip"}
    assert "only identity" in fails(rig, origin)


def test_a_dead_one_is_a_failure(rig: Rig, origin: Origin, backend: AuthBackend) -> None:
    backend.die()
    assert "refused" in fails(rig, origin)


def test_an_address_that_is_not_public_is_refused_by_default(rig: Rig, origin: Origin, backend: AuthBackend) -> None:
    rig.egress = EgressSpec("public_only", ("127.0.0.0/8",), ())
    try:
        rig.configure()
        assert "webhooks.allow_private" in fails(rig, origin)
        assert backend.received == []
    finally:
        rig.egress = PRIVATE_ALLOWED
        rig.configure()


def test_a_listener_of_the_product_is_refused_also_with_private_addresses(
    rig: Rig, origin: Origin, backend: AuthBackend
) -> None:
    port = int(backend.url.split(":")[2].split("/")[0])
    rig.egress = EgressSpec("public_only", ("127.0.0.0/8",), (("127.0.0.1", port),), private_backends=True)
    try:
        rig.configure()
        fails(rig, origin)
        assert backend.received == []
    finally:
        rig.egress = PRIVATE_ALLOWED
        rig.configure()


def test_a_slow_one_delays_its_own_users_alone(rig: Rig, origin: Origin, backend: AuthBackend) -> None:
    configure(rig, backend, timeout=30.0, accounts=(account("local"),))
    backend.decides = backend.hang
    with connect(rig) as waits:
        waits.sendall(get(origin, "/", ALICE))
        until(lambda: backend.received, "the back end is asked")
        assert status(rig, origin, credentials("local", WORD)) == 200
        backend.release.set()
        assert read_response(waits)[0].startswith(b"HTTP/1.1 200 ")


def test_one_that_does_not_respond_in_time_is_a_failure(rig: Rig, origin: Origin, backend: AuthBackend) -> None:
    configure(rig, backend, timeout=0.2)
    backend.decides = backend.hang
    assert "within 0.2 s" in fails(rig, origin)


def test_through_an_outage_those_who_were_allowed_are_if_so_configured(
    rig: Rig, origin: Origin, backend: AuthBackend
) -> None:
    configure(rig, backend, cache_seconds=0.0, allow_cached=True)
    assert status(rig, origin) == 200
    backend.die()
    assert [status(rig, origin), status(rig, origin)] == [200, 200]
    assert status(rig, origin, credentials("bob", "pw")) == 503
    assert status(rig, origin, credentials("alice", "another")) == 503


def test_through_an_outage_they_are_refused_by_default(rig: Rig, origin: Origin, backend: AuthBackend) -> None:
    configure(rig, backend, cache_seconds=0.0)
    assert status(rig, origin) == 200
    backend.die()
    assert status(rig, origin) == 503


def test_a_denial_ends_what_was_allowed_before(rig: Rig, origin: Origin, backend: AuthBackend) -> None:
    configure(rig, backend, cache_seconds=0.0, negative_seconds=0.0, allow_cached=True)
    assert status(rig, origin) == 200
    backend.decides = deny
    assert status(rig, origin) == 407
    backend.die()
    assert status(rig, origin) == 503


def test_another_configuration_forgets_what_was_decided(rig: Rig, origin: Origin, backend: AuthBackend) -> None:
    assert status(rig, origin) == 200
    with AuthBackend(deny) as other:
        configure(rig, other)
        assert status(rig, origin) == 407
    rig.configure(backend=None)
    assert status(rig, origin) == 407


def test_what_a_former_back_end_decides_late_is_not_kept(rig: Rig, origin: Origin, backend: AuthBackend) -> None:
    configure(rig, backend, timeout=30.0)
    backend.decides = backend.hang
    with connect(rig) as waits, AuthBackend(deny) as other:
        waits.sendall(get(origin, "/", ALICE))
        until(lambda: backend.received, "the back end is asked")
        configure(rig, other)
        backend.release.set()
        assert read_response(waits)[0].startswith(b"HTTP/1.1 200 ")
        assert status(rig, origin) == 407


class Asker:
    """A client at a back end's queue, in the process of the test, by a clock that stands still until it is moved."""

    client_ip, waits = "127.0.0.1", True

    def __init__(self, spec: BackendSpec) -> None:
        self.now = 1000.0
        self.loop = Loop(lambda: self.now)
        self.backend = Backend(self.loop, lambda _user: None, LiveState(lambda: self.loop.now))
        self.backend.guard_by(PRIVATE_ALLOWED)
        self.backend.configure(spec, PROXY_ID)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.loop.turn(0)

    def begin(self, user: str) -> list[str | Failure | None]:
        """The user, or why there is no result, once it is there."""
        found: list[str | Failure | None] = []

        def done(user: str | None, failure: Failure | None = None, /) -> None:
            found.append(failure or user)

        self.backend.check(Question(user, b"pw", None), self, done, lambda: None)
        return found

    def result_of(self, user: str) -> str | Failure | None:
        found = self.begin(user)
        wait_until(lambda: self.loop.turn(0.01) or found, "there is a result", pause=0.0)
        return found[0]


def test_through_a_longer_outage_they_are_allowed_for_a_day() -> None:
    with AuthBackend(allow()) as backend:
        asker = Asker(backend.spec(cache_seconds=0.0, allow_cached=True))
        assert asker.result_of("alice") == "alice"
    asker.pass_time(STALE_MAX - 1)
    assert asker.result_of("alice") == "alice"
    asker.pass_time(FAILED_PAUSE + 1)
    assert isinstance(asker.result_of("alice"), Failure)
    asker.loop.close()


def test_beyond_so_many_under_way_a_request_fails_at_once() -> None:
    with AuthBackend(allow()) as backend:
        backend.decides = backend.hang
        asker = Asker(backend.spec())
        assert not any(asker.begin(f"user{number}") for number in range(UNDER_WAY_MAX))
        (failure,) = asker.begin("one more")
        assert isinstance(failure, Failure)
        assert "too many" in failure.recorded
    asker.loop.close()


def test_a_result_holds_for_a_day_at_most() -> None:
    assert read_verdict(b'{"allow": true, "ttl": 1e9}').ttl == TTL_MAX


def test_after_many_refusals_of_a_client_nothing_is_asked_for_it(
    rig: Rig, origin: Origin, backend: AuthBackend
) -> None:
    backend.decides = deny
    assert {status(rig, origin, credentials("guessed", f"pw{number}")) for number in range(12)} == {407}
    assert backend.asked == ["guessed"] * 10


def test_socks5_asks_before_there_is_a_target(rig: Rig, backend: AuthBackend) -> None:
    configure(rig, backend, protocol="socks5")
    assert socks5_status(rig, "alice", "pw") == 0
    assert backend.received[0].content["target"] is None
    backend.decides = deny
    assert socks5_status(rig, "bob", "pw") != 0
    backend.die()
    assert socks5_status(rig, "carol", "pw") != 0
    assert rig.record(reason="auth_backend_failed", user="carol")["status_code"] == 503


def test_socks4_has_no_password(rig: Rig, backend: AuthBackend) -> None:
    configure(rig, backend, protocol="socks4")
    with Origin(echoes) as origin:
        assert socks4_code(rig, origin, "alice") == 90
        content = backend.received[0].content
        assert (content["username"], content["password"], content["target"]) == ("alice", None, origin.authority)
        backend.decides = deny
        assert socks4_code(rig, origin, "bob") == 91


def test_an_explanation_says_that_the_back_end_would_decide(rig: Rig, origin: Origin, backend: AuthBackend) -> None:
    explained = rig.ask(Explain("127.0.0.1", "alice", origin.authority))
    assert (explained.decision, explained.stage) == ("allow", "user")
    assert "back end" in explained.rule
    assert backend.received == []


def test_an_actor_that_was_started_again_asks_again(origin: Origin) -> None:
    with AuthBackend(allow()) as backend:
        for _ in range(2):
            spec: BackendSpec = backend.spec()
            with Rig(egress=PRIVATE_ALLOWED, auth_required=True, backend=spec) as rig:
                assert status(rig, origin) == 200
        assert backend.asked == ["alice", "alice"]
