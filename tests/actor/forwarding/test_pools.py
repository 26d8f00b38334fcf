"""Pools of upstreams in a real forwarding actor: the proxy's own, and those that policies name."""

from __future__ import annotations

import base64
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from actors.bus.messages.forwarding import ConnectionFilter, Explain, QueryConnections
from actors.bus.messages.specs import PolicySpec, PoolSpec, RuleSpec, UpstreamSpec, UpstreamsSpec, UsernameParamsSpec
from actors.forwarding.fleet_objects import FleetObjects
from tests.actor.forwarding.http_client import connect, get, read_response, tunnel
from tests.kit.forwarding_rig import Rig
from tests.kit.scripted_origins import Origin, Script, counted, echoes, read_head, responds
from tests.kit.upstreams import closed_port, of_rig, upstream_entry, upstream_list


@pytest.fixture
def rig(shared: Rig) -> Rig:
    """Without the pools of the test before."""
    shared.configure(FleetObjects(), policy="", pool="", upstreams=UpstreamsSpec(), username_params=None)
    shared.records.clear()
    return shared


@pytest.fixture(scope="module")
def exits() -> Iterator[tuple[Rig, Rig]]:
    """Two upstreams that work."""
    with Rig(id="px-one") as one, Rig(id="px-two") as two:
        yield one, two


def pool(name: str, *upstreams: UpstreamSpec, policy: str = "failover", **fields: Any) -> PoolSpec:
    return PoolSpec(f"pool_{name}", name, 1, upstream_list(*upstreams, policy=policy), **fields)


def use(rig: Rig, *pools: PoolSpec, rules: tuple[RuleSpec, ...] = ()) -> None:
    """The proxy has the first pool, or, with rules, a policy and no pool of its own."""
    policies = (PolicySpec("policy_1", "exits", rules),) if rules else ()
    own = "" if rules else pools[0].name
    rig.configure(FleetObjects(pools=pools, policies=policies), pool=own, policy="exits" if rules else "")


def answer(rig: Rig, request: bytes) -> tuple[bytes, bytes]:
    with connect(rig) as client:
        client.sendall(request)
        return read_response(client)


def test_a_proxy_goes_through_the_upstreams_of_its_pool(rig: Rig, exits: tuple[Rig, Rig]) -> None:
    use(rig, pool("paris", of_rig(exits[0])))
    with Origin(responds(counted(b"one"))) as origin:
        assert answer(rig, get(origin))[1] == b"one"
        assert exits[0].record(target_url=f"http://{origin.authority}/")
    with Origin(echoes) as target, tunnel(rig, target) as client:
        client.sendall(b"hello")
        assert client.recv(10) == b"hello"


def test_nothing_goes_directly_where_the_pool_is_empty_or_not_there(rig: Rig) -> None:
    with Origin(responds(counted(b"one"))) as origin:
        use(rig, pool("empty"))
        assert answer(rig, get(origin))[0].startswith(b"HTTP/1.1 503 ")
        rig.configure(FleetObjects(), pool="unknown")
        assert answer(rig, get(origin))[0].startswith(b"HTTP/1.1 503 ")
        assert origin.connections == 0


def test_a_changed_pool_holds_for_the_next_connection(rig: Rig, exits: tuple[Rig, Rig]) -> None:
    for upstream in (*exits, *exits):
        use(rig, pool("paris", of_rig(upstream)))
        with Origin(responds(counted(b"one"))) as origin:
            assert answer(rig, get(origin))[1] == b"one"
            assert upstream.record(target_url=f"http://{origin.authority}/")


def test_rules_choose_among_pools_whose_connections_are_kept_apart(rig: Rig, exits: tuple[Rig, Rig]) -> None:
    pools = [pool(name, of_rig(upstream)) for name, upstream in zip(("paris", "lyon"), exits, strict=True)]
    with Origin(responds(*[counted(b"one")] * 9)) as first, Origin(responds(*[counted(b"two")] * 9)) as second:
        rules = (
            RuleSpec("first", destinations=(f"*:{first.port}",), use="pool:paris"),
            RuleSpec("second", destinations=(f"*:{second.port}",), use="pool:lyon"),
        )
        use(rig, *pools, rules=rules)
        with connect(rig) as client:
            for origin, body in ((first, b"one"), (second, b"two")) * 2:
                client.sendall(get(origin))
                assert read_response(client)[1] == body
        for upstream, own, other in ((exits[0], first, second), (exits[1], second, first)):
            assert upstream.record(target_url=f"http://{own.authority}/")
            assert not [each for each in upstream.records if other.authority in each["target_url"]]


# --- what upstreams respond to CONNECT ------------------------------------------------------------------------------

COOLDOWN = (("connect", 60.0, 600.0), ("407", 60.0, 600.0), ("429", 30.0, 300.0), ("5xx", 5.0, 60.0))
STATUSES = (407, 429, 502, 503)


def refuses(status: int, *fields: str) -> Script:
    """A response of this status to whatever comes, on every connection."""

    def script(sock: socket.socket) -> None:
        sock.recv(65536)
        lines = "".join(f"{field}\r\n" for field in fields)
        sock.sendall(f"HTTP/1.1 {status} No\r\n{lines}Content-Length: 0\r\n\r\n".encode())
        sock.close()

    return script


def closes(sock: socket.socket) -> None:
    """Read a request and close the connection, as a process that is killed does."""
    sock.recv(65536)
    sock.close()


def tunnels(rig: Rig) -> bytes:
    """The head of the response to a CONNECT to an origin that echoes."""
    with Origin(echoes) as origin, connect(rig) as client:
        client.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: {origin.authority}\r\n\r\n".encode())
        return read_head(client)


@pytest.mark.parametrize("fields", [(407,), (429,), (503, "Retry-After: 60")])
def test_an_upstream_that_refuses_is_left_alone_and_another_one_tunnels(
    rig: Rig, exits: tuple[Rig, Rig], fields: tuple[Any, ...]
) -> None:
    with Origin(refuses(*fields)) as busy:
        upstreams = upstream_entry(busy.port), of_rig(exits[0])
        use(rig, pool(f"busy-{fields[0]}", *upstreams, cooldown=COOLDOWN, retry_statuses=STATUSES))
        for _ in range(5):
            assert tunnels(rig).startswith(b"HTTP/1.1 200 ")
        assert busy.connections == 1


@pytest.mark.parametrize("script", [refuses(500), refuses(502), closes])
def test_what_an_upstream_does_with_one_target_is_no_reason_to_leave_it_out_but_three_targets_are(
    rig: Rig, script: Script
) -> None:
    with Origin(script) as bad, Origin(responds(b"HTTP/1.1 200 OK\r\n\r\n")) as good:
        upstreams = upstream_entry(bad.port), upstream_entry(good.port)
        name = f"targets{bad.port}"
        use(rig, pool(name, *upstreams, cooldown=COOLDOWN, retry_statuses=(502,), retry_connect=False))
        for asked, host in enumerate(("a.example",) * 4 + ("b.example", "x.a.example", "c.example")):
            assert bad.connections == asked
            with connect(rig) as client:
                client.sendall(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                read_head(client)
        with connect(rig) as client:
            client.sendall(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n")
            read_head(client)
        assert bad.connections == 7


def test_what_one_proxy_learns_of_a_pool_holds_for_another(rig: Rig, exits: tuple[Rig, Rig]) -> None:
    with Origin(refuses(429, "Retry-After: 60")) as busy, Rig(id="px-other") as other:
        rig.run_dir.pools.mkdir(exist_ok=True)
        other.run_dir.pools.symlink_to(rig.run_dir.pools)  # of one machine
        paris = pool("shared", upstream_entry(busy.port), of_rig(exits[0]), cooldown=COOLDOWN, retry_statuses=STATUSES)
        use(rig, paris)
        use(other, paris)
        assert tunnels(rig).startswith(b"HTTP/1.1 200 ")
        assert tunnels(other).startswith(b"HTTP/1.1 200 ")
        assert busy.connections == 1


# --- what upstreams respond to requests in absolute-form ------------------------------------------------------------

PLAIN = {"cooldown": COOLDOWN, "retry_statuses": STATUSES}


@pytest.mark.parametrize(
    "script",
    [
        refuses(407),
        refuses(429, "Proxy-Status: up; error=connection_limit_reached"),
        refuses(502),
        refuses(503, "Retry-After: 60"),
        refuses(503, "Via: 1.1 up", "Proxy-Status: up; error=proxy_internal_error"),
        closes,
    ],
)
def test_a_request_that_may_be_repeated_goes_to_another_upstream(
    rig: Rig, exits: tuple[Rig, Rig], script: Script
) -> None:
    with Origin(script) as bad, Origin(responds(counted(b"one"))) as origin:
        use(rig, pool("plain", upstream_entry(bad.port), of_rig(exits[0]), **PLAIN))
        head, body = answer(rig, get(origin))
        assert (head.split()[1], body) == (b"200", b"one")
        assert bad.connections <= 2  # behind a 407 it is asked itself whether that was its own


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_request_that_may_not_be_repeated_is_sent_once(rig: Rig, exits: tuple[Rig, Rig], method: str) -> None:
    for script, status in ((refuses(503), b"503"), (closes, b"502")):
        with Origin(script) as bad, Origin(responds(counted(b"one"))) as origin:
            use(rig, pool("once", upstream_entry(bad.port), of_rig(exits[0]), **PLAIN))
            for length in ("", "Content-Length: 2\r\n"):
                fields = f"Host: {origin.authority}\r\n{length}"
                request = f"{method} http://{origin.authority}/ HTTP/1.1\r\n{fields}\r\n" + ("ab" if length else "")
                use(rig, pool(f"once{len(length)}", upstream_entry(bad.port), of_rig(exits[0]), **PLAIN))
                assert answer(rig, request.encode())[0].split()[1] == status
            assert origin.connections == 0


def test_what_an_origin_responds_is_the_response(rig: Rig, exits: tuple[Rig, Rig]) -> None:
    """An upstream that passes it on adds its `Via`."""
    busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"
    with Origin(responds(busy, busy)) as origin:
        use(rig, pool("passed", *map(of_rig, exits), **PLAIN))
        for _ in range(2):
            head, body = answer(rig, get(origin))
            assert (head.split()[1], body) == (b"503", b"busy")
        assert not [each for each in exits[1].records if origin.authority in each["target_url"]]


def test_where_all_upstreams_refuse_the_last_response_is_the_client_s(rig: Rig) -> None:
    with Origin(refuses(502)) as one, Origin(refuses(503)) as two:
        use(rig, pool("refusing", upstream_entry(one.port), upstream_entry(two.port), **PLAIN))
        for _ in range(3):  # the target may be at fault, so that none of them cools down
            assert answer(rig, b"GET http://target.example/ HTTP/1.1\r\nHost: x\r\n\r\n")[0].split()[1] == b"503"
        assert (one.connections, two.connections) == (3, 3)


def test_as_many_upstreams_are_tried_as_the_pool_says(rig: Rig, exits: tuple[Rig, Rig]) -> None:
    with Origin(refuses(502)) as one, Origin(refuses(502)) as two, Origin(responds(counted(b"one"))) as origin:
        upstreams = upstream_entry(one.port), upstream_entry(two.port), of_rig(exits[0])
        for attempts, status in ((1, b"502"), (2, b"502"), (3, b"200")):
            use(rig, pool(f"tries{attempts}", *upstreams, attempts=attempts, **PLAIN))
            assert answer(rig, get(origin))[0].split()[1] == status
        use(rig, pool("never", *upstreams, retry_statuses=(), cooldown=COOLDOWN))
        assert answer(rig, get(origin))[0].split()[1] == b"502"


def test_an_upstream_that_wants_to_be_left_alone_is_not_the_last_resort(rig: Rig) -> None:
    with Origin(refuses(429, "Retry-After: 120")) as busy:
        use(rig, pool("alone", upstream_entry(busy.port), **PLAIN))
        assert tunnels(rig).startswith(b"HTTP/1.1 503 ")
        head = tunnels(rig)
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1" in head
        assert busy.connections == 1


def test_without_retries_of_connections_the_first_failure_is_the_client_s(rig: Rig, exits: tuple[Rig, Rig]) -> None:
    use(rig, pool("dead", upstream_entry(closed_port()), of_rig(exits[0]), retry_connect=False, cooldown=COOLDOWN))
    assert tunnels(rig).startswith(b"HTTP/1.1 502 ")
    assert tunnels(rig).startswith(b"HTTP/1.1 200 ")  # it is left alone now


@pytest.mark.parametrize("plain", [False, True], ids=["CONNECT", "absolute-form"])
def test_latency_is_what_clients_wait_for_so_the_faster_of_two_has_the_traffic(rig: Rig, plain: bool) -> None:
    reply = counted(b"one") if plain else b"HTTP/1.1 200 OK\r\n\r\n"
    used: Counter[float] = Counter()

    def upstream(delay: float) -> Script:
        def script(sock: socket.socket) -> None:
            while read_head(sock):
                used[delay] += 1
                threading.Event().wait(delay)
                sock.sendall(reply)

        return script

    with Origin(upstream(0.3)) as one, Origin(upstream(0.0)) as two:
        use(rig, pool(f"quick{one.port}", upstream_entry(one.port), upstream_entry(two.port), policy="latency"))
        method = b"GET http://a.example/" if plain else b"CONNECT a.example:443"
        for _ in range(30):
            with connect(rig) as client:
                client.sendall(method + b" HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
                assert read_head(client).startswith(b"HTTP/1.1 200 ")
        assert used[0.3] <= 10
        assert used[0.0] >= 20
        chosen = rig.ask(Explain("127.0.0.1", None, "http://a.example/")).upstreams.chosen
        assert chosen == f"http-{two.port}"


# --- what operators see ---------------------------------------------------------------------------------------------


def test_explain_shows_the_pool_the_chosen_upstream_and_why_others_are_left_out(
    rig: Rig, exits: tuple[Rig, Rig]
) -> None:
    with Origin(refuses(429, "Retry-After: 100")) as busy:
        upstreams = upstream_entry(busy.port), of_rig(exits[0], labels=(("country", "fr"),)), of_rig(exits[1])
        use(rig, pool("shown", *upstreams, policy="round_robin", **PLAIN))
        query = Explain("127.0.0.1", None, "http://target.example/")
        found = rig.ask(query).upstreams
        assert (found.pool, found.policy, found.chosen) == ("shown", "round_robin", f"http-{busy.port}")
        assert (found.total, found.usable, found.left_out) == (3, 3, ())
        assert rig.ask(query).upstreams == found, "explaining it chooses none"
        tunnels(rig)
        found = rig.ask(query).upstreams
        assert (found.usable, [each.name for each in found.left_out]) == (2, [f"http-{busy.port}"])
        assert found.left_out[0].why.startswith("cools down after 429 for ")
        rules = RuleSpec("direct", destinations=("direct.example",), use="direct"), RuleSpec("rest", use="pool:shown")
        use(rig, pool("shown", *upstreams), rules=rules)
        assert rig.ask(query).upstreams.pool == "shown"
        assert rig.ask(Explain("127.0.0.1", None, "http://direct.example/")).upstreams is None


def test_records_and_live_connections_name_the_pool_with_the_upstream(rig: Rig, exits: tuple[Rig, Rig]) -> None:
    use(rig, pool("named", of_rig(exits[0])))
    with Origin(echoes) as origin, tunnel(rig, origin) as client:
        client.sendall(b"hello")
        assert client.recv(10) == b"hello"
        query = QueryConnections(ConnectionFilter(target=origin.authority), "age", 10, 0)
        (live,) = rig.ask(query).connections
        assert (live.parent, live.pool) == (f"http-{exits[0].port}", "named")
        authority = origin.authority
    assert rig.record(target_url=authority)["pool"] == "named"
    with Origin(responds(counted(b"one"))) as origin:
        answer(rig, get(origin))
        record = rig.record(target_url=f"http://{origin.authority}/")
        assert (record["parent"], record["pool"]) == (f"http-{exits[0].port}", "named")


def test_a_failure_names_the_pool_in_proxy_status(rig: Rig) -> None:
    use(rig, pool("failing", upstream_entry(closed_port())))
    head = tunnels(rig)
    assert b"Proxy-Status: proxyfleet; error=connection_refused" in head
    assert b"(pool failing)" in head
    use(rig, pool("empty"))
    assert b'details="no upstream proxy can be used (pool empty)"' in tunnels(rig)


# --- labels, and upstreams that die ---------------------------------------------------------------------------------


def named(user: str) -> str:
    """The field with which a client sends this user name."""
    return "Proxy-Authorization: Basic " + base64.b64encode(f"{user}:x".encode()).decode()


def test_labels_of_the_user_name_choose_and_none_that_has_them_is_an_error_of_its_own(
    rig: Rig, exits: tuple[Rig, Rig]
) -> None:
    french = of_rig(exits[0], labels=(("country", "fr"), ("city", "paris")))
    german = of_rig(exits[1], labels=(("country", "de"),))
    use(rig, pool("labelled", french, german))
    rig.configure(username_params=UsernameParamsSpec())
    for user, upstream in (("a-country-de", german), ("a-country-fr-city-paris", french), ("a", french)):
        with Origin(responds(counted(b"one"))) as origin:
            request = get(origin).replace(b"\r\n\r\n", f"\r\n{named(user)}\r\n\r\n".encode())
            assert answer(rig, request)[1] == b"one"
            assert rig.record(target_url=f"http://{origin.authority}/")["parent"] == upstream.name
    with Origin(responds(counted(b"one"))) as origin:
        request = get(origin).replace(b"\r\n\r\n", f"\r\n{named('a-country-de-city-paris')}\r\n\r\n".encode())
        head = answer(rig, request)[0]
        assert head.startswith(b"HTTP/1.1 502 ")
        assert b"rule=no_upstream_matches" in head
        assert b"(pool labelled)" in head
        assert origin.connections == 0
    said = rig.ask(Explain("127.0.0.1", "a-country-de", "http://target.example/"))
    assert (said.upstreams.chosen, [each.why for each in said.upstreams.left_out]) == (
        german.name,
        ["it has not country=de"],
    )
    said = rig.ask(Explain("127.0.0.1", "a-country-it", "http://target.example/"))
    assert (said.decision, said.reason, said.stage) == ("deny", "no_upstream_matches", "upstreams")


def test_an_upstream_that_is_killed_under_load_costs_no_request(rig: Rig, exits: tuple[Rig, Rig]) -> None:
    with ExitStack() as stack, Origin(responds(*[counted(b"one")] * 1000)) as origin:
        killed = stack.enter_context(Rig(id="px-killed"))
        use(rig, pool("killed", of_rig(killed), of_rig(exits[0]), policy="round_robin", **PLAIN))
        bodies: list[bytes] = []
        ready = threading.Barrier(5, timeout=120)

        def ask() -> None:
            """Half of the requests before, and half while and behind that it is killed."""
            for number in range(40):
                if number == 20:
                    ready.wait()
                bodies.append(answer(rig, get(origin))[1])

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for each in threads:
            each.start()
        ready.wait()
        stack.close()
        for each in threads:
            each.join(120)
        assert bodies == [b"one"] * 160


# --- what is said of a failure --------------------------------------------------------------------------------------


def test_the_client_learns_what_happened_and_the_record_names_the_upstreams_and_what_each_did(rig: Rig) -> None:
    five_hundred = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
    with Origin(responds(five_hundred)) as one, Origin(responds(b"", then_close=True)) as two:
        closes, refuses, dead = upstream_entry(two.port), upstream_entry(one.port), upstream_entry(closed_port())
        use(rig, pool("paris", dead, closes, refuses))
        with connect(rig) as client:
            client.sendall(b"CONNECT named.example:443 HTTP/1.1\r\nHost: named.example:443\r\n\r\n")
            head = read_response(client)[0]
        assert head.startswith(b"HTTP/1.1 502 ")
        what = b"the upstream proxy responds 500, the last of 3 that were tried (pool paris)"
        assert what in head
        assert not [each for each in (dead, closes, refuses) if str(each.port).encode() in head]
        record = rig.record(target_url="named.example:443")
        assert (record["parent"], record["pool"]) == (refuses.name, "paris")
        before, _, tried = record["detail"].partition("; upstreams tried: ")
        assert (before, [each.split(" ")[0] for each in tried.split(", ")]) == (
            what.decode(),
            [dead.name, closes.name, refuses.name],
        )
        closed = f"{closes.name} (it closed the connection within the handshake)"
        assert tried.endswith(f"{closed}, {refuses.name} (it responds 500 to CONNECT)")
        use(rig, pool("lyon", closes))
        assert answer(rig, b"GET http://plain.example/ HTTP/1.1\r\nHost: plain.example\r\n\r\n")[0].startswith(
            b"HTTP/1.1 502 "
        )
        assert rig.record(target_url="http://plain.example/")["parent"] == closes.name
