"""Changes of proxies: in which order they are checked, stored and sent to the supervisor.

The listening socket is bound before anything is stored, so a refused address leaves no trace; the supervisor gets the
change after it is durable, so it never runs what a crash would forget. One change at a time: that is what makes names
unique.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from actors.bus.messages.common import SUPERVISOR, Done
from actors.bus.messages.supervision import (
    CancelListeners,
    ListenerRefused,
    ListenerReserved,
    QueryRuntime,
    ReserveListener,
    RestartProxy,
    RuntimeReport,
)
from api.bus_bridge import Bridge, request
from api.errors import Invalid, NotFound, PeerUnavailable, StaleRevision
from api.objects.accounts.account_names import AccountNames
from api.objects.named.shared_objects import SharedObjects
from api.objects.nodes.asked_nodes import AskedNodes
from api.objects.nodes.fleet_nodes import FleetNodes
from api.objects.proxies.proxy_cache import COLLECTION, ProxyCache, StoredProxy
from api.objects.proxies.proxy_changes import (
    UpstreamPolicy,
    listeners_of,
    refuse_beyond,
    refuse_chain,
    refuse_pool,
    with_secrets,
)
from api.objects.proxies.supervisor_link import SupervisorLink
from api.security.api_keys import Scope
from api.store import FleetStore, StoreWriteError, repeated
from api.store.loaded import is_same
from config.files.secret_box import SecretBox, sealing_as
from config.model.accounts import ProxyAccount, refuse_weak
from config.model.choices import PROCESSES_MAX, ProxyStatus
from config.model.object_fields import names_of_proxy
from config.model.proxies import ProxyCreate, ProxyRecord, ProxyUpdate, apply, new_record
from config.model.proxy_parts import AuthBackend, check_certificate, refuse_ended_certificate, set_secret, warnings
from config.model.shared_objects.pools import Pool
from config.settings.settings import ProxyGroup, Server, ServerTls

log = logging.getLogger(__name__)
T = TypeVar("T")

RESTART_TIMEOUT = 8.0
"""Seconds that another node has to restart a proxy."""
LOCK_TIMEOUT = 15.0
"""Seconds that a change waits for the one before it; the supervisor may take a while to bind."""


@dataclass(frozen=True, slots=True)
class ProxyRules:
    """The settings that a change of a proxy depends on: what new ones have, `server.tls`, allowed upstreams.

    `weak_passwords`: accounts may have any password.
    """

    default_timeout: int = ProxyGroup().default_timeout
    sleep_after: int = ProxyGroup().sleep_after
    tls: ServerTls = field(default_factory=ServerTls)
    upstream_policy: UpstreamPolicy = field(default_factory=lambda: UpstreamPolicy.of(Server(), ProxyGroup(), {}))
    workers: int | Literal["auto"] = 1
    weak_passwords: bool = False


class ProxyService:
    """Reads and changes. Thread-safe.

    Changes raise `Invalid`, `InvalidProxy`, `NotFound`, `StaleRevision`, `PeerUnavailable` and `StoreWriteError`.
    `if_match` is a revision that the proxy must have, or None.
    """

    def __init__(
        self,
        store: FleetStore,
        bridge: Bridge,
        publish: Callable[[str, dict[str, Any]], None],
        seal: SecretBox,
        names: AccountNames,
        objects: SharedObjects,
        cache: ProxyCache,
        link: SupervisorLink,
        rules: Callable[[], ProxyRules],
        nodes: FleetNodes,
    ) -> None:
        self._rules = rules
        self._seal = seal
        self._store = store
        self._cache = cache
        self._bridge = bridge
        self._publish = publish
        self._names = names
        self._lock = threading.Lock()
        self._objects = objects
        self._link = link
        self._nodes = nodes

    @property
    def rules(self) -> ProxyRules:
        """The settings of this moment."""
        return self._rules()

    def all(self) -> Sequence[StoredProxy]:
        """All proxies, oldest first."""
        return self._cache.all()

    def here(self) -> Sequence[StoredProxy]:
        """The proxies of this machine, oldest first, as they run on it: all of them without a fleet."""
        return self._nodes.here()

    def get(self, proxy_id: str) -> StoredProxy:
        """One proxy. Raises `NotFound`."""
        found = self._cache.get(proxy_id)
        if found is None:
            raise NotFound("The proxy")
        return found

    def name_of(self, proxy_id: str) -> str:
        """The name of a proxy; its id when it is deleted."""
        return self.find_name(proxy_id) or proxy_id

    def find_name(self, proxy_id: str) -> str | None:
        """The name of a proxy; None when it is deleted."""
        found = self._cache.get(proxy_id)
        return None if found is None else found.record.name

    def create(self, body: ProxyCreate) -> StoredProxy:
        """A new, active proxy whose socket is bound, and whose process serves unless that takes long."""
        record = self.new(body)
        self._check_certificate(record)

        def check() -> None:
            self._refuse_upstreams(record, body)
            self._refuse_unfit(record)

        with self.lock():
            check()
            with self._reserved(record), self._store.rechecked(check):
                stored = self._put_named(None, record, expect=0)
        _warn(None, record)
        self.publish_event("proxy.created", record)
        self._await_start(record)
        return self._showing(None, stored)

    def update(self, proxy_id: str, body: ProxyUpdate, if_match: int | None, scope: Scope | None = None) -> StoredProxy:
        """Changes of settings drop no connection; at a new address it listens before the old one closes, and drains.

        `scope` is that of a key of some proxies only, None: the caller reaches all. Raises `Denied` beyond it.
        """
        before: list[AuthBackend | None] = []

        def alter(record: ProxyRecord) -> ProxyRecord:
            before.append(record.auth.backend)
            return self.applied(record, body, scope)

        def check(record: ProxyRecord) -> None:
            self._refuse_upstreams(record, body, None if scope is None else frozenset(scope.proxies or ()))

        stored = self.change(proxy_id, alter, if_match, scope, check)
        return self._showing(before[-1], stored)

    def _showing(self, before: AuthBackend | None, stored: StoredProxy) -> StoredProxy:
        """The proxy with the secret of its back end, if the change has set it."""
        with sealing_as(StoreWriteError):
            secret = set_secret(before, stored.record.auth.backend, self._seal)
        return stored if secret is None else replace(stored, backend_secret=secret)

    def change(
        self,
        proxy_id: str,
        alter: Callable[[ProxyRecord], ProxyRecord],
        if_match: int | None,
        scope: Scope | None = None,
        check: Callable[[ProxyRecord], None] = lambda _record: None,
    ) -> StoredProxy:
        """What `alter` makes of the record; it and `check`, which refuses a record, may raise `InvalidProxy`.

        The supervisor gets it even when that changes nothing: an earlier change may have failed to reach it.
        """
        before, after = self._repeated(if_match, lambda: self._changed(proxy_id, alter, if_match, scope, check))
        if after is not before:
            _warn(before.record, after.record)
            self.publish_event("proxy.updated", after.record)
        return after

    def _changed(
        self,
        proxy_id: str,
        alter: Callable[[ProxyRecord], ProxyRecord],
        if_match: int | None,
        scope: Scope | None,
        check: Callable[[ProxyRecord], None],
    ) -> tuple[StoredProxy, StoredProxy]:
        """The proxy as it was and as it is, the same object if that is no change."""
        with self.lock():
            before = self._matching(proxy_id, if_match)
            record = alter(before.record)

            def check_again() -> None:
                check(record)
                self._refuse_unfit(record, before.record)

            check(record)
            self._check_certificate(record)
            self._refuse_unfit(record, before.record)
            self.require_supervisor(proxy_id)
            same = is_same(before.record, record)
            with self._reserved_if_moved(before.record, record, scope), self._store.rechecked(check_again):
                if not same:
                    return before, self._put_named(before.record, record, before.revision)
            self._link.again(COLLECTION, proxy_id)
            return before, before

    def check_pool(self, pool: Pool) -> None:
        """Raise `InvalidProxy` when upstreams of a pool may not be used, or lead back to a proxy that has the pool."""
        records = [each.record for each in self.here()]
        refuse_pool(pool.name, pool.upstreams, records, self._objects.upstreams_of_pool)
        self.rules.upstream_policy.refuse(pool, records)

    def delete(self, proxy_id: str, if_match: int | None) -> None:
        """Delete a proxy; its connections drain."""

        def gone() -> StoredProxy:
            with self.lock():
                before = self._matching(proxy_id, if_match)
                self.require_supervisor(proxy_id)
                self._store.delete(COLLECTION, proxy_id, before.revision)
                return before

        self.publish_event("proxy.deleted", self._repeated(if_match, gone).record)

    def start(self, proxy_id: str, if_match: int | None, scope: Scope | None = None) -> tuple[StoredProxy, bool]:
        """Make a proxy active: the proxy, and whether that is a change. Raises `Invalid` when its address is in use."""
        after, changed = self._repeated(if_match, lambda: self._activate(proxy_id, if_match, scope, restart=False))
        if changed:
            self.publish_event("proxy.started", after.record)
        self._await_start(after.record, wake=True)
        return after, changed

    def stop(self, proxy_id: str, if_match: int | None) -> tuple[StoredProxy, bool]:
        """Make a proxy inactive: the proxy, and whether that is a change."""

        def stopped() -> tuple[StoredProxy, bool]:
            with self.lock():
                before = self._matching(proxy_id, if_match)
                self.require_supervisor(proxy_id)
                return self._put_status(before, "inactive")

        after, changed = self._repeated(if_match, stopped)
        if changed:
            self.publish_event("proxy.stopped", after.record)
        return after, changed

    def restart(
        self, proxy_id: str, if_match: int | None, scope: Scope | None = None, nodes: AskedNodes | None = None
    ) -> StoredProxy:
        """Start a new process on the same socket, on each of these nodes; an inactive proxy is started.

        Raises `InvalidProxy` when the new process would serve a worse certificate than the present one.
        """
        here = nodes is None or nodes.here
        after, started = self._repeated(if_match, lambda: self._activate(proxy_id, if_match, scope, restart=here))
        if nodes is not None and not started:
            others = [each for each in nodes.that_run(after.record) if each != nodes.own_id]
            nodes.request(self._bridge, SUPERVISOR, RestartProxy(proxy_id), Done, RESTART_TIMEOUT, others)
        self.publish_event("proxy.restarted", after.record)
        self._await_start(after.record)
        return after

    def _activate(
        self, proxy_id: str, if_match: int | None, scope: Scope | None, restart: bool
    ) -> tuple[StoredProxy, bool]:
        with self.lock():
            before = self._matching(proxy_id, if_match)
            self._check_certificate(before.record)  # an ended one is no worse than it was
            if restart:
                self._refuse_worse_certificate(before.record)
            active = before.record.model_copy(update={"status": "active"})
            self._refuse_too_many(active, before.record)
            with (
                self._reserved(before.record, scope),
                self._store.rechecked(lambda: self._refuse_too_many(active, before.record)),
            ):
                after, changed = self._put_status(before, "active")
            if restart and not changed and self._runs_here(before.record):
                self._link.request(RestartProxy(proxy_id))
        return after, changed

    def _refuse_upstreams(self, record: ProxyRecord, body: ProxyUpdate, scope: frozenset[str] | None = None) -> None:
        """Refuse upstreams that lead back to a proxy, or may not be used."""
        leads = bool(body.upstreams) or (record.pool is not None and "pool" in body.model_fields_set)
        moves = body.host is not None or body.port is not None
        asks = bool(getattr(getattr(body, "dns", None), "servers", None))
        if not (leads or moves or asks):
            return
        here = self._here(record)
        records = [each.record for each in self.here()]
        if leads or moves:
            of_pool = self._objects.upstreams_of_pool
            refuse_chain(here, listeners_of(records, of_pool), of_pool)
        if leads:
            self.rules.upstream_policy.refuse(here, records, scope)
        if asks:
            self.rules.upstream_policy.refuse_name_servers(here, records)

    def _here(self, record: ProxyRecord) -> ProxyRecord:
        """The proxy as it would run on this machine, or as it is where it would not."""
        return self._nodes.as_here(record) or record

    def _runs_here(self, record: ProxyRecord) -> bool:
        return self._nodes.as_here(record) is not None and not self._nodes.drains

    def _await_start(self, record: ProxyRecord, wake: bool = False) -> None:
        if self._runs_here(record):
            self._link.await_start(record.id, wake)

    def _check_certificate(self, record: ProxyRecord) -> None:
        """Its files are those of this machine; other nodes say themselves what they lack."""
        here = self._nodes.as_here(record)
        if here is not None:
            check_certificate(here, self.rules.tls)

    def _refuse_worse_certificate(self, record: ProxyRecord) -> None:
        """The process that runs may have read a better certificate than the one that is in the file now."""
        if not record.speaks_tls:
            return
        runtime = self.require_supervisor(record.id).proxies.get(record.id)
        if runtime is not None:
            refuse_ended_certificate(self._here(record), self.rules.tls, runtime.certificate_ends, time.time())

    # --- for changes of many at once (`api.import_export`) ---

    def new(self, body: ProxyCreate, makes: bool = True) -> ProxyRecord:
        """A new, active proxy, not stored yet. As `applied`."""
        rules, identifier = self.rules, "prx_" + secrets.token_hex(8)
        record = new_record(body, identifier, time.time(), rules.default_timeout, rules.sleep_after, rules.workers)
        return self._completed(record, body, (), makes)

    def applied(
        self, record: ProxyRecord, body: ProxyUpdate, scope: Scope | None = None, makes: bool = True
    ) -> ProxyRecord:
        """`record` with the changes of `body`, not stored yet. It may hash passwords.

        A back end without a secret gets one, unless `makes` is false: then that is an error.
        """
        changed = apply(record, body, time.time())
        if scope is not None:
            refuse_beyond(scope, record, changed, body)
        return self._completed(changed, body, record.accounts, makes)

    def _completed(
        self, record: ProxyRecord, body: ProxyUpdate, known: Sequence[ProxyAccount], makes: bool
    ) -> ProxyRecord:
        """With the secrets of `body`; `known` are the accounts that it had before."""
        if not self.rules.weak_passwords:
            refuse_weak(body.accounts or (), known, record.accounts)
        with sealing_as(StoreWriteError):
            return with_secrets(record, body, self._seal, makes)

    def require_supervisor(self, proxy_id: str) -> RuntimeReport:
        """The runtime state of the proxy. Raises `PeerUnavailable`: without the supervisor nothing is stored."""
        return request(self._bridge, SUPERVISOR, QueryRuntime((proxy_id,)), RuntimeReport)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Holds up all changes of proxies. Raises `PeerUnavailable` when an earlier change takes too long."""
        if not self._lock.acquire(timeout=LOCK_TIMEOUT):
            raise PeerUnavailable(SUPERVISOR, "an earlier change is still under way")
        try:
            yield
        finally:
            self._lock.release()

    def refusal(self, refused: ListenerRefused, proxy_id: str, scope: Scope | None = None) -> str:
        """Why the address is refused to this proxy; names the proxy that has it, if that is in `scope`."""
        holder = self._cache.get(refused.holder) if refused.holder != proxy_id else None
        return refused.error if holder is None else refused.error + self._holder(holder.record, scope)

    def _holder(self, holder: ProxyRecord, scope: Scope | None) -> str:
        if scope is not None and holder.id not in (scope.proxies or ()):
            return ""
        return f" by the proxy {holder.name!r} ({holder.ports})"

    def publish_event(self, kind: str, record: ProxyRecord) -> None:
        """Publish an event about a proxy."""
        about = {"proxy_id": record.id, "name": record.name, "host": record.host, "port": record.port}
        self._publish(kind, {**about, "protocol": record.protocol, "status": record.status})

    # --- the store ---

    @staticmethod
    def _repeated(if_match: int | None, change: Callable[[], T]) -> T:
        """Made anew when another node changes the proxy at this moment, unless the caller asks for a revision."""
        return repeated(change) if if_match is None else change()

    def _matching(self, proxy_id: str, if_match: int | None) -> StoredProxy:
        stored = self.get(proxy_id)
        if if_match is not None and if_match != stored.revision:
            raise StaleRevision(stored.revision)
        return stored

    def _refuse_unfit(self, record: ProxyRecord, before: ProxyRecord | None = None) -> None:
        """Refuse what does not fit to other objects."""
        self._refuse_taken_name(record)
        self._refuse_too_many(record, before)
        self._objects.refuse_unknown(names_of_proxy(record))
        self._nodes.refuse_unfit(record, before)

    def _refuse_taken_address(self, record: ProxyRecord, scope: Scope | None) -> None:
        """What this machine has bound, another node may have given to another proxy; and other nodes run some, too."""
        self._nodes.refuse_taken(record, lambda other: self._holder(other, scope))

    def _refuse_taken_name(self, record: ProxyRecord) -> None:
        if self._cache.named(record.name) not in (None, record.id):
            raise Invalid("name", f'the name "{record.name}" is in use')

    def _refuse_too_many(self, record: ProxyRecord, before: ProxyRecord | None = None) -> None:
        if processes_of([record]) > processes_of([] if before is None else [before]):
            others = (each.record for each in self.all() if each.record.id != record.id)
            most = self._nodes.most_on_a_node([record, *others], processes_of)
            refuse_too_many(most, "workers" if record.processes > 1 else None)

    def _put_status(self, before: StoredProxy, status: ProxyStatus) -> tuple[StoredProxy, bool]:
        if before.record.status == status:
            self._link.again(COLLECTION, before.record.id)
            return before, False
        changed = before.record.model_copy(update={"status": status, "updated_at": time.time()})
        return self._put(changed, before.revision), True

    def _put_named(self, before: ProxyRecord | None, record: ProxyRecord, expect: int) -> StoredProxy:
        """Store a proxy whose names may be others, unless an account of the fleet clashes with one of them."""
        with self._names.lock(), self._store.rechecked(lambda: self._names.refuse_proxy(before, record)):
            self._names.refuse_proxy(before, record)
            return self._put(record, expect)

    def _put(self, record: ProxyRecord, expect: int) -> StoredProxy:
        document = self._store.put(COLLECTION, record.model_dump(mode="json"), expect)
        return StoredProxy(record, document.revision)

    # --- the supervisor ---

    @contextmanager
    def _reserved(self, record: ProxyRecord, scope: Scope | None = None) -> Iterator[None]:
        """The address is bound within the block, and released when that fails, so that it can be tried again."""
        try:
            self._reserve(record, scope)
            with self._store.rechecked(lambda: self._refuse_taken_address(record, scope)):
                yield
        except BaseException:
            self._bridge.ask(SUPERVISOR, CancelListeners((record.id,)), 0.0)
            raise

    @contextmanager
    def _reserved_if_moved(self, before: ProxyRecord, after: ProxyRecord, scope: Scope | None) -> Iterator[None]:
        """As `_reserved`, for an active proxy that is to listen elsewhere."""
        if after.status != "active" or (before.listens_at, before.nodes) == (after.listens_at, after.nodes):
            yield
            return
        with self._reserved(after, scope):
            yield

    def _reserve(self, record: ProxyRecord, scope: Scope | None) -> None:
        here = self._nodes.as_here(record)
        if here is None or self._nodes.drains:
            return  # it is bound when the node runs it
        message = ReserveListener(record.id, here.host, record.port, last_port=record.last_port)
        reply: Any = request(self._bridge, SUPERVISOR, message, ListenerReserved, ListenerRefused)
        if isinstance(reply, ListenerRefused):
            raise Invalid(reply.field, self.refusal(reply, record.id, scope))


def processes_of(records: Iterable[ProxyRecord]) -> int:
    """How many processes these proxies have as long as those that may sleep do."""
    return sum(each.processes for each in records if each.status == "active" and not each.sleep_after)


def refuse_too_many(processes: int, field: str | None) -> None:
    """Raise `Invalid` when proxies would have more processes than `PROCESSES_MAX`."""
    if processes > PROCESSES_MAX:
        raise Invalid(
            field,
            f"active proxies would have {processes:,} processes, workers counted, and {PROCESSES_MAX:,} are possible: "
            "stop some, or let them sleep (sleep_after)",
        )


def _warn(before: ProxyRecord | None, after: ProxyRecord) -> None:
    """Log the warnings that were not logged before."""
    known = [] if before is None else warnings(before)
    for each in warnings(after):
        if each not in known:
            log.warning("proxy %r (%s), %s: %s", after.name, after.id, each.field, each.warning)
