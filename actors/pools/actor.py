"""The process that checks the upstreams of pools: the composition root. See `actors.pools`."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any

from actors.bus.codec import unpack
from actors.bus.loop import Timer
from actors.bus.mailbox import Reply, refuse
from actors.bus.messages.common import SUPERVISOR, Problem, ReportProblems
from actors.bus.messages.specs import CheckPoolOnce, CheckPools, DnsSpec, EgressSpec, PoolSpec
from actors.forwarding.isolation import CrashLog
from actors.forwarding.net.dialer import Dialer
from actors.forwarding.net.resolver import Resolver, new_threads
from actors.forwarding.net.resolver_link import ResolverLink, merged
from actors.forwarding.upstreams.attempt import access_to_upstreams
from actors.pools.checked_pool import CheckedPool
from actors.pools.state import longest_check, pool_state
from actors.problems import ActiveProblems
from actors.process import Actor, Boot

log = logging.getLogger(__name__)

OBSERVE_PERIOD = 1.0
"""Seconds until it reports what another process has found out."""


class PoolsActor(Actor):
    """`boot.settings`: `logging`, and `proxy`, for how names are resolved."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        self._crashes = CrashLog()
        link = ResolverLink(self.loop, self.run_dir)
        self._resolver = Resolver(self.loop, new_threads(self.loop), link=link)
        self._dialers = {fetched: self._dialer(fetched) for fetched in (False, True)}
        self._packed: dict[str, bytes] = {}
        self._pools: dict[str, CheckedPool] = {}
        self._once: dict[str, tuple[CheckedPool, Timer]] = {}
        """Those that no proxy uses while they are checked once, and what ends that."""
        self._problems = ActiveProblems(self.loop, time.time, self._report)
        self._apply_dns()
        self.loop.call_every(OBSERVE_PERIOD, self._observe)
        self.ready()

    def receive(self, sender: str, message: Any, reply: Reply) -> None:
        """See `Actor`."""
        if isinstance(message, CheckPools):
            for fetched, dialer in self._dialers.items():
                dialer.access = access_to_upstreams(message.egress, fetched)
            self._configure(message.pools)
        elif isinstance(message, CheckPoolOnce):
            self._check_once(unpack(PoolSpec, message.packed))
        else:
            refuse(sender, message, reply)

    def settings_changed(self, groups: Collection[str]) -> None:
        """See `Actor`: how names are resolved."""
        if "proxy" in groups:
            self._apply_dns()

    def _dialer(self, fetched: bool) -> Dialer:
        """What reaches upstreams from a source, or those that callers have written."""
        dialer = Dialer(self.loop, self._resolver, access_to_upstreams(EgressSpec("public_only", (), ()), fetched))
        dialer.on_crash = lambda error: self._crashes.add("a check of an upstream", error, self.loop.now)
        return dialer

    def _apply_dns(self) -> None:
        proxy = self.settings["proxy"]
        self._resolver.longest_ttl = float(proxy["dns_cache_seconds"])
        self._resolver.configure(merged(proxy["dns"], DnsSpec(), ""))

    def _configure(self, packed: dict[str, bytes]) -> None:
        specs = {each.id: each for key, value in packed.items() if (each := unpack(PoolSpec, value))}
        for pool_id in self._pools.keys() - specs.keys():
            self._pools.pop(pool_id).end()
        for pool_id, spec in specs.items():
            known = self._pools.get(pool_id)
            if known is None or not known.follows(spec):
                self._pools[pool_id] = self._checked(spec, known)
        self._observe()
        self._problems.report_soon()

    def _check_once(self, spec: PoolSpec) -> None:
        """Check it now. One that no proxy uses has no checks of its own, and no problems."""
        known = self._pools.get(spec.id)
        if known is None:
            known = self._checked_once(replace(spec, upstreams=replace(spec.upstreams, check_enabled=False)))
        known.check_now()

    def _checked_once(self, spec: PoolSpec) -> CheckedPool:
        """The pool as it is now, until this check of it is over."""
        known, timer = self._once.pop(spec.id, (None, None))
        if timer is not None:
            timer.cancel()
        if known is None or not known.follows(spec):
            known = self._checked(spec, known)
        longest = longest_check(len(known.members), known.spec.check_timeout)
        self._once[spec.id] = known, self.loop.call_later(longest, partial(self._end_once, spec.id))
        return known

    def _end_once(self, pool_id: str) -> None:
        self._once.pop(pool_id)[0].stop()

    def _checked(self, spec: PoolSpec, previous: CheckedPool | None) -> CheckedPool:
        if previous is not None:
            previous.stop()
        state = pool_state(self.run_dir.pools, spec, decides=True)
        dialer = self._dialers[spec.upstreams.fetched]
        return CheckedPool(self.loop, dialer, self._problems, spec, state, previous)

    def _observe(self) -> None:
        for pool in self._pools.values():
            pool.observe()

    def _report(self, problems: tuple[Problem, ...], over: tuple[Problem, ...]) -> None:
        self.mailbox.tell(SUPERVISOR, ReportProblems(self.boot.instance, problems, over))

    def drain(self, _seconds: float) -> None:
        """See `Actor`."""
        for pool in (*self._pools.values(), *(each for each, _ in self._once.values())):
            pool.stop()
        self.finish()
