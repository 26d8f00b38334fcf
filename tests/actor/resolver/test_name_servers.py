"""Several name servers: dead, slow and failing ones among them; and clients that ask for more than others."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import dns.message
import dns.rdatatype
import pytest

from actors.net.resolver_protocol import BUSY, FAILED, FOUND, SOME, TIMED_OUT
from actors.resolver import fair_queue, questions
from actors.resolver.fair_queue import RUNNING_MAX, RUNNING_OF_CLIENT, WAITING_MAX, FairQueue
from actors.resolver.profiles import ATTEMPTS, TIMEOUT, ProfileKey
from actors.resolver.questions import FOUND as FOUND_OUTCOME
from actors.resolver.questions import Cache, CachedResult
from actors.resolver.servers import UNUSED_MAX
from actors.resolver.service import DEADLINE
from actors.resolver.wire import A
from tests.actor.resolver.resolving import Resolving
from tests.kit.name_servers import ScriptedNameServer, SilentNameServer, negative, zone
from tests.kit.ports import free_port

NAMES = [f"host{number}.example.com" for number in range(60)]
EVERY = zone({"*": ("192.0.2.1",)})


def test_a_server_where_nothing_listens_costs_no_time(resolving: Resolving) -> None:
    with ScriptedNameServer(EVERY) as server:
        profile = resolving.profile(f"127.0.0.1:{free_port()}", server.address)
        before = resolving.loop.now
        assert resolving.addresses(profile, NAMES) == [("192.0.2.1",)] * len(NAMES)
        assert resolving.loop.now - before < 10.0


def test_a_silent_server_is_soon_asked_last(resolving: Resolving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "AGAIN_AFTER", 100.0)  # the other server may take a second to get its turn
    with SilentNameServer() as silent, ScriptedNameServer(EVERY) as server:
        profile = resolving.profile(silent.address, server.address)
        resolving.addresses(profile, NAMES)
        assert resolving.service.silent_servers() == {silent.address}
        before = resolving.service.counts.of_server(silent.address).queries
        resolving.addresses(profile, [f"again{number}.example.com" for number in range(20)])
        assert resolving.service.counts.of_server(silent.address).queries - before <= 2  # to learn whether it is back


def test_a_server_that_is_back_is_asked_again(resolving: Resolving) -> None:
    silent = threading.Event()
    silent.set()
    first = ScriptedNameServer(lambda query, way: None if silent.is_set() else EVERY(query, way))
    with first, ScriptedNameServer(EVERY) as second:
        profile = resolving.profile(first.address, second.address)
        resolving.addresses(profile, NAMES)
        assert resolving.service.silent_servers() == {first.address}
        silent.clear()
        numbers = iter(range(1000))

        def is_back() -> bool:
            resolving.skip(10.0)
            resolving.resolve(profile, f"later{next(numbers)}.example.com")
            return not resolving.service.silent_servers()

        resolving.turn_until(is_back)


def test_all_servers_silent_is_a_time_out_that_is_kept_for_a_moment(resolving: Resolving) -> None:
    with SilentNameServer() as silent:
        profile = resolving.profile(silent.address)
        replies = resolving.begin(profile, NAMES[0])
        for _second in range(11):
            resolving.skip(1.0)
        resolving.turn_until(lambda: replies)
        assert replies[0].status == TIMED_OUT
        assert resolving.resolve(profile, NAMES[0]).status == TIMED_OUT
        assert resolving.service.counts.hits == 1


@pytest.mark.parametrize("code", [2, 5])
def test_a_server_that_fails_is_followed_by_the_next(resolving: Resolving, code: int) -> None:
    with ScriptedNameServer(lambda query, _: negative(query, code, None)) as failing, ScriptedNameServer(EVERY) as good:
        assert resolving.resolve(resolving.profile(failing.address, good.address), NAMES[0]).content == ("192.0.2.1",)


def test_a_failure_of_all_servers_differs_from_a_name_that_does_not_exist(resolving: Resolving) -> None:
    with ScriptedNameServer(lambda query, _: negative(query, 2, None)) as failing:
        reply = resolving.resolve(resolving.profile(failing.address), NAMES[0])
        assert reply.status == FAILED
        assert "SERVFAIL" in reply.content
        assert len(failing.queries) == 2


@pytest.fixture
def named(tmp_path: Path) -> Iterator[Resolving]:
    """The system's name server knows good.example, which is 127.0.0.1, and says nothing about dead names."""
    with ScriptedNameServer(zone({"good.example": ("127.0.0.1",)}), ignores=b"dead") as system:
        (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        resolving = Resolving(tmp_path, system.port)
        yield resolving
        resolving.close()


def test_dead_names_of_name_servers_delay_no_other_and_have_a_deadline(named: Resolving) -> None:
    dead = [named.begin(named.profile(f"tls://dead{number}.example"), NAMES[0]) for number in range(40)]
    named.loop.turn(0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        named.begin(named.profile(f"tls://good.example:{listener.getsockname()[1]}"), NAMES[0])
        named.turn_until(lambda: select.select([listener], [], [], 0)[0])
    assert not any(dead)
    named.skip(DEADLINE + 0.5)
    assert not any(dead), "a question has more time: another server may respond"
    named.skip(TIMEOUT * ATTEMPTS - DEADLINE)
    named.turn_until(lambda: all(dead))
    assert {replies[-1].status for replies in dead} <= {FAILED, TIMED_OUT}


def test_a_name_server_may_have_one_of_this_machines_names(named: Resolving) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        named.begin(named.profile(f"tls://localhost:{listener.getsockname()[1]}"), NAMES[0])
        named.turn_until(lambda: select.select([listener], [], [], 0)[0])


def late(kind: str, released: threading.Event) -> Callable[[dns.message.Message, str], dns.message.Message | None]:
    both = zone({"*": ("192.0.2.1", "2001:db8::1")})

    def handle(query: dns.message.Message, way: str) -> dns.message.Message | None:
        if dns.rdatatype.to_text(query.question[0].rdtype) == kind and not released.is_set():
            return None
        response = both(query, way)
        assert isinstance(response, dns.message.Message)
        return response

    return handle


@pytest.mark.parametrize(("kind", "first"), [("AAAA", "192.0.2.1"), ("A", "2001:db8::1")])
def test_addresses_of_one_family_do_not_wait_for_late_ones_of_the_other(
    resolving: Resolving, kind: str, first: str
) -> None:
    released = threading.Event()
    with ScriptedNameServer(late(kind, released)) as server:
        replies = resolving.begin(resolving.profile(server.address), NAMES[0])
        resolving.turn_until(lambda: replies)
        assert (replies[0].status, replies[0].content) == (SOME, (first,))
        released.set()
        resolving.skip(2.0)  # it is asked again
        resolving.turn_until(lambda: len(replies) == 2)
        assert (replies[1].status, replies[1].content) == (FOUND, ("2001:db8::1", "192.0.2.1"))


def test_names_in_dead_zones_of_many_clients_delay_no_live_name(resolving: Resolving) -> None:
    with ScriptedNameServer(EVERY, ignores=b"dead") as server:
        profile = resolving.profile(server.address)
        profile.deadline = 300.0
        dead = [
            resolving.begin(profile, f"a{number}.dead{client}.example", f"10.0.0.{client}")
            for client in range(60)
            for number in range(20)
        ]
        for number in range(20):
            assert resolving.resolve(profile, f"live{number}.example.com", "192.0.2.9").content == ("192.0.2.1",)
        assert not any(dead)


def test_a_flood_of_one_client_leaves_room_for_others(resolving: Resolving) -> None:
    with SilentNameServer() as silent, ScriptedNameServer(EVERY) as server:
        flooded, live = resolving.profile(silent.address), resolving.profile(server.address)
        flood = [resolving.begin(flooded, f"f{number}.example", "10.0.0.1") for number in range(5000)]
        assert resolving.resolve(live, "live.example.com", "192.0.2.9").content == ("192.0.2.1",)
        busy = [replies for replies in flood if replies and replies[0].status == BUSY]
        assert len(busy) == 5000 - WAITING_MAX


def test_ten_thousand_distinct_names_of_one_client_are_bounded_and_let_others_through(
    resolving: Resolving, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 400  # as many as the test can afford to look up
    monkeypatch.setattr(fair_queue, "WAITING_MAX", most)
    with ScriptedNameServer(EVERY) as server:
        profile = resolving.profile(server.address)
        flood = [resolving.begin(profile, f"f{number}.example.com", "10.0.0.1") for number in range(10_000)]
        assert resolving.service.waiting <= most
        assert resolving.resolve(profile, "live.example.com", "192.0.2.9").content == ("192.0.2.1",)
        admitted = [replies for replies in flood if not replies or replies[0].status != BUSY]
        assert sum(map(bool, admitted)) < len(admitted) / 2, "it did not wait for most of them"
        resolving.turn_until(lambda: all(flood))
        assert len(admitted) == most
        assert resolving.service.waiting == 0
        resolving.turn_until(lambda: len(resolving.service.cache) == 2 * (most + 1))  # the other kind may come later


def test_of_more_names_than_fit_those_used_longest_ago_are_dropped() -> None:
    cache, key = Cache(size=10), ProfileKey()
    for number in range(100):
        cache.put((key, f"n{number}.example", A), CachedResult(FOUND_OUTCOME, ("192.0.2.1",), 60.0), 0.0)
        assert cache.get((key, "n0.example", A), 0.0), "it is in use"
    assert len(cache) == 10
    assert cache.get((key, "n99.example", A), 0.0)
    assert cache.get((key, "n50.example", A), 0.0) is None


def test_the_counters_of_servers_that_are_not_used_any_more_are_bounded(resolving: Resolving) -> None:
    used = resolving.profile("192.0.2.1")
    for number in range(2 * UNUSED_MAX):
        resolving.service.release(resolving.profile(f"192.0.2.53:{number + 1000}"))
    servers = resolving.service.counts.servers
    assert len(servers) <= UNUSED_MAX + len(used.servers) + 1  # the system's
    assert "192.0.2.1" in servers


class Job:
    """Runs until it is given up or ended."""

    def __init__(self) -> None:
        self.is_wanted = True
        self.state = "waits"

    def start(self) -> None:
        self.state, self.is_wanted = "runs", False

    def give_up(self) -> None:
        self.state = "given up"


class YieldingJob(Job):
    """Frees its place when it is given up, as lookups do."""

    def __init__(self, queue: FairQueue) -> None:
        super().__init__()
        self._queue = queue

    def give_up(self) -> None:
        super().give_up()
        self._queue.ended(self)


def test_a_client_has_no_more_than_its_share(resolving: Resolving) -> None:
    queue = FairQueue(resolving.loop)
    jobs = [Job() for _ in range(RUNNING_OF_CLIENT + 10)]
    for job in jobs:
        queue.add(("", "a"), job)
    resolving.turn_until(lambda: sum(job.state == "runs" for job in jobs) == RUNNING_OF_CLIENT)
    other = Job()
    queue.add(("", "b"), other)
    resolving.turn_until(lambda: other.state == "runs")
    assert queue.waiting == 10
    queue.ended(jobs[0])
    resolving.turn_until(lambda: queue.waiting == 9)


def test_the_oldest_of_the_largest_makes_room_for_a_client_without_any(resolving: Resolving) -> None:
    queue = FairQueue(resolving.loop, running_max=40)
    jobs = {client: [YieldingJob(queue) for _ in range(10)] for client in "abcd"}
    for client, row in jobs.items():
        for job in row:
            queue.add(("", client), job)
    resolving.turn_until(lambda: all(job.state == "runs" for row in jobs.values() for job in row))
    other = Job()
    queue.add(("", "e"), other)
    resolving.skip(2.0)
    resolving.turn_until(lambda: queue.add(("", "f"), Job()) and other.state == "runs")
    assert jobs["a"][0].state == "given up"
    assert RUNNING_MAX >= 4 * RUNNING_OF_CLIENT


def test_a_proxy_has_no_more_than_its_share_and_makes_room_for_its_own_clients(resolving: Resolving) -> None:
    """Sixteen places: two of each proxy, one of each of its clients."""
    queue = FairQueue(resolving.loop, running_max=16, by_proxy=True)

    def add(proxy: str, client: str) -> Job:
        job = YieldingJob(queue)
        assert queue.add((proxy, client), job)
        return job

    flood = [add("large", f"client {number}") for number in range(WAITING_MAX)]
    assert not queue.add(("large", "one more"), Job())
    small = add("small", "client")
    resolving.turn_until(lambda: small.state == "runs")
    assert [job.state for job in flood].count("runs") == 2
    resolving.skip(2.0)
    assert add("small", "other").state == "waits"  # which has the queue look again
    resolving.turn_until(lambda: flood[2].state == "runs")
    assert flood[0].state == "given up"
    assert small.state == "runs"


def test_a_proxy_without_any_gets_the_place_of_the_proxy_with_most(resolving: Resolving) -> None:
    queue = FairQueue(resolving.loop, running_max=16, by_proxy=True)
    jobs: dict[str, list[Job]] = {}
    for proxy in "abcdefgh":
        for number in range(2):
            job = YieldingJob(queue)
            jobs.setdefault(proxy, []).append(job)
            queue.add((proxy, str(number)), job)
    resolving.turn_until(lambda: all(job.state == "runs" for row in jobs.values() for job in row))
    resolving.skip(2.0)
    newcomer = Job()
    queue.add(("newcomer", ""), newcomer)
    resolving.turn_until(lambda: newcomer.state == "runs")
    assert [job.state for row in jobs.values() for job in row].count("given up") == 1
