"""Lookups and password checks: which wait for which, when a name server is silent or a client guesses passwords."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from actors.bounded import keep
from actors.bus.loop import Loop
from actors.bus.messages.common import ApplySettings, Done
from actors.forwarding.access import authenticator as credentials_module
from actors.forwarding.access.authenticator import REMEMBERED, THREADS, CheckedPassword, ClientAuthenticator, prehash
from actors.forwarding.access.directory import Directory
from actors.forwarding.access.guess_limit import FAILURES_OF_CLIENT, FAILURES_OF_USER, PAUSE
from actors.forwarding.net.resolver import SHARE_OF_CLIENT, SHARE_OF_ZONE, Resolution, Resolved, Resolver, new_threads
from actors.forwarding.protocols.failures import Failure
from actors.net.this_machine import CHECKED_EVERY, HostsFile
from actors.thread_pool import DROPPED, ORDINARY_TURN, WAITING_MAX, FairThreadPool, ThreadPool
from tests.actor.forwarding.in_process_actor import Inside
from tests.kit.forwarding_rig import spec
from tests.kit.settings import boot_settings

DEADLINE = 120.0


class Client:
    """A requester: its address, and whether it is still there."""

    def __init__(self, client_ip: str) -> None:
        self.client_ip = client_ip
        self.waits = True


class SettableClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def run_until(loop: Loop, condition: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        loop.turn(0.05)


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def loop(clock: SettableClock) -> Iterator[Loop]:
    loop = Loop(clock)
    yield loop
    loop.close()


# --- threads ---


class Work:
    """Jobs that run until they are released; `began` has what runs or ran."""

    def __init__(self, loop: Loop, threads: int, shares: tuple[int, int]) -> None:
        self.workers = FairThreadPool(loop, threads, shares)
        self.began: list[str] = []
        self.results: dict[str, Any] = {}
        self.released = threading.Event()

    def submit(self, name: str, first: str, second: str, starts: Callable[[], bool] = lambda: True) -> None:
        def work() -> str:
            self.began.append(name)
            self.released.wait(DEADLINE)
            return name

        def done(result: Any) -> None:
            self.results[name] = result

        self.workers.submit((first, second), work, done, starts)


@pytest.fixture
def work(loop: Loop) -> Iterator[Work]:
    work = Work(loop, 3, (2, 2))
    yield work
    work.released.set()


def test_a_client_whose_jobs_hang_leaves_threads_for_others(loop: Loop, work: Work) -> None:
    for number in range(9):
        work.submit(f"a{number}", "a", f"zone {number}")
    work.submit("b", "b", "zone")
    run_until(loop, lambda: len(work.began) >= 3)
    assert sorted(work.began) == ["a0", "a1", "b"]


def test_a_zone_whose_jobs_hang_leaves_threads_for_others(loop: Loop, work: Work) -> None:
    for number in range(9):
        work.submit(f"dead {number}", f"client {number}", "dead")
    work.submit("live", "client 0", "live")
    run_until(loop, lambda: len(work.began) >= 3)
    assert sorted(work.began) == ["dead 0", "dead 1", "live"]


def test_clients_take_turns_and_so_do_the_labels_of_one_client(loop: Loop) -> None:
    work = Work(loop, 1, (1, 1))
    for name, first, second in (
        ("a1", "a", "x"),
        ("a2", "a", "x"),
        ("a3", "a", "x"),
        ("a4", "a", "y"),
        ("b1", "b", "x"),
        ("b2", "b", "x"),
    ):
        work.submit(name, first, second)
    work.released.set()
    run_until(loop, lambda: len(work.results) == 6)
    assert work.began == ["a1", "a2", "b1", "a4", "b2", "a3"]


def test_what_is_not_wanted_when_its_turn_comes_never_runs(loop: Loop, work: Work) -> None:
    work.submit("a1", "a", "x")
    work.submit("a2", "a", "x")
    work.submit("gone", "a", "x", starts=lambda: False)
    work.submit("a3", "a", "x")
    work.released.set()
    run_until(loop, lambda: len(work.results) == 4)
    assert work.began == ["a1", "a2", "a3"]
    assert work.results["gone"] is DROPPED


def test_no_client_fills_the_queue(loop: Loop, work: Work) -> None:
    for number in range(WAITING_MAX + 3):
        work.submit(f"a{number}", "a", "x")
    work.submit("b", "b", "y")
    run_until(loop, lambda: "b" in work.began and DROPPED in work.results.values())
    assert work.results == {f"a{WAITING_MAX + 2}": DROPPED}
    assert work.workers.waiting == WAITING_MAX


def test_a_job_that_raises_gives_its_share_back(loop: Loop) -> None:
    workers = FairThreadPool(loop, 1, (1, 1))
    results: list[object] = []
    for _ in range(2):
        workers.submit(("a", "x"), lambda: 1 // 0, results.append, lambda: True)
    run_until(loop, lambda: results == [None, None])


def test_an_idle_thread_holds_nothing_of_its_last_job(loop: Loop) -> None:
    class Connection:
        """What a job is about."""

        def ended(self, result: object) -> None:
            results.append(result)

    results: list[object] = []
    connection = Connection()
    reference = weakref.ref(connection)
    ThreadPool(loop).submit(lambda: "done", connection.ended)
    del connection
    run_until(loop, lambda: results == ["done"] and gc.collect() >= 0 and reference() is None)


def test_a_full_table_loses_its_oldest_entry_alone() -> None:
    table: dict[str, int] = {}
    for number, key in enumerate("abac"):
        keep(table, key, number, 2)
    assert table == {"a": 2, "c": 3}


# --- names ---


class Names:
    """A resolver whose lookups in `dead.example` and in the zones of `dead` hang; `results` has what came, by name."""

    def __init__(self, loop: Loop, hosts: Path) -> None:
        self.resolver = Resolver(loop, new_threads(loop), self._look_up, HostsFile(hosts))
        self.looked_up: list[str] = []
        self.results: dict[str, list[Resolution]] = {}
        self.released = threading.Event()

    def ask(self, name: str, client: Client) -> None:
        self.resolver.resolve(name, self.results.setdefault(name, []).append, client)

    def _look_up(self, name: str) -> Resolution:
        self.looked_up.append(name)
        if name.endswith((".dead.example", ".dead")):
            self.released.wait(DEADLINE)
        return Resolved(("192.0.2.1",))


@pytest.fixture
def names(loop: Loop, tmp_path: Path) -> Iterator[Names]:
    (tmp_path / "hosts").write_text(
        "# local\n192.0.2.7 Known.example alias # comment\n2001:db8::7 known.example\nx y\n"
    )
    names = Names(loop, tmp_path / "hosts")
    yield names
    names.released.set()


def test_a_dead_zone_stalls_no_other_name_even_of_the_same_client(loop: Loop, names: Names) -> None:
    client = Client("192.0.2.9")
    for number in range(40):
        names.ask(f"r{number}.dead.example", client)
    names.ask("live.test", client)
    run_until(loop, lambda: names.results["live.test"] and len(names.looked_up) > SHARE_OF_ZONE)
    assert len(names.looked_up) == SHARE_OF_ZONE + 1


def test_many_dead_zones_stall_no_name_of_another_client(loop: Loop, names: Names) -> None:
    for number in range(40):
        names.ask(f"r.zone{number}.dead", Client(f"2001:db8::{number}"))
    names.ask("live.test", Client("2001:db8:1::1"))
    run_until(loop, lambda: names.results["live.test"])
    assert len(names.looked_up) <= SHARE_OF_CLIENT + 1


@pytest.mark.parametrize(("kept", "passed", "lookups"), [(60.0, 59.0, 1), (60.0, 61.0, 2), (0.0, 0.0, 2)])
def test_addresses_are_kept_as_long_as_the_setting_says(
    loop: Loop, clock: SettableClock, names: Names, kept: float, passed: float, lookups: int
) -> None:
    names.resolver.longest_ttl = kept
    for count in (1, 2):
        names.ask("live.test", Client("192.0.2.9"))
        run_until(loop, lambda: len(names.results["live.test"]) == count)  # noqa: B023
        clock.now += passed
        loop.turn(0)
    assert len(names.looked_up) == lookups


def test_the_setting_applies_to_a_running_proxy() -> None:
    with Inside() as rig:
        assert rig.inspect(lambda shared: shared.dialer.resolver.longest_ttl) == 30.0
        proxy = boot_settings(proxy={"dns_cache_seconds": 5})["proxy"]
        assert rig.ask(ApplySettings({"proxy": proxy})) == Done()
        assert rig.inspect(lambda shared: shared.dialer.resolver.longest_ttl) == 5.0


def test_names_of_this_machine_need_no_thread(loop: Loop, names: Names) -> None:
    for name in ("known.example", "KNOWN.example.", "alias", "localhost", "localhost.", "x.localhost"):
        names.ask(name, Client("192.0.2.9"))
    assert names.results["known.example"] == names.results["KNOWN.example."] == [Resolved(("192.0.2.7", "2001:db8::7"))]
    assert names.results["alias"] == [Resolved(("192.0.2.7",))]
    assert names.results["localhost"] == names.results["x.localhost"] == [Resolved(("127.0.0.1", "::1"))]
    assert names.looked_up == []


def test_a_changed_hosts_file_is_read_again(clock: SettableClock, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    hosts = HostsFile(path)
    assert hosts.find("a", clock.now) is None
    path.write_text("192.0.2.1 a\n")
    assert hosts.find("a", clock.now + CHECKED_EVERY) == ("192.0.2.1",)
    path.unlink()
    assert hosts.find("a", clock.now + 2 * CHECKED_EVERY) is None


def test_a_name_that_no_one_waits_for_any_more_is_not_looked_up(loop: Loop, names: Names) -> None:
    for number in range(SHARE_OF_ZONE):
        names.ask(f"r{number}.dead.example", Client("192.0.2.9"))
    gone, stays = Client("192.0.2.9"), Client("192.0.2.10")
    names.ask("gone.dead.example", gone)
    names.ask("both.dead.example", gone)
    names.ask("both.dead.example", stays)
    gone.waits = False
    names.released.set()
    run_until(loop, lambda: names.results["gone.dead.example"] and len(names.results["both.dead.example"]) == 2)
    assert isinstance(names.results["gone.dead.example"][0], Failure)
    assert names.results["both.dead.example"][1] == Resolved(("192.0.2.1",))
    assert "gone.dead.example" not in names.looked_up
    assert names.looked_up.count("both.dead.example") == 1
    names.ask("gone.dead.example", stays)
    run_until(loop, lambda: len(names.results["gone.dead.example"]) == 2)
    assert names.results["gone.dead.example"][1] == Resolved(("192.0.2.1",))


# --- passwords ---


class Desk:
    """Credentials of two users; `checked` counts what was hashed."""

    def __init__(self, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = loop
        self.checked = 0
        self._right_at = 0
        """What `checked` was when the right password's turn came, that one included."""
        self.seconds = 0.0
        monkeypatch.setattr(credentials_module, "check", self._check)
        hashed = bcrypt.hashpw(prehash(b"right"), bcrypt.gensalt(4)).decode()
        self.credentials = ClientAuthenticator(loop)
        self.credentials.update(spec(1, auth_username="ada", auth_hash=hashed))

    def _check(self, password: bytes, stored: bytes | None) -> CheckedPassword:
        """As the real one, without the rounds that a wrong password costs."""
        self.checked += 1
        if password == b"right":
            self._right_at = self.checked
        matches = stored is not None and bcrypt.checkpw(prehash(password), stored)
        return CheckedPassword(matches, rounds=16, seconds=self.seconds)

    def begin(self, user: str, password: str, client: Client) -> list[object]:
        """The result, once it is there."""
        results: list[object] = []

        def done(found: str | None, _credential: object = None, _failure: object = None, /) -> None:
            results.append(found)

        self.credentials.check(user, password.encode(), client, done, lambda: results.append("gone"))
        return results

    def result_of(self, user: str, password: str, client_ip: str = "192.0.2.1") -> object:
        results = self.begin(user, password, Client(client_ip))
        run_until(self.loop, lambda: results)
        return results[0]

    def turns_until_right(self) -> int:
        """How many are checked while the right password waits for its turn, and it; threads go on before and after."""
        results = self.begin("ada", "right", Client("192.0.2.1"))
        before = self.checked
        run_until(self.loop, lambda: results)
        assert results == ["ada"]
        assert self._right_at, "it was remembered, not checked"
        return self._right_at - before


@pytest.fixture
def desk(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(loop, monkeypatch)


def test_a_wrong_pair_is_remembered_for_some_seconds(desk: Desk, clock: SettableClock) -> None:
    assert [desk.result_of("ada", "wrong") for _ in range(3)] == [None, None, None]
    assert desk.checked == 1
    clock.now += 11
    desk.loop.turn(0)
    desk.result_of("ada", "wrong")
    assert desk.checked == 2


def test_a_refusal_waits_for_as_long_as_the_dearest_hash_would_take(
    desk: Desk, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.seconds = 0.5
    monkeypatch.setattr(Directory, "most_rounds", lambda _self: 64)
    refused, also = (desk.begin("eve", "wrong", Client("192.0.2.1")) for _ in range(2))
    run_until(desk.loop, lambda: desk.checked == 1)
    assert desk.result_of("ada", "right") == "ada"
    for _ in range(20):
        desk.loop.turn(0.01)
    clock.now += 1.4
    desk.loop.turn(0)
    assert (refused, also) == ([], [])
    assert desk.begin("eve", "wrong", Client("192.0.2.1")) == []  # the same again discloses nothing either
    clock.now += 0.2
    run_until(desk.loop, lambda: refused)
    assert (refused, also, desk.checked) == ([None], [None], 2)


def test_a_remembered_wrong_pair_that_becomes_right_is_right_at_once(desk: Desk) -> None:
    assert desk.result_of("ada", "new") is None
    hashed = bcrypt.hashpw(prehash(b"new"), bcrypt.gensalt(4)).decode()
    desk.credentials.update(spec(1, auth_username="ada", auth_hash=hashed))
    assert desk.result_of("ada", "new") == "ada"


def test_a_password_that_is_changed_while_it_is_checked_is_not_right(desk: Desk) -> None:
    results = desk.begin("ada", "right", Client("192.0.2.1"))
    hashed = bcrypt.hashpw(prehash(b"new"), bcrypt.gensalt(4)).decode()
    desk.credentials.update(spec(1, auth_username="ada", auth_hash=hashed))
    run_until(desk.loop, lambda: results)
    assert (results, desk.result_of("ada", "new")) == ([None], "ada")


def test_after_many_failures_a_client_is_refused_unchecked_and_others_are_not(desk: Desk, clock: SettableClock) -> None:
    assert desk.result_of("ada", "right") == "ada"
    for number in range(FAILURES_OF_USER + 20):
        assert desk.result_of("eve", f"wrong {number}") is None
    assert desk.checked == 1 + FAILURES_OF_USER
    assert desk.result_of("eve", "one more", "192.0.2.2") is None
    assert desk.checked == 2 + FAILURES_OF_USER
    clock.now += PAUSE + 1
    desk.loop.turn(0)
    desk.result_of("eve", "again")
    assert desk.checked == 3 + FAILURES_OF_USER


def test_behind_a_guesser_known_users_pass_and_from_elsewhere_all(desk: Desk, clock: SettableClock) -> None:
    assert desk.result_of("ada", "right") == "ada"
    for number in range(FAILURES_OF_CLIENT):
        desk.result_of(f"user {number}", "wrong")
    assert desk.result_of("zoe", "never checked") is None
    assert desk.checked == 1 + FAILURES_OF_CLIENT
    clock.now += PAUSE - 1
    desk.loop.turn(0)
    assert desk.result_of("ada", "right") == "ada"
    assert desk.result_of("ada", "right", "192.0.2.2") == "ada"


def test_clients_of_one_slash_64_are_one(desk: Desk) -> None:
    for number in range(FAILURES_OF_USER + 5):
        desk.result_of("ada", f"wrong {number}", f"2001:db8::{number}")
    assert desk.checked == FAILURES_OF_USER
    assert desk.result_of("ada", "right", "2001:db8:0:1::1") == "ada"


def test_passwords_of_clients_that_have_gone_are_not_checked(desk: Desk) -> None:
    flood = [Client("192.0.2.1") for _ in range(100)]
    results = [desk.begin("ada", f"wrong {number}", client) for number, client in enumerate(flood)]
    for client in flood:
        client.waits = False
    assert desk.result_of("ada", "right") == "ada"
    run_until(desk.loop, lambda: all(results))
    assert desk.checked <= 3
    assert sum(result == ["gone"] for result in results) >= 98


def test_one_pair_that_comes_many_times_at_once_is_checked_for_those_that_run_alone(desk: Desk) -> None:
    results = [desk.begin("ada", "right", Client("192.0.2.1")) for _ in range(50)]
    run_until(desk.loop, lambda: all(results))
    assert {result[0] for result in results} == {"ada"}
    assert desk.checked <= 2


def test_a_user_who_was_known_a_while_ago_waits_behind_nobodys_guesses(desk: Desk, clock: SettableClock) -> None:
    assert desk.result_of("ada", "right") == "ada"
    clock.now += REMEMBERED + 1
    guesses = [desk.begin("ada", f"wrong {number}", Client(f"198.51.100.{number}")) for number in range(50)]
    assert desk.begin("ada", "right", Client("192.0.2.1")) == ["ada"]
    run_until(desk.loop, lambda: all(guesses))
    checked = desk.checked
    assert desk.result_of("ada", "right") == "ada"
    assert desk.checked == checked + 1, "none waits now, so it is checked again"


def test_guesses_from_many_addresses_keep_no_first_password_of_another_client_waiting(desk: Desk) -> None:
    attackers = [Client(f"198.51.100.{number}") for number in range(150)]
    for attacker in attackers:
        assert desk.result_of("ada", "wrong at first", attacker.client_ip) is None
    guesses = [desk.begin("ada", f"wrong {number}", each) for number in range(5) for each in attackers]
    assert desk.turns_until_right() <= 2 * THREADS + 1
    run_until(desk.loop, lambda: all(guesses))


def test_first_guesses_from_one_network_keep_clients_of_others_waiting_for_one_of_them_at_most(desk: Desk) -> None:
    guesses = [desk.begin("ada", f"wrong {number}", Client(f"198.51.100.{number}")) for number in range(150)]
    assert desk.turns_until_right() <= 2 * THREADS + 1
    run_until(desk.loop, lambda: all(guesses))


def test_who_failed_once_has_a_turn_whatever_number_of_others_come_for_the_first_time(desk: Desk) -> None:
    assert desk.result_of("ada", "mistyped") is None
    guesses = [desk.begin("ada", f"wrong {number}", Client(f"198.51.{number}.1")) for number in range(150)]
    assert desk.turns_until_right() <= 3 * ORDINARY_TURN + THREADS
    run_until(desk.loop, lambda: all(guesses))


def test_guesses_from_many_networks_of_one_site_keep_no_user_elsewhere_waiting(desk: Desk) -> None:
    guesses = [desk.begin("ada", f"wrong {number}", Client(f"2001:db8:0:{number:x}::1")) for number in range(100)]
    assert desk.turns_until_right() <= 8
    run_until(desk.loop, lambda: all(guesses))


def test_dead_zones_asked_for_from_many_networks_of_one_site_leave_threads_for_others(loop: Loop, names: Names) -> None:
    for number in range(60):
        names.ask(f"r.zone{number}.dead", Client(f"2001:db8:0:{number:x}::1"))
    names.ask("live.test", Client("192.0.2.1"))
    run_until(loop, lambda: names.results["live.test"])
