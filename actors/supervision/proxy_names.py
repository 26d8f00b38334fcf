"""Sends the names of proxies to the actors that know proxies by their ids and publish them: collector and telemetry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from actors.bus.mailbox import MailboxRouter
from actors.bus.messages.common import METRICS, TELEMETRY
from actors.bus.messages.specs import ProxySpec
from actors.bus.messages.supervision import SetProxyNames

RECEIVERS = (METRICS, TELEMETRY)


class ProxyNamePublisher:
    """`receivers` are the names of the actors that run; those among `RECEIVERS` get the names of proxies."""

    def __init__(self, router: MailboxRouter, receivers: Iterable[str]) -> None:
        self._router = router
        self._receivers = [name for name in RECEIVERS if name in receivers]

    def started(self, actor: str, specs: Mapping[str, ProxySpec]) -> None:
        """`actor` runs; a receiver gets all names."""
        if actor in self._receivers:
            self._router.tell(actor, SetProxyNames(_names(specs)))

    def changed(self, before: Mapping[str, ProxySpec], after: Mapping[str, ProxySpec]) -> None:
        """Send what differs between two states of the same proxies."""
        known, names = _names(before), _names(after)
        new = {proxy_id: name for proxy_id, name in names.items() if known.get(proxy_id) != name}
        gone = tuple(known.keys() - names.keys())
        if new or gone:
            for receiver in self._receivers:
                self._router.tell(receiver, SetProxyNames(new, gone))


def _names(specs: Mapping[str, ProxySpec]) -> dict[str, tuple[str, int]]:
    return {proxy_id: (spec.name, spec.port) for proxy_id, spec in specs.items()}
