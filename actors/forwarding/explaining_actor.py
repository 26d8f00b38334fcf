"""Explains decisions for a proxy that sleeps: a forwarding actor without sockets, counters, records and problems.

It is configured as the proxy is and lives for some seconds after its last explanation
(`actors.supervision.occasional_actors`). Before each explanation it gets what the accounts have used.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from actors.bus.codec import unpack
from actors.bus.mailbox import Reply, refuse
from actors.bus.messages.common import Done, Failed
from actors.bus.messages.forwarding import Configure, Explain
from actors.forwarding.context import ForwardingContext
from actors.forwarding.explain import reply_explanation
from actors.forwarding.fleet_objects import ObjectReader
from actors.forwarding.limits.accounts_in_use import UnreadableError
from actors.forwarding.limits.earlier_usage import EarlierUsage
from actors.forwarding.net.resolver_link import merged
from actors.forwarding.reconfiguration import Configuration, Reconfiguration
from actors.process import Actor, Boot


class ExplainingActor(Actor):
    """`boot.params` may have the configuration; another one comes as for a forwarding actor."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        proxy = boot.settings["proxy"]
        self._shared = ForwardingContext(
            self.loop,
            lambda _row: None,
            proxy["max_idle_connections"],
            float(proxy["keep_alive_timeout"]),
            fleet=self.data_dir.fleet,
            lists=self.data_dir.lists,
            run_dir=self.run_dir,
        )
        self._objects = ObjectReader()
        self._reconfiguration = Reconfiguration(self._shared, lambda _spec: None)
        self._earlier_usage = EarlierUsage(self.loop, self.mailbox, self._shared.limits.usage)
        if "configure" in boot.params:
            self._configure(unpack(Configure, boot.params["configure"]), lambda: None)
        self.ready()

    def receive(self, sender: str, message: Any, reply: Reply) -> None:
        """Handle a query or an order."""
        if isinstance(message, Configure):
            self._configure(message, lambda: reply(Done()))
        elif isinstance(message, Explain) and self._shared.configured:
            self._with_totals(message, reply)
        elif isinstance(message, Explain):
            reply(Failed("not configured yet"))
        else:
            refuse(sender, message, reply)

    def _configure(self, message: Configure, done: Callable[[], None]) -> None:
        proxy, resolver = self.settings["proxy"], self._shared.dialer.resolver
        resolver.configure(merged(proxy["dns"], message.spec.dns, message.spec.id))
        objects = self._objects.read(message.objects)
        self._reconfiguration.configure(Configuration(message.spec, message.egress, objects), done)

    def _with_totals(self, query: Explain, reply: Reply) -> None:
        """An account of the shared table counts from when it is asked for."""
        limits = self._shared.limits
        try:
            limits.account(query.user or "")
        except UnreadableError as error:
            reply(Failed(str(error), "user"))
            return
        limits.usage.forget_totals()
        self._earlier_usage.ask(lambda: reply_explanation(self._shared, query, reply))
