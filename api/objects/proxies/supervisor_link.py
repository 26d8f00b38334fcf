"""What the supervisor gets: the messages about proxies and what they name, which follow from commits (`apply`).

A message has what the store has at that moment. Of all proxies only those are sent that the supervisor doesn't have in
their present revision. A change is made when the store has it. A supervisor that does not reply then (it is stopped, or
the machine is overloaded) can't undo it, so the change isn't reported as failed; the supervisor gets the whole desired
state as soon as it replies. One that died reads the store at its next start. What was removed and is there again, by an
undo as a rule, comes with the whole state, too: the supervisor takes it from no message that may have been overtaken.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from actors.bus.messages.common import SUPERVISOR, Done, Failed
from actors.bus.messages.supervision import (
    ApplyObjects,
    ApplyProxies,
    AwaitProxy,
    DesiredRevisions,
    QueryDesired,
    ReplaceProxies,
)
from api.bus_bridge import Bridge, checked, reason_of
from api.history.document_changes import Body, DocumentChange
from api.objects.kinds import NAMED
from api.objects.named.policy_kind import POLICIES
from api.objects.named.pool_kind import POOLS
from api.objects.named.shared_objects import FETCHED_UPSTREAMS, SharedObjects
from api.objects.nodes.fleet_nodes import FleetNodes
from api.objects.proxies.proxy_cache import COLLECTION
from api.objects.proxies.proxy_specs import specs_of
from api.store import StoreError
from config.files.secret_box import SecretBox
from config.model.nodes import COLLECTION as NODES

log = logging.getLogger(__name__)

WITH_POLICIES = ("accounts", "plans")
"""Collections whose documents name policies that each proxy must know."""
SENT = (COLLECTION, *NAMED, FETCHED_UPSTREAMS, *WITH_POLICIES, NODES)
"""Collections that messages are about."""
START_WAIT = 3.0
"""Seconds that a create, start or restart waits until the new process serves; then `runtime.state` says `starting`."""
REPLY_TIMEOUT = 5.0
REPLACE_TIMEOUT = 60.0
"""Seconds that the supervisor may take to apply what an import changes: it may have thousands of addresses to bind."""
PROXIES_MOST = 100
"""Proxies of one message; with more the supervisor gets the whole state, and binds some in each turn."""
GONE_MOST = 1_000
"""Ids of what was removed that are remembered; with more the supervisor gets the whole state, which forgets them."""
RETRY_INTERVAL = 1.0
"""Seconds between attempts to reach a supervisor that doesn't reply."""


class SupervisorLink:
    """See the module. Thread-safe.

    `sent` is called after each message to the supervisor, which may change the runtime state.
    """

    def __init__(
        self, bridge: Bridge, nodes: FleetNodes, objects: SharedObjects, seal: SecretBox, sent: Callable[[], None]
    ) -> None:
        self._bridge = bridge
        self._nodes = nodes
        self._objects = objects
        self._seal = seal
        self._sent = sent
        self._lock = threading.Lock()
        self._policies = frozenset[str]()
        """Those that accounts and plans have or had, or are about to get, since the API's start."""
        self._gone = set[str]()
        """Ids of what was removed since the supervisor got the whole state."""
        self._closed = threading.Event()
        self._resync: threading.Thread | None = None

    def desired_state(self, known: Mapping[str, int] | None = None) -> ReplaceProxies:
        """The whole desired state, for a supervisor that has these revisions of proxies.

        Raises `StoreDamaged` when a secret in it can't be opened.
        """
        proxies = self._nodes.here()
        known = known or {}
        changed = [each for each in proxies if known.get(each.record.id) != each.revision]
        unchanged = tuple(each.record.id for each in proxies if known.get(each.record.id) == each.revision)
        return ReplaceProxies(specs_of(changed, self._seal), self._objects.messages(self._policies), unchanged)

    # --- what follows from commits ---

    def concerns(self, change: DocumentChange) -> bool:
        """Whether the supervisor gets anything about a change."""
        if change.collection == NODES:
            return change.id == self._nodes.this_id
        return change.collection not in WITH_POLICIES or _policy(change.after) not in ("", _policy(change.before))

    def apply(self, changes: Sequence[DocumentChange]) -> None:
        """Send what has changed; all there is if that takes more than one message."""
        with self._lock:
            known = self._policies
            policies = {_policy(each.after) for each in changes if each.collection in WITH_POLICIES} - known
            changed = {(each.collection, each.id) for each in changes if each.collection not in WITH_POLICIES}
            try:
                self._policies |= policies
                reply = self._send(changed, policies)
            except BaseException as error:
                self._policies = known  # nothing was sent
                if isinstance(error, StoreError):  # of the whole state, by something else in it maybe
                    self._send_later(Failed(str(error)))
                raise
            if not isinstance(reply, Done):
                self._send_later(reply)

    def again(self, collection: str, identifier: str) -> None:
        """Send what has not changed itself: an earlier message may have failed, or a list has other content."""
        self.apply([DocumentChange(collection, identifier, None, None)])

    def announce(self, policies: Collection[str]) -> None:
        """Have proxies know those of these policies that there are, before accounts and plans get them and need them.

        Raises `PeerUnavailable`.
        """
        there = {name for name in policies if self._objects.records[POLICIES.collection].named(name) is not None}
        if there:
            with self._lock:
                known = self._policies | there
                self.request(ApplyObjects((self._objects.policies_message(known),)))
                self._policies = known

    def request(self, message: Any) -> None:
        """Have something done that is not stored. Raises `PeerUnavailable`."""
        checked(SUPERVISOR, self._ask(message), Done)

    def await_start(self, proxy_id: str, wake: bool = False) -> None:
        """Return when the process of the proxy serves, or failed, or after `START_WAIT` seconds.

        `wake`: a proxy that sleeps is started.
        """
        if self._resync is None:  # else the supervisor doesn't reply to this either
            self._ask(AwaitProxy(proxy_id, START_WAIT, wake), START_WAIT + RETRY_INTERVAL)

    def close(self) -> None:
        """Send nothing more: the next API sends everything at its start."""
        self._closed.set()

    # --- inside ---

    def _send(self, changed: Collection[tuple[str, str]], policies: Collection[str]) -> Any:
        if any(collection == NODES for collection, _ in changed):  # which decides about all proxies
            return self._replace_all()
        proxies = [identifier for collection, identifier in changed if collection == COLLECTION]
        there = {identifier for collection, identifier in changed if self._stored(collection, identifier) is not None}
        again = not self._gone.isdisjoint(there) or len(self._gone) >= GONE_MOST
        self._gone.update(identifier for _, identifier in changed if identifier not in there)
        others = len(changed) - len(proxies) + len(policies)
        if again or (proxies and others) or len(proxies) > PROXIES_MOST:
            return self._replace_all()
        if not changed and not policies:
            return Done()
        message = self._proxies_message(proxies) if proxies else self._objects_message(changed, policies)
        return self._ask(message, REPLACE_TIMEOUT if len(changed) > 1 else REPLY_TIMEOUT)

    def _proxies_message(self, changed: Sequence[str]) -> ApplyProxies:
        found = {identifier: self._nodes.proxy(identifier) for identifier in changed}
        there = [each for each in found.values() if each is not None]
        return ApplyProxies(specs_of(there, self._seal), tuple(each for each in found if found[each] is None))

    def _objects_message(self, changed: Collection[tuple[str, str]], policies: Collection[str]) -> ApplyObjects:
        messages = {"": self._objects.policies_message(self._policies)} if policies else {}
        gone = []
        for collection, identifier in changed:
            stored = self._objects.records[_named_by(collection)].get(identifier)
            if stored is not None:
                messages[identifier] = self._objects.message(NAMED[_named_by(collection)], stored)
            else:
                gone.append(identifier)
        return ApplyObjects(tuple(messages.values()), tuple(gone))

    def _stored(self, collection: str, identifier: str) -> Any:
        """What is sent about it; None if it is gone."""
        if collection == COLLECTION:
            return self._nodes.proxy(identifier)
        return self._objects.records[_named_by(collection)].get(identifier)

    def _replace_all(self) -> Any:
        known = self._ask(QueryDesired())
        if not isinstance(known, DesiredRevisions):
            return known
        reply = self._ask(self.desired_state(known.proxies), REPLACE_TIMEOUT)
        if isinstance(reply, Done):
            self._gone.clear()
        return reply

    def _ask(self, message: Any, timeout: float = REPLY_TIMEOUT) -> Any:
        reply = self._bridge.ask(SUPERVISOR, message, timeout)
        self._sent()
        return reply

    def _send_later(self, reply: Any) -> None:
        if self._resync is None and not self._closed.is_set():
            log.error("the supervisor does not reply, it gets the change later: %s", reason_of(reply))
            self._resync = threading.Thread(target=self._run_resync, name="resync", daemon=True)
            self._resync.start()

    def _run_resync(self) -> None:
        while not self._closed.wait(RETRY_INTERVAL):
            try:
                with self._lock:
                    if isinstance(self._replace_all(), Done):
                        self._resync = None
                        log.info("the supervisor has all changes again")
                        return
            except StoreError as error:
                log.warning("cannot send changes to the supervisor yet: %s", error)


def _named_by(collection: str) -> str:
    """The collection of the objects that a change of this one is about: what a source gives belongs to its pool."""
    return POOLS.collection if collection == FETCHED_UPSTREAMS else collection


def _policy(body: Body | None) -> str:
    """The policy that an account or a plan has, empty for none."""
    return (body or {}).get("policy") or ""
