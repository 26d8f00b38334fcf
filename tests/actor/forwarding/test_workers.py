"""Limits of a proxy with two workers hold for both together, whichever of them a client meets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors import problems
from actors.bus.messages.common import WORKERS
from actors.bus.messages.specs import AccountSpec, LimitsSpec
from actors.forwarding.access.guess_limit import FAILURES_OF_USER
from actors.supervision.processes.live_state_files import LiveStateFiles
from tests.actor.forwarding.account_client import account, ask, credentials
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.actor.forwarding.in_process_actor import Inside
from tests.actor.forwarding.workers import WorkerRig, two_workers
from tests.kit.forwarding_rig import PROXY_ID, Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, read_all, read_head_alone, responds

Two = tuple[WorkerRig, WorkerRig]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    with two_workers(tmp_path_factory.mktemp("workers") / "w") as both:
        yield both


@pytest.fixture
def two(pair: Two) -> Two:
    """Without the limits and accounts of the test before, and without its connections."""
    configure(pair, max_connections=1000, limits=LimitsSpec(), accept_proxy_protocol=False)
    until(lambda: pair[0].open_everywhere() == 0, "all have ended")
    return pair


def configure(both: Two, *accounts: AccountSpec, **changes: object) -> None:
    for rig in both:
        rig.configure(accounts=accounts, auth_required=bool(accounts), **changes)


def open_tunnel(rig: Rig, origin: Origin, *fields: str) -> socket.socket:
    sock = connect(rig)
    lines = (f"CONNECT {origin.authority} HTTP/1.1", "Host: x", *fields, "", "")
    sock.sendall("\r\n".join(lines).encode())
    head = read_head_alone(sock)
    assert head.startswith(b"HTTP/1.1 200 "), head
    return sock


def refused_tunnel(rig: Rig, origin: Origin, *fields: str) -> bytes:
    with connect(rig) as sock:
        lines = (f"CONNECT {origin.authority} HTTP/1.1", "Host: x", *fields, "", "")
        sock.sendall("\r\n".join(lines).encode())
        return read_all(sock)


def opens(rig: Rig, origin: Origin, *fields: str) -> bool:
    """Whether a tunnel is not refused; it is closed again."""
    with connect(rig) as sock:
        lines = (f"CONNECT {origin.authority} HTTP/1.1", "Host: x", *fields, "", "")
        sock.sendall("\r\n".join(lines).encode())
        return read_head_alone(sock).startswith(b"HTTP/1.1 200 ")


def status(rig: Rig, origin: Origin) -> tuple[int, bytes]:
    with connect(rig) as sock:
        sock.sendall(get(origin))
        head, _body = read_response(sock)
    return int(head.split()[1]), head


def test_connections_of_a_client_are_those_of_both(two: Two) -> None:
    one, other = two
    configure(two, limits=LimitsSpec(connections=2))
    with Origin(echoes) as origin:
        with open_tunnel(one, origin), open_tunnel(other, origin):
            for rig in two:
                assert b"rule=client_connection_limit" in refused_tunnel(rig, origin)
        for rig in two:
            until(lambda rig=rig: opens(rig, origin), "the places are free again")


def test_open_connections_of_the_proxy_are_those_of_both(two: Two) -> None:
    one, other = two
    configure(two, max_connections=2)
    with Origin(echoes) as origin:
        with open_tunnel(one, origin), open_tunnel(other, origin):
            for rig in two:
                with connect(rig) as third:
                    assert b"error=connection_limit_reached" in read_all(third)
        for rig in two:
            until(lambda rig=rig: opens(rig, origin), "the places are free again")


def test_a_client_that_is_silent_at_one_has_a_place_at_the_other(two: Two) -> None:
    one, other = two
    configure(two, max_connections=2, accept_proxy_protocol=True)
    with connect(one), connect(one):
        until(lambda: one.open_everywhere() == 2, "both are open")
        with connect(other) as third:
            assert b"error=connection_limit_reached" in read_all(third)
    until(lambda: one.open_everywhere() == 0, "both have ended")


def test_connections_of_an_account_are_those_of_both(two: Two) -> None:
    one, other = two
    configure(two, account("ada", limits=LimitsSpec(connections=1)), account("bob"))
    with Origin(echoes) as origin:
        with open_tunnel(one, origin, credentials("ada")), open_tunnel(other, origin, credentials("bob")):
            for rig in two:
                assert b"rule=account_connection_limit" in refused_tunnel(rig, origin, credentials("ada"))
        until(lambda: opens(other, origin, credentials("ada")), "the place is free again")


def test_a_limit_that_is_set_later_counts_what_is_open_at_the_other(two: Two) -> None:
    one, other = two
    configure(two, account("ada"))
    with Origin(echoes) as origin, open_tunnel(one, origin, credentials("ada")):
        configure(two, account("ada", limits=LimitsSpec(connections=1)))
        assert b"rule=account_connection_limit" in refused_tunnel(other, origin, credentials("ada"))
        configure(two, account("ada"))
        assert opens(other, origin, credentials("ada"))


def test_requests_of_a_client_are_those_of_both_and_it_learns_when_to_come_again(two: Two) -> None:
    one, other = two
    configure(two, limits=LimitsSpec(requests_per_minute=3))
    with Origin(responds(*[counted(b"yes")] * 9)) as origin:
        assert [status(rig, origin)[0] for rig in (one, other, one)] == [200, 200, 200]
        for rig in two:
            code, head = status(rig, origin)
            assert code == 429
            assert 1 <= int(head.lower().split(b"retry-after: ")[1].split(b"\r\n")[0]) <= 67


def test_requests_of_an_account_used_up_at_one_are_refused_at_the_other(two: Two) -> None:
    one, other = two
    configure(two, account("eve", limits=LimitsSpec(requests_per_minute=2)))
    with Origin(responds(*[counted(b"yes")] * 9)) as origin, connect(one) as here, connect(other) as there:
        assert [ask(here, origin, "eve")[0] for _ in range(3)] == [200, 200, 429]
        assert ask(there, origin, "eve")[0] == 429


def test_wrong_passwords_are_those_of_both(two: Two) -> None:
    """Ten of a client for one user; then the right one isn't checked either."""
    one, other = two
    configure(two, account("joe"))
    with Origin(responds(*[counted(b"yes")] * 9)) as origin, connect(one) as here, connect(other) as there:
        for number in range(FAILURES_OF_USER):
            assert ask((here, there)[number % 2], origin, "joe", f"wrong-{number}")[0] == 407
        assert ask(there, origin, "joe")[0] == 407
        assert ask(here, origin, "joe")[0] == 407


def test_a_bandwidth_is_divided_between_both(two: Two) -> None:
    """What each gets by itself is in the unit tests, by a clock set by hand; here both move all of it and count it."""
    configure(two, limits=LimitsSpec(bandwidth_out=2_000_000))
    body = b"x" * 300_000
    with Origin(responds(*[counted(body)] * 2)) as origin, connect(two[0]) as here, connect(two[1]) as there:
        for client in (here, there):
            client.sendall(get(origin))
        assert [read_response(client)[1] for client in (here, there)] == [body] * 2
    assert (two[0].run_dir.state / PROXY_ID).exists()


def test_what_a_dead_worker_had_open_counts_no_more_and_its_requests_do(tmp_path: Path) -> None:
    limits = LimitsSpec(connections=1, requests_per_minute=2)
    with two_workers(tmp_path / "w", limits=limits) as (one, other), Origin(echoes) as origin:
        with open_tunnel(one, origin):
            assert b"rule=client_connection_limit" in refused_tunnel(other, origin)
            one.kill()
            assert opens(other, origin)
        until(lambda: b"rule=client_request_limit" in refused_tunnel(other, origin), "two were made")


def test_a_process_that_cannot_share_serves_and_says_that_it_counts_alone() -> None:
    with Rig(params={"number": 1 << 12 | 1}, limits=LimitsSpec(requests_per_minute=1)) as rig:
        with Origin(responds(*[counted(b"yes")] * 3)) as origin:
            assert [status(rig, origin)[0] for _ in range(2)] == [200, 429]
        until(lambda: (WORKERS, "") in rig.problems, "it is a problem of the proxy")


class Worker(WorkerRig, Inside):
    """In a thread of the test."""


def test_what_cannot_be_shared_for_a_while_is_a_problem_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problems, "QUIET", 0.1)
    (tmp_path / PROXY_ID).mkdir()
    with Worker(tmp_path, LiveStateFiles(tmp_path), 1) as rig:
        until(lambda: (WORKERS, "") in rig.problems, "its file is a folder")
        (tmp_path / PROXY_ID).rmdir()
        until(lambda: (WORKERS, "") not in rig.problems, "it could be made")
