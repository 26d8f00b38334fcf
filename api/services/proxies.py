"""The life of proxy configurations: what is stored, and what the supervisor is told, in which order.

The listening socket is bound before anything is stored, so a refused address leaves no trace; the supervisor hears of
the change after it is durable, so it never runs what a crash would forget. One change at a time: that is what makes
names unique.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from actors.bus.messages.accounts import DropAccountUsage
from actors.bus.messages.common import METRICS, SUPERVISOR, Done
from actors.bus.messages.specs import ProxySpec
from actors.bus.messages.supervision import (
    ApplyProxy,
    CancelListeners,
    ListenerRefused,
    ListenerReserved,
    QueryRuntime,
    RemoveProxy,
    ReserveListener,
    RestartProxy,
    RuntimeReport,
)
from api.bus_bridge import Bridge, reason_of, request
from api.errors import Invalid, NotFound, PeerUnavailable, StaleRevision
from api.services.proxy_cache import COLLECTION, ProxyCache, StoredProxy
from api.services.proxy_specs import spec_of, specs_of
from api.services.proxy_upstreams import with_upstreams
from api.services.supervisor_link import SupervisorLink
from api.services.upstream_addresses import UpstreamPolicy
from api.store import NotStored, RevisionConflict, Store, StoreWriteError
from api.store.records import is_same
from config.files.secret_box import SecretBox, SecretBoxError
from config.model.choices import ProxyStatus
from config.model.exposure_warnings import warnings
from config.model.proxies import ProxyCreate, ProxyRecord, ProxyUpdate, apply, new_record
from config.model.proxy_certificates import check_certificate, refuse_ended_certificate
from config.model.upstreams import refuse_circle
from config.settings.settings import Proxy, Server, ServerTls

log = logging.getLogger(__name__)

LOCK_TIMEOUT = 15.0
"""Seconds that a change waits for the one before it; the supervisor may take a while to bind."""


@dataclass(frozen=True, slots=True)
class ProxyRules:
    """The settings that a change of a proxy depends on: `proxy.default_timeout`, `server.tls`, allowed upstreams."""

    default_timeout: int = Proxy().default_timeout
    tls: ServerTls = field(default_factory=ServerTls)
    upstream_policy: UpstreamPolicy = field(default_factory=lambda: UpstreamPolicy.of(Server(), Proxy(), {}))


class Proxies:
    """Reads and changes. Thread-safe.

    Changes raise `Invalid`, `InvalidProxy`, `NotFound`, `StaleRevision`, `PeerUnavailable` and `StoreWriteError`.
    `if_match` is a revision that the proxy must have, or None.
    """

    def __init__(
        self,
        store: Store,
        bridge: Bridge,
        publish: Callable[[str, dict[str, Any]], None],
        seal: SecretBox,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called after each message to the supervisor that may change the runtime state."""
        self.rules = ProxyRules()
        self._seal = seal
        self._store = store
        self._catalogue = ProxyCache(store)
        self._bridge = bridge
        self._publish = publish
        self._lock = threading.Lock()
        self.link = SupervisorLink(bridge, self.specs, self._one_change, changed)

    def close(self) -> None:
        """End what runs in the background."""
        self.link.close()

    def all(self) -> Sequence[StoredProxy]:
        """All proxies, oldest first."""
        return self._catalogue.all()

    def specs(self) -> tuple[ProxySpec, ...]:
        """The whole wish. Raises `StoreDamaged` when a secret in it can't be opened."""
        return specs_of(self._catalogue, self._seal)

    def get(self, proxy_id: str) -> StoredProxy:
        """One proxy. Raises `NotFound`."""
        found = self._catalogue.get(proxy_id)
        if found is None:
            raise NotFound("The proxy")
        return found

    def name_of(self, proxy_id: str) -> str:
        """What a proxy is called; its id where it is gone."""
        found = self._catalogue.get(proxy_id)
        return proxy_id if found is None else found.record.name

    def create(self, body: ProxyCreate) -> StoredProxy:
        """A new, active proxy whose socket is bound, and whose process serves unless that takes long."""
        record = new_record(body, "prx_" + secrets.token_hex(8), time.time(), self.rules.default_timeout)
        record = self._with_upstreams(record, body)
        check_certificate(record, self.rules.tls)
        with self._one_change():
            self._refuse_taken_name(record)
            with self._reserved(record):
                stored = self._put(record, expect=0)
            self._tell_wish(stored)
        _warn(None, record)
        self._say("proxy.created", record)
        self.link.await_start(record.id)
        return stored

    def update(
        self, proxy_id: str, body: ProxyUpdate, if_match: int | None, scope: frozenset[str] | None = None
    ) -> StoredProxy:
        """Changes of settings drop no connection; the address may change only while the proxy is inactive.

        `scope` has the ids of the proxies that may be named as upstreams, None: all.
        """
        return self.change(proxy_id, lambda record: self._applied(record, body, scope), if_match)

    def change(self, proxy_id: str, alter: Callable[[ProxyRecord], ProxyRecord], if_match: int | None) -> StoredProxy:
        """What `alter` makes of the record; it may raise `InvalidProxy`.

        The supervisor is told even when that changes nothing: an earlier change may have failed to reach it.
        """
        with self._one_change():
            before = self._matching(proxy_id, if_match)
            record = alter(before.record)
            check_certificate(record, self.rules.tls)
            _refuse_move(before.record, record)
            self._refuse_taken_name(record)
            self._require_supervisor(proxy_id)
            same = is_same(before.record, record)
            stored = before if same else self._put(record, before.revision)
            self._tell_wish(stored)
        if same:
            return stored
        _warn(before.record, record)
        self._forget_accounts(before.record, record)
        self._say("proxy.updated", record)
        return stored

    def delete(self, proxy_id: str, if_match: int | None) -> None:
        """Gone for good; its connections drain."""
        with self._one_change():
            before = self._matching(proxy_id, if_match)
            self._require_supervisor(proxy_id)
            try:
                self._store.delete(COLLECTION, proxy_id, before.revision)
            except (NotStored, RevisionConflict) as error:
                raise NotFound("The proxy") from error
            self.link.tell_stored(RemoveProxy(proxy_id))
        self._say("proxy.deleted", before.record)

    def start(self, proxy_id: str, if_match: int | None) -> tuple[StoredProxy, bool]:
        """Active, and whether that is a change. With the address taken: 400, and the status stays."""
        with self._one_change():
            before = self._matching(proxy_id, if_match)
            check_certificate(before.record, self.rules.tls)  # an ended one is no worse than it was
            with self._reserved(before.record):
                after, changed = self._wish(before, "active")
            self._tell_wish(after)
        if changed:
            self._say("proxy.started", after.record)
        self.link.await_start(proxy_id)
        return after, changed

    def stop(self, proxy_id: str, if_match: int | None) -> tuple[StoredProxy, bool]:
        """Inactive, and whether that is a change."""
        with self._one_change():
            before = self._matching(proxy_id, if_match)
            self._require_supervisor(proxy_id)
            after, changed = self._wish(before, "inactive")
            self._tell_wish(after)
        if changed:
            self._say("proxy.stopped", after.record)
        return after, changed

    def restart(self, proxy_id: str, if_match: int | None) -> StoredProxy:
        """A new process on the same socket; an inactive proxy is started.

        400 when the new process would serve worse than the present one, which then goes on.
        """
        with self._one_change():
            before = self._matching(proxy_id, if_match)
            check_certificate(before.record, self.rules.tls)  # an ended one is no worse than it was
            self._refuse_worse_certificate(before.record)
            with self._reserved(before.record):
                after, changed = self._wish(before, "active")
            self._tell_wish(after)
            if not changed:
                self.link.demand(RestartProxy(proxy_id))
        self._say("proxy.restarted", after.record)
        self.link.await_start(proxy_id)
        return after

    def _applied(self, record: ProxyRecord, body: ProxyUpdate, scope: frozenset[str] | None) -> ProxyRecord:
        return self._with_upstreams(apply(record, body, time.time()), body, scope)

    def _with_upstreams(
        self, record: ProxyRecord, body: ProxyUpdate, scope: frozenset[str] | None = None
    ) -> ProxyRecord:
        try:
            record = with_upstreams(record, body, self._seal)
        except SecretBoxError as error:
            raise StoreWriteError(str(error)) from error
        if body.upstreams:
            records = [each.record for each in self.all()]
            refuse_circle(record, records)
            self.rules.upstream_policy.refuse(record, records, scope)
        return record

    def _refuse_worse_certificate(self, record: ProxyRecord) -> None:
        """The process that runs may have read a better certificate than the one that is in the file now."""
        if record.protocol != "https":
            return
        runtime = self._require_supervisor(record.id).proxies.get(record.id)
        if runtime is not None:
            refuse_ended_certificate(record, self.rules.tls, runtime.certificate_ends, time.time())

    # --- for changes of many at once (`api.import_export`) ---

    def hold(self) -> AbstractContextManager[None]:
        """Nobody else changes a proxy meanwhile. Raises `PeerUnavailable` when an earlier change takes too long."""
        return self._one_change()

    def forget_accounts(self, before: ProxyRecord, after: ProxyRecord) -> None:
        """What accounts have used that are not in `after` needs to be kept by nobody."""
        self._forget_accounts(before, after)

    def say(self, kind: str, record: ProxyRecord) -> None:
        """An event about a proxy."""
        self._say(kind, record)

    # --- the store ---

    @contextmanager
    def _one_change(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=LOCK_TIMEOUT):
            raise PeerUnavailable(SUPERVISOR, "an earlier change is still under way")
        try:
            yield
        finally:
            self._lock.release()

    def _matching(self, proxy_id: str, if_match: int | None) -> StoredProxy:
        stored = self.get(proxy_id)
        if if_match is not None and if_match != stored.revision:
            raise StaleRevision(stored.revision)
        return stored

    def _refuse_taken_name(self, record: ProxyRecord) -> None:
        if self._catalogue.named(record.name) not in (None, record.id):
            raise Invalid("name", f'the name "{record.name}" is in use')

    def _wish(self, before: StoredProxy, status: ProxyStatus) -> tuple[StoredProxy, bool]:
        if before.record.status == status:
            return before, False
        changed = before.record.model_copy(update={"status": status, "updated_at": time.time()})
        return self._put(changed, before.revision), True

    def _put(self, record: ProxyRecord, expect: int) -> StoredProxy:
        document = self._store.put(COLLECTION, record.model_dump(mode="json"), expect)
        return StoredProxy(record, document.revision)

    # --- the supervisor ---

    @contextmanager
    def _reserved(self, record: ProxyRecord) -> Iterator[None]:
        """The address is bound within the block; let go when nothing comes of it, so that it can be tried again."""
        try:
            self._reserve(record)
            yield
        except BaseException:
            self._bridge.ask(SUPERVISOR, CancelListeners((record.id,)), 0.0)
            raise

    def _reserve(self, record: ProxyRecord) -> None:
        reply = self._bridge.ask(SUPERVISOR, ReserveListener(record.id, record.host, record.port))
        if isinstance(reply, ListenerRefused):
            raise Invalid(reply.field, reply.error)
        if not isinstance(reply, ListenerReserved):
            raise PeerUnavailable(SUPERVISOR, reason_of(reply))

    def _require_supervisor(self, proxy_id: str) -> RuntimeReport:
        """What the supervisor says of the proxy: nothing is stored that it could not be told."""
        return request(self._bridge, SUPERVISOR, QueryRuntime((proxy_id,)), RuntimeReport)

    def _tell_wish(self, stored: StoredProxy) -> None:
        self.link.tell_stored(ApplyProxy(spec_of(stored, self._seal)))

    def _forget_accounts(self, before: ProxyRecord, after: ProxyRecord) -> None:
        """What removed accounts have used needs to be kept by nobody."""
        gone = {account.id for account in before.accounts} - {account.id for account in after.accounts}
        if gone:
            reply = self._bridge.ask(METRICS, DropAccountUsage(after.id, tuple(gone)))
            if not isinstance(reply, Done):
                log.warning(
                    "what %d removed accounts of %s have used is kept: %s", len(gone), after.id, reason_of(reply)
                )

    def _say(self, kind: str, record: ProxyRecord) -> None:
        about = {"proxy_id": record.id, "name": record.name, "host": record.host, "port": record.port}
        self._publish(kind, {**about, "protocol": record.protocol, "status": record.status})


def _refuse_move(before: ProxyRecord, after: ProxyRecord) -> None:
    if after.status == "active":
        for name in ("host", "port", "protocol"):
            if getattr(before, name) != getattr(after, name):
                raise Invalid(name, "can't be changed while the proxy is active; stop it first")


def _warn(before: ProxyRecord | None, after: ProxyRecord) -> None:
    """Of what was not warned of before."""
    told = [] if before is None else warnings(before)
    for each in warnings(after):
        if each not in told:
            log.warning("proxy %r (%s), %s: %s", after.name, after.id, each.field, each.warning)
