"""Hosts of listeners: addresses without a resolver, names within a moment."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from actors.supervision.listeners.bind import GIVEN_UP_FOR, HostnameResolver


class Resolver:
    """Resolves `good.example`; is silent for `silent.example` until it is released."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.released = threading.Event()
        self.now = 0.0

    def __call__(self, host: str, port: int, **options: Any) -> list[Any]:
        if options["flags"] & socket.AI_NUMERICHOST:
            return socket.getaddrinfo(host, port, **options)
        self.asked.append(host)
        if host == "silent.example":
            self.released.wait(20)
        if host != "good.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", port))]

    def names(self) -> HostnameResolver:
        return HostnameResolver(self, lambda: self.now)


@pytest.mark.parametrize(
    ("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6), ("0.0.0.0", socket.AF_INET)]
)
def test_no_resolver_is_asked_for_an_address(host: str, family: int) -> None:
    resolver = Resolver()
    found, address = resolver.names().resolve(host, 80)
    assert (found, address[:2]) == (family, (host, 80))
    assert resolver.asked == []


def test_a_name_is_looked_up() -> None:
    assert Resolver().names().resolve("good.example", 80) == (socket.AF_INET, ("192.0.2.7", 80))


def test_a_name_that_no_one_knows_is_reported_as_the_resolver_tells_it() -> None:
    with pytest.raises(socket.gaierror, match="not known"):
        Resolver().names().resolve("bad.example", 80)


def test_a_silent_resolver_is_given_up_and_not_asked_again_for_a_while() -> None:
    resolver = Resolver()
    names = resolver.names()
    for _ in range(3):
        with pytest.raises(TimeoutError, match="in time"):
            names.resolve("silent.example", 80, patience=0.05)
    assert resolver.asked == ["silent.example"]
    resolver.now += GIVEN_UP_FOR + 1
    resolver.released.set()
    with pytest.raises(socket.gaierror):
        names.resolve("silent.example", 80, patience=20)
    assert resolver.asked == ["silent.example"] * 2


def test_a_name_of_this_machine_needs_no_stand_in() -> None:
    assert HostnameResolver().resolve("localhost", 80)[1][:2] in (("127.0.0.1", 80), ("::1", 80))
