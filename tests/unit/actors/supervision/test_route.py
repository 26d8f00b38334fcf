"""Where the name of an actor leads, with one worker and with several."""

from __future__ import annotations

from typing import Any

import pytest

from actors.supervision.processes.instance import ActorRoute


class Router:
    """Stands in for the router: it keeps the calls that it got."""

    def __init__(self) -> None:
        self.orders: list[tuple[Any, ...]] = []

    def expect(self, name: str) -> None:
        self.orders.append(("expect", name))

    def set_current_instance(self, name: str, instance: int) -> None:
        self.orders.append(("set", name, instance))

    def clear_current_instance(self, name: str) -> None:
        self.orders.append(("clear", name))

    def taken(self) -> list[tuple[Any, ...]]:
        orders, self.orders = self.orders, []
        return [(order[0], *order[2:]) for order in orders]


@pytest.fixture
def router() -> Router:
    return Router()


@pytest.fixture
def route(router: Router) -> ActorRoute:
    stand_in: Any = router
    return ActorRoute(stand_in, "forwarding.a")


def test_with_one_worker_the_name_leads_to_its_process(router: Router, route: ActorRoute) -> None:
    route.expect(0)
    assert router.taken() == [("expect",)]
    route.serves(0, 10)
    assert router.taken() == [("set", 10)]
    route.serves(0, 11)
    assert router.taken() == [("set", 11)]
    route.gone(0)
    assert router.taken() == [("clear",)]
    route.expect(0)
    route.gone(0)
    assert router.taken() == [("expect",), ("clear",)]


def test_the_name_leads_to_the_lowest_that_serves_and_another_takes_over(router: Router, route: ActorRoute) -> None:
    route.expect(0)
    route.expect(1)
    route.serves(1, 21)
    assert router.taken()[-1] == ("set", 21)
    route.serves(0, 20)
    assert router.taken() == [("set", 20)]
    route.gone(0)
    route.expect(0)
    assert router.taken() == [("set", 21)]
    route.serves(0, 22)
    assert router.taken() == [("set", 22)]
    route.gone(1)
    assert router.taken() == []


def test_requests_wait_while_one_is_still_expected(router: Router, route: ActorRoute) -> None:
    route.expect(0)
    route.expect(1)
    router.taken()
    route.gone(1)
    assert router.taken() == []
    route.serves(0, 20)
    route.expect(1)
    route.gone(0)
    assert router.taken() == [("set", 20), ("clear",), ("expect",)]
    route.gone(1)
    assert router.taken() == [("clear",)]
