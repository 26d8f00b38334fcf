"""The API process: the bus in the main thread, HTTP in the others, the configuration store between them."""

from __future__ import annotations

import logging
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from actors.bus.loop import THREADED_WAIT
from actors.bus.mailbox import ASK_TIMEOUT, Reply, refuse
from actors.bus.messages.common import SUPERVISOR, ApplySettings, Done
from actors.bus.messages.specs import FleetObject, ProxySpec
from actors.bus.messages.supervision import ApplyOverrides, DesiredRevisions, DrainConnections, QueryDesired
from actors.garbage import end_start, without_collections
from actors.process import Actor, Boot
from api.api_settings import ApiSettings
from api.app import create_app
from api.bus_bridge import LoopBridge, reason_of
from api.container import Services
from api.cpu_affinity import pin_to_one_core
from api.engine.commit import Engine
from api.objects.accounts.credential_service import ExpiredAccounts, ExpiredCredentials
from api.objects.accounts.password_renewal import PasswordRenewalHandler
from api.objects.live_settings import read_overrides
from api.objects.nodes.fleet_nodes import fleet_nodes
from api.objects.proxies.proxy_cache import ProxyCache
from api.objects.proxies.supervisor_link import REPLACE_TIMEOUT
from api.objects.users.password_reset import PasswordResetHandler
from api.objects.webhooks.webhook_sender import WebhookLink
from api.operator.cluster import ClusterHandler, node_of
from api.operator.joining import finish_joining, has_read
from api.operator.start import ensure_administrator, read_desired_objects, read_desired_proxies
from api.periodic_work import HistoryPruning
from api.security import users
from api.server.http_server import ApiServer
from api.server.tasks import RejectedRequestLog
from api.store import StoreDamaged, StoreError
from api.store.fleet_store import require_store
from config import OperatorError
from config.files.paths import DataDir, PathError, private_directory
from config.files.secret_box import secret_box_of
from config.settings.runtime import Stored

if TYPE_CHECKING:  # in a fleet alone
    from api.cluster.fleet_node import FleetNode
log = logging.getLogger(__name__)

DRAIN_CHECK_PERIOD = 0.02
"""Seconds between two checks whether the last request is finished, while the actor or the TLS terminator drains."""
REOPEN_DRAIN = 1.0
"""Seconds that requests under way have when this becomes a node; others wait in the socket."""
REPORT_RETRY = 0.5
"""Seconds after which a rejected report of the desired state is sent again."""
REPLICA_RETRY = 2.0
"""Seconds between two tries to read a replica anew."""
REPLICA_WAIT = 60.0
"""Seconds that a start waits for the database when this node has nothing to serve without it.

Ending at once would have systemd give up after ten tries, long before a database is back. Less than TimeoutStartSec.
"""


class OpenedStore(NamedTuple):
    """The store, its proxies, which are read, and what this installation is in its fleet."""

    engine: Engine
    proxies: ProxyCache
    node: FleetNode | None


def open_store(data: DataDir, replica_wait: float = 0.0) -> OpenedStore:
    """Open it for the API. A node needs no database for that, unless its replica is damaged or gone: then it tries to
    read that anew for `replica_wait` seconds. Raises `StoreError`."""
    with without_collections():
        finish_joining(data)
        node = node_of(data)
        engine = _opened_engine(data, node, replica_wait)
        if node is not None:
            node.opened(engine)
        proxies = ProxyCache(engine)
        proxies.all()
        return OpenedStore(engine, proxies, node)


def _opened_engine(data: DataDir, node: FleetNode | None, replica_wait: float) -> Engine:
    seal = secret_box_of(data)
    try:
        require_store(data)
        return Engine(data, seal, None if node is None else node.ledger)
    except StoreDamaged as error:
        if node is None:
            raise
        damage = error
    until = time.monotonic() + replica_wait
    while True:
        try:
            return node.replace_replica(data, seal)
        except StoreError as reason:
            refusal = f"{damage}; and the fleet's database can't give it: {reason}"
            if time.monotonic() >= until:
                raise StoreDamaged(refusal) from reason
            log.warning("the start waits for the database: %s", refusal)
        time.sleep(REPLICA_RETRY)


class ApiStart:
    """What a start has the process do that becomes the API (`actors.supervision.processes.api_process`): first `read`.

    The supervisor holds the lock of the data directory.
    """

    def __init__(self) -> None:
        self._data = DataDir(Path())
        self._opened: OpenedStore | None = None

    def read(self, folder: str) -> tuple[Stored, tuple[ProxySpec, ...], tuple[FleetObject, ...], bool]:
        """Open the store, and read for both: the settings changed through the API, the proxies, the objects, and
        whether there is no user yet. Raises `OperatorError`.

        The supervisor gets no class of the API: it would load that.
        """
        self._data = data = DataDir(Path(folder))
        self._opened = opened = open_store(data, REPLICA_WAIT)
        engine, proxies = opened.engine, opened.proxies
        node_id = None if opened.node is None else opened.node.node_id
        nodes = fleet_nodes(engine, lambda: node_id, proxies)
        desired = read_desired_proxies(nodes.here(), data), read_desired_objects(engine, data)
        has_management = opened.node is None or opened.node.management_at() is None  # an edge node has none
        return read_overrides(engine, node_id), *desired, has_management and not engine.find(users.COLLECTION)

    def make_administrator(self, given: str | None) -> str | None:
        """Make the first user; the password, if it was made up. Raises `OperatorError`."""
        assert self._opened is not None
        try:
            return ensure_administrator(self._opened.engine, self._data, given)
        except ValueError as error:  # the password is their only input
            raise OperatorError(f"admin_password: {error}") from error

    def actor(self, boot: Boot, sockets: list[socket.socket]) -> ApiActor:
        """The API, with the store that is open."""
        return ApiActor(boot, sockets, self._opened)


class ApiActor(Actor):
    """Serves the management API on `sockets[0]`, which the supervisor has bound.

    `boot.settings` is what `config.settings.settings.plain` gives. `boot.params`: `supervisor_pid`; `behind_tls`,
    whether `sockets[0]` is where the TLS terminator connects to (`api.server.tls_terminator`).
    """

    longest_wait = THREADED_WAIT

    def __init__(self, boot: Boot, sockets: list[socket.socket], opened: OpenedStore | None = None) -> None:
        """Open the store unless it is, report the desired state to the supervisor, and serve.

        Ends the process when there is no usable store.
        """
        pin_to_one_core()
        super().__init__(boot, sockets)
        self._is_open = False
        if not self._open(opened):
            raise SystemExit(1)

    def _open(self, opened: OpenedStore | None = None) -> bool:
        """Make all that serves, and report the desired state; False when there is no usable store."""
        settings = ApiSettings.from_plain(dict(self.settings))
        self.node: FleetNode | None = None
        self._bridge = LoopBridge(
            self.loop,
            self.mailbox,
            self.events,
            lambda: None if self.node is None else self.node.asks(),
            lambda message: self._services.reply(message),  # noqa: PLW0108 - they are made later
        )
        try:
            keep_temporary_files_in(self.data_dir)
            pid = self.boot.params.get("supervisor_pid")
            self._store, proxies, self.node = opened or open_store(self.data_dir)
            self._services = Services(
                self._store, self._bridge, settings, self.data_dir, self.run_dir, pid, proxies, self.node
            )
            self._services.pool_states.forget_deleted()
            self._services.pool_states.apply_stored()
        except (StoreError, PathError) as error:
            log.critical("the API can't start: %s", error)
            return False
        behind_tls = bool(self.boot.params.get("behind_tls"))
        application, on_rejected = create_app(self._services), RejectedRequestLog(self._services)
        listener = self.sockets[0].dup()  # the server closes it
        self._server = ApiServer(application, listener, settings.server.max_connections, behind_tls, on_rejected)
        self._expired_credentials = ExpiredCredentials(self._services.credentials)
        self._ends = ExpiredAccounts(self._services.account_ends, lambda: self._services.node)
        self._pruning = HistoryPruning(self._services.history, lambda: self._services.settings.history)
        self._webhooks = WebhookLink(
            self._services.objects["webhooks"],
            self._services.webhooks,
            self._services.publish,
            self.mailbox,
            self._bridge,
        )
        services = self._services
        self._password_resets = PasswordResetHandler(
            services.store, services.login_throttle, services.publish, self._bridge
        )
        self._renewals = PasswordRenewalHandler(services.password_renewal, self._bridge)
        self._cluster = ClusterHandler(services.store, self._bridge, self)
        self._handlers = (self._webhooks, self._password_resets, self._renewals, self._cluster)
        self._services.on_max_connections = self._server.limit
        self._is_open = True
        _warn_if_all_rejected(settings)
        self._report_desired_state()
        return True

    def joined(self) -> None:
        """See `NodeProcess`: making another process takes longer than all that this does.

        What that process would do again is done here, so the supervisor notices nothing but the desired state. Where
        the state of the fleet was not read yet, the next process reads it, since this one has liveness deadlines.
        """
        if not has_read(self.data_dir):
            self.terminate("its joining a fleet")
        elif not self._stopping:
            self._drain_server(REOPEN_DRAIN, self._reopen)

    def _reopen(self) -> None:
        if self._stopping:
            return
        self._close_opened()
        if self._open():
            log.warning("this installation is the node %s of a fleet", self._services.nodes.this_id)
        else:
            self.finish()

    def receive(self, sender: str, message: Any, reply: Reply) -> None:
        """Handle the end of the TLS terminator, and requests of other actors and the command line."""
        if isinstance(message, DrainConnections):
            self._drain_connections()
            reply(Done())
        elif not any(each.receive(message, reply) for each in self._handlers):
            refuse(sender, message, reply)

    def settings_changed(self, _groups: Collection[str]) -> None:
        """See `Actor`: the configuration was read again. Changes through the API are applied by their own request."""
        self._services.reread(ApiSettings.from_plain(dict(self.settings)))

    def drain(self, seconds: float) -> None:
        """Finish the requests under way, then end."""
        self._drain_server(seconds, self.finish)

    def _drain_server(self, seconds: float, then: Callable[[], None]) -> None:
        self._services.ending.set()
        self._server.stop_accepting()
        self._when_idle(time.monotonic() + seconds, then)

    def _when_idle(self, deadline: float, then: Callable[[], None]) -> None:
        if self._server.idle() or time.monotonic() >= deadline:
            self.loop.call_soon(then)  # not within a call of the bridge, which may be closed
        else:
            self.loop.call_later(DRAIN_CHECK_PERIOD, lambda: self._when_idle(deadline, then))

    def _drain_connections(self) -> None:
        """The TLS terminator ends: its connections end, and what it still brings is served."""
        self._server.drain()
        if not self._stopping:
            self.loop.call_later(DRAIN_CHECK_PERIOD, self._drain_connections)

    def close(self) -> None:
        """End the threads, then close everything."""
        if self._is_open:
            self._close_opened()
        super().close()

    def _close_opened(self) -> None:
        self._is_open = False
        self._services.ending.set()
        self._bridge.close()
        self._server.close()
        self._expired_credentials.close()
        self._ends.close()
        self._pruning.close()
        self._renewals.close()
        if self.node is not None:
            self.node.close()
        self._services.close()
        self._store.close()

    def _report_desired_state(self) -> None:
        """The supervisor may have missed a change when the API died; requests are served once it has all proxies."""
        self.mailbox.ask(SUPERVISOR, QueryDesired(), self._on_revisions, ASK_TIMEOUT)

    def _on_revisions(self, reply: Any) -> None:
        if isinstance(reply, DesiredRevisions):
            message = self._services.link.desired_state(reply.proxies)
            self.mailbox.ask(SUPERVISOR, message, self._on_desired_state_reply, REPLACE_TIMEOUT)
        else:
            self._on_desired_state_reply(reply)

    def _on_desired_state_reply(self, reply: Any) -> None:
        if isinstance(reply, Done):
            end_start()
            self._server.start()
            self._expired_credentials.start()
            self._ends.start()
            self._pruning.start()
            self._services.list_fetches.start()
            self._start_node()
            self.ready()
            self._webhooks.send_webhooks()
            # an earlier process may have been killed between the commit of a setting and its effect
            overrides = read_overrides(self._store, self._services.nodes.this_id)
            self.mailbox.ask(SUPERVISOR, ApplyOverrides(overrides), self._on_settings, ASK_TIMEOUT)
        else:
            log.error("the supervisor rejected the proxy configuration: %s", reason_of(reply))
            self.loop.call_later(REPORT_RETRY, self._report_desired_state)

    def _start_node(self) -> None:
        if self.node is None:
            return
        from api.cluster.fleet_node import NodeHost

        services, server = self._services, self._services.settings.server

        def remove(node_id: str) -> None:
            services.remove_node(services.nodes.named(node_id))

        self.node.start(
            NodeHost(
                services.publish,
                lambda: services.settings.history,
                self.listen(),
                self._bridge,
                remove,
                (server.host, server.port),
                self._cluster.moved,
            )
        )

    def listen(self) -> str:
        """See `NodeProcess`."""
        return str(self._services.settings.whole["cluster"]["listen"])

    def become(self, node: FleetNode | None) -> None:
        """See `NodeProcess`."""
        self.node = node
        self._services.become(node)
        self._start_node()

    def _on_settings(self, reply: Any) -> None:
        if isinstance(reply, ApplySettings):
            self._services.apply_plain(reply.groups)
        else:
            log.error("the supervisor rejected the stored settings: %s", reason_of(reply))


def keep_temporary_files_in(data: DataDir) -> None:
    """Keep large bodies out of /tmp, and delete what an earlier process left. Raises `PathError`."""
    folder = data.temporary
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass  # the first start
    except OSError as error:
        raise PathError(f"{folder}: cannot be emptied: {error.strerror}") from error
    tempfile.tempdir = str(private_directory(folder))


def _warn_if_all_rejected(settings: ApiSettings) -> None:
    server = settings.server
    if settings.security.https_only and not server.tls.enabled and not server.trusted_proxies:
        log.warning("security.https_only without server.tls or server.trusted_proxies: all requests will be refused")
