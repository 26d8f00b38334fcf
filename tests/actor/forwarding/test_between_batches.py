"""Requests on connections that are open from before a change, while that is still being applied to connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from actors.bus.messages.common import forwarding_name
from actors.bus.messages.forwarding import Configure
from actors.bus.messages.specs import LimitsSpec
from actors.forwarding.reconfiguration import Reconfiguration
from config.passwords import hash_password
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.actor.forwarding.in_process_actor import Inside, Threaded
from tests.kit.forwarding_rig import PROXY_ID, packed, until
from tests.kit.scripted_origins import Origin, counted, responds


class DelayedVisits:
    """Holds back what is to be done with open connections."""

    def __init__(self, rig: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
        self._rig = rig
        self._delayed: list[Callable[[], None]] = []
        self.replies: list[Any] = []
        visit = Reconfiguration._visit

        def hold(*given: Any) -> None:
            self._delayed.append(lambda: visit(*given))

        monkeypatch.setattr(Reconfiguration, "_visit", hold)

    def configure(self, **changes: Any) -> None:
        """The change is applied when this returns, and not acknowledged."""
        rig = self._rig
        rig.spec = replace(rig.spec, **changes)
        message = Configure(rig.spec, rig.egress, packed(rig.objects))
        rig.do(lambda: rig._router.ask(forwarding_name(PROXY_ID), message, self.replies.append))
        until(lambda: self._delayed, "it is applied")
        assert self.replies == []

    def go_on(self) -> None:
        """Until it is acknowledged."""
        assert isinstance(self._rig.process, Threaded)
        self._rig.process.do(self._delayed.pop())
        until(lambda: self.replies, "it is acknowledged")


@pytest.fixture
def rig() -> Iterator[Inside]:
    with Inside() as rig:
        yield rig


def test_a_request_meets_the_first_limit_though_its_connection_has_not_had_its_turn(
    rig: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits = DelayedVisits(rig, monkeypatch)
    with Origin(responds(*[counted(b"yes")] * 3)) as origin, connect(rig) as client:
        client.sendall(get(origin))
        assert b" 200 " in read_response(client)[0]
        visits.configure(limits=LimitsSpec(requests_per_minute=1))
        for status in (b" 200 ", b" 429 "):
            client.sendall(get(origin))
            assert status in read_response(client)[0]
        visits.go_on()
        client.sendall(get(origin))
        assert b" 429 " in read_response(client)[0]


def test_a_request_needs_credentials_though_its_connection_has_not_had_its_turn(
    rig: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits = DelayedVisits(rig, monkeypatch)
    with Origin(responds(*[counted(b"yes")] * 2)) as origin, connect(rig) as client:
        client.sendall(get(origin))
        assert b" 200 " in read_response(client)[0]
        visits.configure(auth_username="ada", auth_hash=hash_password("secret"))
        client.sendall(get(origin))
        assert b" 407 " in read_response(client)[0]
        visits.go_on()
