"""The services of the API, composed in one place."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.bus.events import event_topic, new_event
from actors.bus.messages.cluster import (
    KnownPool,
    ProxyTried,
    QueryPoolState,
    TrailVerified,
    TryProxy,
    VerifyTrail,
)
from actors.bus.messages.common import Failed
from actors.net.client_key import client_key
from actors.net.egress_guard import OutgoingGuard
from actors.process import set_up_logging
from api.api_settings import ApiSettings
from api.audit.audit_context import on_behalf_of, origin
from api.audit.masking import difference, field_names
from api.audit.refused import BoundedEntries
from api.audit.trail import Broken, Head, verify
from api.bus_bridge import Bridge
from api.engine.commit import Engine
from api.engine.effects import CommitEffect
from api.engine.kind import Kind
from api.engine.objects import Hooks, Objects, Records, load, one_at_a_time
from api.engine.record_cache import RecordCache
from api.engine.records import R, Stored
from api.errors import DomainError, NotFound
from api.fleet import ThisNode
from api.history.document_changes import DocumentChange
from api.history.reader import Reader
from api.history.recorder import Purpose
from api.http.idempotency import Idempotency
from api.oauth.sign_in import SignIns
from api.objects.accounts.account_activity import WITH_USAGE, AccountActivities, ends_usage
from api.objects.accounts.account_batches import AccountBatches, AccountImports
from api.objects.accounts.account_kind import ACCOUNTS, FleetAccounts, hooks_of_accounts
from api.objects.accounts.account_names import AccountNames
from api.objects.accounts.credential_service import AccountCredentials, AccountEnds
from api.objects.accounts.inline_accounts import EveryAccount, InlineAccounts, InlineAccountService
from api.objects.accounts.password_renewal import PasswordRenewal
from api.objects.accounts.plan_kind import Plans, hooks_of_plans
from api.objects.accounts.self_service import SelfServiceSignIn
from api.objects.kinds import AUTHORED, CHANGES, OBJECT_KINDS
from api.objects.live_settings import LiveSettings
from api.objects.named.fleet_lists import LIST_STATES, FleetLists
from api.objects.named.list_contents import ListContents, ListStates, Sourced
from api.objects.named.list_fetches import ListFetches
from api.objects.named.list_kind import LISTS
from api.objects.named.object_changes import ObjectChanges, ObjectViews
from api.objects.named.object_users import ObjectUsers
from api.objects.named.policy_kind import POLICIES
from api.objects.named.pool_kind import POOLS
from api.objects.named.pool_states import PoolStates
from api.objects.named.shared_objects import PoolSources, SharedObjects
from api.objects.nodes.fleet_nodes import fleet_nodes, hooks_of_nodes
from api.objects.nodes.node_kind import NODES
from api.objects.nodes.proxies_over_nodes import ProxiesOverNodes
from api.objects.proxies.proxy_cache import ProxyCache
from api.objects.proxies.proxy_changes import UpstreamPolicy
from api.objects.proxies.proxy_service import ProxyRules, ProxyService
from api.objects.proxies.runtime_view import RuntimeQueries
from api.objects.proxies.supervisor_link import SENT, SupervisorLink
from api.objects.users.user_kind import USERS, hooks_of_users
from api.objects.webhooks.webhook_kind import WEBHOOKS, hooks_of_webhooks
from api.objects.webhooks.webhook_sender import WebhookSender
from api.queries.overall.attention import Administrator, Attention
from api.queries.overall.health import HealthService
from api.queries.overall.overview import Overviews
from api.queries.overall.shared_values import SharedValues
from api.queries.records.log_search import LogSearch
from api.security import api_keys, users
from api.security.account_sessions import AccountSessions
from api.security.authentication import Authenticator
from api.security.caller import Caller
from api.security.last_used import LastUsed
from api.security.login_throttle import LoginThrottle
from api.security.password_checker import PasswordChecker
from api.security.rate_limits import RateLimits
from api.security.sessions import UserSessions
from api.security.signing import SigningKeys
from api.security.tokens import Lifetimes, Tokens
from api.security.users import User
from api.store import StoreError
from config.files.paths import DataDir, RunDir, forget_initial_password
from config.files.secret_box import secret_box_of
from config.model.fleet_accounts import FleetAccount
from config.model.nodes import NodeRecord
from config.model.object_fields import Named
from config.model.shared_objects.lists import DestinationList
from config.model.shared_objects.pools import VERDICTS, Pool
from config.model.subscriptions import checked, is_about_people
from config.model.webhooks import WebhookRecord, opened_headers
from config.net.names import Range, merged

if TYPE_CHECKING:  # loaded when it is used first
    from api.objects.proxies.proxy_test import ProxyTester
log = logging.getLogger(__name__)


Publish = Callable[[str, dict[str, Any]], None]
"""Called as `(event type, data)`."""


class Services:
    """The services of one API process. All of them are thread-safe."""

    def __init__(
        self,
        store: Engine,
        bridge: Bridge,
        settings: ApiSettings,
        data: DataDir,
        run_dir: RunDir,
        supervisor_pid: int | None = None,
        proxies: ProxyCache | None = None,
        node: ThisNode | None = None,
    ) -> None:
        """`proxies` are those of the store, if they were read already."""
        self.settings = settings
        self.node: ThisNode = node or ThisNode()
        self.ending = threading.Event()
        """Set when the API ends: requests that wait for something return."""
        self.store = store
        self.audit, self.history = store.trail, store.history
        self.refused_actions = BoundedEntries(self._append)
        self.sign_ins_of_holders = BoundedEntries(self.audit.append)
        """Those that succeed, and sign-outs."""
        self._failed_sign_ins = {each: BoundedEntries(self._append) for each in ("user", "account")}
        self.seal = secret_box_of(data)
        self.bridge = bridge
        self.data = data
        self._make_authentication(store)
        self.runtime = RuntimeQueries(bridge)
        self.idempotency = Idempotency(data, self.seal, node=lambda: self.node, was_made=store.was_made)
        self.account_store = store.accounts
        self.revisions = Reader(data.fleet, self.seal)
        self._begin_history()
        cache = ProxyCache(store) if proxies is None else proxies
        self.account_names = names = AccountNames(self.account_store, cache.all, store.effects.settled)
        self._make_shared_objects(store, data)
        objects = self.shared_objects
        self.nodes = fleet_nodes(store, lambda: self.node.node_id, cache)
        self.link = SupervisorLink(bridge, self.nodes, objects, self.seal, self.runtime.changed)
        self.proxies = ProxyService(
            store, bridge, self.publish, self.seal, names, objects, cache, self.link, self._rules, self.nodes
        )
        self.node_objects = Objects(
            NODES,
            store,
            self.nodes.records,
            self.seal,
            self.publish,
            hooks_of_nodes(self.nodes, self.proxies.lock, store),
        )
        self.proxies_over_nodes = ProxiesOverNodes(
            self.nodes,
            self.runtime,
            lambda: self.node,
            lambda: self.settings.digests(),  # noqa: PLW0108 - of the settings at that time
        )
        self.node.add_report(self.proxies_over_nodes.report)
        self.object_users = ObjectUsers(objects, cache.all, self.account_store, self._names_of_settings)
        self.pool_states = PoolStates(
            run_dir.pools, objects, self.publish, self.runtime.pools_in_use, store, lambda: self.node
        )
        self._make_fleet_accounts(bridge, data, run_dir)
        webhooks = _cache(store, WEBHOOKS)
        self.webhooks = WebhookSender(store, webhooks, bridge, self.seal)
        self.objects = self._make_objects(store, webhooks)
        self.accounts = InlineAccountService(self.proxies, bridge, self.account_activity)
        self.health = HealthService(store, self.runtime, self.proxies, self.webhooks, data, supervisor_pid)
        self.overviews = self._make_overviews()
        self.flows = SharedValues()
        self.log_search = LogSearch(bridge, self.ending, self.proxies.name_of)
        self.live = LiveSettings(
            store,
            bridge,
            self.publish,
            lambda: self.settings,
            self.apply_plain,
            self.nodes,
            objects.refuse_unknown,
            self.proxies.lock,
        )
        self._follow_commits(store)
        self.on_max_connections: Callable[[int], None] = lambda _max: None
        self.rates = RateLimits(settings.security.rate_limiting)
        self.sign_ins = SignIns(settings.auth.oauth2, self._outgoing)
        self.apply(settings)

    def _names_of_settings(self) -> Iterator[tuple[str, Named]]:
        return self.live.names()

    def _follow_commits(self, store: Engine) -> None:
        """What follows from changes of documents."""

        def settle_lists(_changes: Sequence[DocumentChange]) -> None:
            try:
                self.list_contents.settle([each.record for each in self.shared_objects.all(LISTS)])
            except OSError as error:
                log.error("the files of lists can't be made yet: %s", error)

        def apply_settings(_changes: Sequence[DocumentChange]) -> None:
            self.live.apply()

        def have_certificates(changes: Sequence[DocumentChange]) -> None:
            self.node.have_certificates(each.after for each in changes if each.after is not None)

        store.effects.follow(
            CommitEffect(["settings"], apply_settings, self.live.needs_none),
            CommitEffect([LISTS.collection], settle_lists),
            CommitEffect([VERDICTS], self.pool_states.apply),
            CommitEffect([LIST_STATES], lambda _changes: self.list_fetches.soon()),
            CommitEffect(["proxies"], have_certificates, self.proxies_over_nodes.concerns),
            CommitEffect(SENT, self.link.apply, self.link.concerns),
            CommitEffect(["settings"], apply_settings, self.live.needs_objects),
            CommitEffect(["proxies"], self.proxies_over_nodes.changed, self.proxies_over_nodes.concerns),
            CommitEffect(["webhooks"], lambda _changes: self.webhooks.notify()),
            CommitEffect(WITH_USAGE, self.account_activity.follow, ends_usage),
            CommitEffect([POOLS.collection], lambda _changes: self.pool_states.forget_deleted(), _is_deletion),
            CommitEffect(["users"], self._forget_initial_password, _ends_first_password),
        )

    def _forget_initial_password(self, _changes: Sequence[DocumentChange]) -> None:
        try:
            forget_initial_password(self.data)
        except OSError as error:
            log.error("cannot remove the file with the first password: %s", error)

    def _make_authentication(self, store: Engine) -> None:
        """What finds out who sends a request."""
        lifetimes, loose = lambda: Lifetimes.of(self.settings.auth), store.loose
        self.tokens = Tokens(store, SigningKeys(store, self.seal), lifetimes, self.clock, loose, store.catch_up)
        self.sessions = UserSessions(store, self.tokens, self.clock)
        self.login_throttle = LoginThrottle(lambda: self.settings.auth.max_login_attempts, node=lambda: self.node)
        self.password_checker = PasswordChecker()
        self.last_used = LastUsed(store, api_keys.COLLECTION, api_keys.LAST_USED_STEP)
        self.last_login = LastUsed(store, users.COLLECTION)
        self.authenticator = Authenticator(
            store,
            self.tokens,
            self.login_throttle,
            self.last_used,
            self.publish,
            self._record,
            self.password_checker,
            self.clock,
        )

    def _make_shared_objects(self, store: Engine, data: DataDir) -> None:
        """What reads lists, pools and policies."""
        states = ListStates(data.lists)
        self.pool_sources = PoolSources(store, self.seal)
        self.shared_objects = SharedObjects(
            store, self.seal, states.current_file, self.pool_sources, self.account_store.named_policies
        )
        self.list_contents = ListContents(states)
        self.fleet_lists = FleetLists(store, states, lambda: self.node)
        self.list_fetches = ListFetches(
            states,
            lambda: [each.record for kind in (LISTS, POOLS) for each in self.shared_objects.all(kind)],
            self._list_guard,
            self.publish,
            self._content_changed,
            self._settle_contents,
            opened=lambda headers: opened_headers(headers, self.seal),
            keep=self._keep_upstreams,
            has=self.pool_sources.has,
            fleet=self.fleet_lists,
        )

    def _make_objects(self, store: Engine, webhooks: Records[WebhookRecord]) -> Mapping[str, Objects[Any]]:
        """The objects of each kind, by collection."""
        objects, contents = self.shared_objects, self.list_contents
        hooks = ObjectChanges(objects, self.proxies.lock, self.object_users, self.account_names.lock).hooks
        records, refuse = objects.records, objects.refuse_unknown
        views = ObjectViews(contents, self.pool_states, self.object_users)
        special: dict[str, tuple[Records[Any], Hooks[Any]]] = {
            "lists": (records["lists"], hooks(LISTS, views.lists, prepare=contents.prepare, warnings=views.of_list)),
            "pools": (records["pools"], hooks(POOLS, views.pools, self.proxies.check_pool)),
            "policies": (records["policies"], hooks(POLICIES, views.policies)),
            "users": (
                _cache(store, USERS),
                hooks_of_users(store, self.publish, self.authenticator.confirm, self.last_login),
            ),
            "webhooks": (webhooks, hooks_of_webhooks(self.webhooks.statuses, self.seal)),
            "plans": (self.plans, hooks_of_plans(self.account_store, self._announced, refuse)),
        }
        made = {}
        for name, kind in OBJECT_KINDS.items():
            known = special.get(name) or (_cache(store, kind), Hooks(lock=one_at_a_time()))
            made[name] = Objects(kind, store, known[0], self.seal, self.publish, known[1])
        return made

    def _settle_contents(self, records: Sequence[Sourced]) -> list[str]:
        """Of lists and pools; the ids of lists whose files were made."""
        if self.fleet_lists.has_duty:
            self.pool_sources.keep_only({each.id for each in records if isinstance(each, Pool) and each.source})
        return self.list_contents.settle([each for each in records if isinstance(each, DestinationList)])

    def _keep_upstreams(self, pool: Pool, upstreams: Sequence[Mapping[str, Any]]) -> int:
        proxies = [each.record for each in self.proxies.all()]
        return self.pool_sources.keep(pool, upstreams, proxies, time.time())

    def _list_guard(self) -> tuple[list[Range], str]:
        """Where fetches may not go: as webhooks."""
        return self._own_addresses(), "" if self.settings.webhooks.allow_private else "webhooks.allow_private"

    def _content_changed(self, object_id: str) -> None:
        """The content of a list is another one: proxies get it. That of a pool is a document."""
        if self.shared_objects.records[LISTS.collection].get(object_id) is not None:
            self.link.again(LISTS.collection, object_id)

    def _make_fleet_accounts(self, bridge: Bridge, data: DataDir, run_dir: RunDir) -> None:
        """The services of accounts, plans and credentials, behind those of proxies."""
        self.plans = Plans(self.store, self.account_store)
        self.account_activity = AccountActivities(bridge, self.plans, run_dir.clients)
        fleet, refuse_unknown = FleetAccounts(self.account_store), self.shared_objects.refuse_unknown
        hooks = hooks_of_accounts(
            self.account_store,
            self.account_names,
            self.plans,
            self.proxies.all,
            self._announced,
            refuse_unknown,
            lambda: self.settings.accounts.weak_passwords,
        )
        self.fleet_accounts = Objects(ACCOUNTS, self.store, fleet, self.seal, self.publish, hooks)
        self.inline_accounts = InlineAccounts(self.proxies.all, self.account_store.figures)
        self.every_account = EveryAccount(self.fleet_accounts, fleet, self.inline_accounts)
        self.password_renewal = PasswordRenewal(self.store)
        self.self_service = SelfServiceSignIn(
            AccountSessions(data, self.store, self.store.loose, self.clock),
            self.account_store,
            self.every_account,
            self.inline_accounts,
            self.fleet_accounts,
            self.plans,
            self.proxies,
            self.password_checker,
            self._record_holder,
            self.password_renewal,
            lambda: self.settings.accounts.self_service,
            LoginThrottle(lambda: self.settings.auth.max_login_attempts, node=lambda: self.node, kind="account"),
        )
        self.account_batches = AccountBatches(self.fleet_accounts)
        self.account_imports = AccountImports(
            self.fleet_accounts, self.store, self.account_names, self.publish, self._announced, refuse_unknown
        )
        self.credentials = AccountCredentials(self.store, self.publish, refuse_unknown, self.clock)
        self.account_ends = AccountEnds(self.account_store, bridge, self.clock, lambda: self.node)

    @contextmanager
    def _announced(self, policies: Collection[str]) -> Iterator[None]:
        """See `Announced`."""
        self.link.announce(policies)
        with self.account_names.lock():
            yield

    def _begin_history(self) -> None:
        """Data of which all history was deleted have their first revision now; an edge node has no history."""
        has_history = self.node.management_at() is None
        if has_history and not self.revisions.newest and self.store.revision:
            with on_behalf_of("system", "history-begin"):
                self.history.add_empty(self.audit.stamp())

    def _make_overviews(self) -> Overviews:
        def certificate() -> Path | None:
            tls = self.settings.server.tls
            return tls.cert_file if tls.enabled else None

        def administrator() -> Administrator | None:
            user = users.by_name(self.store, users.ADMINISTRATOR)
            return None if user is None else Administrator(user.id, user.username)

        def account(account_id: str) -> FleetAccount | None:
            try:
                return self.fleet_accounts.get(account_id).record
            except NotFound:
                return None

        attention = Attention(
            self.webhooks,
            self.data,
            self.shared_objects,
            self.list_contents,
            certificate,
            administrator,
            lambda: self.account_activity.at_quota(account),
        )
        return Overviews(
            self.bridge,
            self.runtime,
            self.proxies,
            self.health,
            attention,
            lambda: self.settings.logging.access,
            self.pool_states.totals,
            self.proxies_over_nodes,
        )

    def reply(self, message: Any) -> KnownPool | ProxyTried | TrailVerified | Failed:
        """To a request to the API of this node, mostly by another one; callers were authorized there."""
        try:
            if isinstance(message, QueryPoolState):
                pools = self.shared_objects
                pool = pools.complete(pools.get(POOLS, message.pool_id)).record
                return KnownPool(self.pool_states.status(pool), tuple(self.pool_states.upstreams(pool)))
            if isinstance(message, TryProxy):
                proxy = self.proxies.get(message.proxy_id)
                proxy = self.nodes.served(proxy) or proxy
                return ProxyTried(**self.tester.run(proxy, message.url, message.timeout, message.request_id))
            if isinstance(message, VerifyTrail):
                found = verify(self.data, Head(message.seq, message.hash) if message.seq else None)
                if isinstance(found, Broken):
                    return TrailVerified(found.seq, "", found.error)
                return TrailVerified(found.seq, found.hash, "")
        except (DomainError, StoreError) as error:
            return Failed(str(error))
        return Failed(f"{type(message).__name__} is nothing that the API is asked")

    @cached_property
    def tester(self) -> ProxyTester:
        """Of proxies. It is loaded by the first test: few do any, and what it needs takes 4 MB."""
        from api.objects.proxies.proxy_test import ProxyTester

        return ProxyTester(self.bridge, lambda: self.settings.proxy.test_url)

    def apply(self, settings: ApiSettings) -> None:
        """Make these settings effective for the requests to come: at the start, and whenever they change.

        Rate counters and pending sign-ins are kept unless their own settings change.
        """
        self.settings = settings
        if self.rates.settings != settings.security.rate_limiting:
            self.rates = RateLimits(settings.security.rate_limiting)
        if self.sign_ins.settings != settings.auth.oauth2:
            self.sign_ins = SignIns(settings.auth.oauth2, self._outgoing)
        self.on_max_connections(settings.server.max_connections)

    def _rules(self) -> ProxyRules:
        settings, proxy = self.settings, self.settings.proxy
        policy = UpstreamPolicy.of(settings.server, proxy, settings.whole.get("metrics", {}))
        weak = settings.accounts.weak_passwords
        return ProxyRules(proxy.default_timeout, proxy.sleep_after, settings.server.tls, policy, proxy.workers, weak)

    def reread(self, settings: ApiSettings) -> None:
        """The configuration file was read again."""
        old, new = difference(*({**each.plain(), **each.whole} for each in (self.settings, settings)))
        self.apply(settings)
        if new:
            resource = {"type": "settings", "id": "configuration", "name": None}
            self._append("settings.reread", resource, before=old, after=new)
            self.publish("settings.updated", {"changed": field_names(new), "source": "file"})

    def _outgoing(self) -> OutgoingGuard:
        """The guard of requests to identity providers, which may be in an intranet."""
        return OutgoingGuard((), ranges=self._own_addresses())

    def _own_addresses(self) -> list[Range]:
        """Where the product itself listens."""
        services = ((host, port, port) for host, port in self._rules().upstream_policy.services)
        return merged((*services, *(each.record.listens_at for each in self.proxies.here())))

    def clock(self) -> float:
        """Unix time: in a fleet the same on all nodes."""
        return self.node.clock()

    def become(self, node: ThisNode | None) -> None:
        """From now on this installation is that node of a fleet, or stands alone."""
        self.node = node or ThisNode()
        self.node.add_report(self.proxies_over_nodes.report)

    def remove_node(self, node: NodeRecord, caller: Caller | None = None) -> Mapping[str, Any]:
        """End what another node may do, and delete it; what it had that no other node has. May be repeated.

        Raises `NotFound` and `StoreError`.
        """
        lost = self.node.remove(node.id)
        self.node_objects.delete(node.id, None, caller)
        self.tokens.revoke_of_node(node.id)
        self.publish("node.removed", {"node_id": node.id, "name": node.name})
        return lost

    def close(self) -> None:
        """Close what the services opened themselves."""
        self.link.close()
        self.list_fetches.close()
        self.password_checker.close()
        self.self_service.close()
        self.revisions.close()
        self.idempotency.close()

    def sign_in_refused(self, reason: str, address: str) -> None:
        """Record that the sign-in of a user of an identity provider was refused."""
        self.publish("auth.login_failed", {"username": "", "client_ip": address})
        self._record("auth.login_failed", None, "", reason)

    def _record(self, action: str, user: User | None, username: str, reason: str) -> None:
        """Record a failed sign-in of a user."""
        self._record_failed("user", action, user.id if user else None, username, reason)

    def _record_holder(self, action: str, account_id: str | None, username: str, reason: str) -> None:
        """Record a failed sign-in of a holder of an account."""
        self._record_failed("account", action, account_id, username, reason)

    def _record_failed(self, kind: str, action: str, identifier: str | None, username: str, reason: str) -> None:
        """Bounded by the client's address; an entry that can't be written is logged."""
        resource = {"type": kind, "id": identifier, "name": username[:64]}
        self._failed_sign_ins[kind].record(client_key(origin().address or ""), resource, {"reason": reason}, action)

    def _append(self, action: str, resource: dict[str, Any] | None, **more: Any) -> None:
        try:
            self.audit.append(action, resource, **more)
        except StoreError as error:
            log.error("cannot write to the audit trail: %s of %s: %s", action, (resource or {}).get("id"), error)

    def apply_plain(self, plain: Mapping[str, Any]) -> None:
        """The supervisor has applied what is stored: these are the settings."""
        settings = ApiSettings.from_plain(plain)
        if settings.logging != self.settings.logging:
            set_up_logging(settings.logging.level, settings.logging.format, settings.logging.output)
        self.apply(settings)

    def taken_back(self, purpose: Purpose, made: int) -> None:
        """Record and publish that a state was restored, or a revision undone, which is the revision `made`."""
        deed = "restored" if purpose.undone is None else "undone"
        number = purpose.restored if purpose.undone is None else purpose.undone
        resource = {"type": "revision", "id": str(number), "name": None}
        self._append(f"config.{deed}", resource, details={"revision": made})
        self.publish(f"config.{deed}", {deed: number, "revision": made})

    def publish(self, kind: str, data: dict[str, Any]) -> None:
        """Publish an event on the events plane, with its author, its request and the changed fields."""
        current = origin()
        if kind.startswith(AUTHORED):
            data = {**data, "by": current.author(with_name=is_about_people([kind]))}
        if kind in CHANGES:
            data["changed"] = sorted(current.changes.get(data[CHANGES[kind]], ()))
        if current.request_id is not None:
            data = {**data, "request_id": current.request_id}
        event = new_event(kind, checked(kind, data))
        self.bridge.publish(event_topic(event), event)


def _cache(store: Engine, kind: Kind[R]) -> RecordCache[Stored[R]]:
    return RecordCache(store, kind.collection, partial(load, kind), kind.transfer.identity)


def _is_deletion(change: DocumentChange) -> bool:
    return change.after is None


def _ends_first_password(change: DocumentChange) -> bool:
    before, after = change.before or {}, change.after or {}
    return before.get("username") == users.ADMINISTRATOR and before["password_hash"] != after.get("password_hash")
