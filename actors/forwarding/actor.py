"""The forwarding actor of one proxy: accepts on the socket that it was given, configures, counts, drains."""

from __future__ import annotations

import logging
import resource
import select
import socket
import time
from typing import TYPE_CHECKING, Any

from setproctitle import getthreadtitle, setproctitle, setthreadtitle

from actors.bus.events import counters_topic
from actors.bus.mailbox import Answer, refuse
from actors.bus.messages.accounts import AccountStates, QueryAccounts
from actors.bus.messages.common import SUPERVISOR, Done, Failed, proxy_label
from actors.bus.messages.forwarding import (
    AllowTestClient,
    CloseConnections,
    Configure,
    Explain,
    QueryConnections,
    QueryTester,
    SetAccessRecords,
    SetPooling,
)
from actors.bus.messages.metrics import Counters
from actors.bus.messages.problems import NO_DESCRIPTORS, Problem, ReportProblems
from actors.bus.messages.specs import ProxySpec
from actors.bus.messages.upstreams import QueryUpstreams, Upstreams
from actors.bus.records import RecordSender, Row, is_error
from actors.counters import CPU_SECONDS, ERRORS, NAMES, RECORDS_DROPPED
from actors.forwarding.access.explain import explain
from actors.forwarding.connections.client_connection import Client
from actors.forwarding.connections.proxy_header_reader import ProxyHeaderReader
from actors.forwarding.context import Serving
from actors.forwarding.net.dialer import EDGE
from actors.forwarding.net.lingering_close import linger
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure, Refused
from actors.forwarding.protocols.registry import turned_away
from actors.forwarding.protocols.session_config import HANDSHAKE_TIMEOUT
from actors.forwarding.reporting import trace
from actors.forwarding.reporting.counter_publisher import CounterPublisher
from actors.forwarding.reporting.usage_reporter import UsageReporter
from actors.histogram import sparse
from actors.log_format import set_subject
from actors.net.descriptor_exhaustion import BREATHER, OUT_OF_DESCRIPTORS
from actors.net.transport import Transport
from actors.process import Actor, Boot

if TYPE_CHECKING:
    from actors.forwarding.net.certificate_watch import CertificateWatch
    from actors.net.proxy_protocol import Ends, Header

log = logging.getLogger(__name__)

PAGE = resource.getpagesize()
ACCEPTED_AT_ONCE = 64
FIRST_REQUEST = 1.0
"""Seconds that a client which has only connected may take for its request, once the actor is to end."""
USAGE_AWAITED = 2.0
"""Seconds that what accounts have used before may take to arrive at the start."""
USAGE_RETRY = 0.05
LAST_RECORDS = 1.0
"""Seconds that the last records may take to be acknowledged at the end."""


class ForwardingActor(Actor):
    """Says hello at once, and accepts from the first `Configure` on.

    `boot.params["proxy"]` has the limits of the pool, and deadlines.
    """

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        params = boot.params.get("proxy", {})
        self._recorded: str = boot.params.get("access_records", "all")
        self.records = RecordSender(self.loop, self.context, self.run_dir.records, boot.name, boot.instance)
        self.serving = Serving(
            self.loop,
            self._record,
            int(params.get("max_idle_connections", 100)),
            float(params.get("keep_alive_timeout", 60)),
            float(params.get("handshake_timeout", HANDSHAKE_TIMEOUT)),
        )
        self.serving.problems.report = self._report
        self._first_request = float(params.get("first_request_timeout", FIRST_REQUEST))
        self._usage = UsageReporter(self.loop, self.mailbox, self.serving.limits, boot.instance)
        self._listen_by = 0.0
        self._own_tls = _files(boot.params.get("tls"))
        self._certificate: CertificateWatch | None = None
        self._listener: socket.socket | None = None
        self._last_ip = ""
        self._label = ""
        self._teller = CounterPublisher(
            self.loop, self._counters, lambda said: self.events.publish(counters_topic(said), said)
        )
        self.ready()

    # --- messages ---

    def receive(self, sender: str, message: Any, answer: Answer) -> None:
        """All that is asked of it or ordered."""
        if isinstance(message, Configure):
            self.serving.configure(message.spec, message.egress)
            self._usage.configured(message.spec.id)
            self._choose_certificate(message.spec)
            self.records.proxy_name = message.spec.name
            self._name_process(proxy_label(message.spec.name, message.spec.port))
            self.serving.problems.report_soon()
            if self._listener is None and not self._stopping:
                self._listen_by = self._listen_by or self.loop.now + USAGE_AWAITED
                self._listen_when_known()
            answer(Done())
        elif isinstance(message, AllowTestClient):
            self._admit(message, answer)
        elif isinstance(message, Explain):
            self._explain(message, answer)
        elif isinstance(message, QueryAccounts):
            self._tell_accounts(message, answer)
        elif isinstance(message, QueryConnections):
            self.serving.book.query(message, answer)
        elif isinstance(message, QueryUpstreams):
            upstreams = self.serving.upstreams
            answer(Upstreams(()) if upstreams is None else upstreams.told())
        elif isinstance(message, QueryTester):
            answer(self.serving.testers.report_of(message.user))
        elif isinstance(message, CloseConnections):
            self.serving.book.end(message, answer)
        elif isinstance(message, SetPooling):
            self.serving.set_pooling(message.max_idle_connections, message.keep_alive_timeout)
            answer(Done())
        elif isinstance(message, SetAccessRecords):
            self._recorded = message.access
            answer(Done())
        else:
            refuse(sender, message, answer)

    def logging_changed(self) -> None:
        """See `Actor`: whether each decision about a connection is logged."""
        self.serving.debug = trace.enabled()

    def _record(self, row: Row) -> None:
        """What is not to be kept is not even sent: by the time it was indexed the setting might be another one."""
        if self._recorded == "all" or (self._recorded == "errors" and is_error(row)):
            self.records.add(row)

    def _name_process(self, label: str) -> None:
        """What lists of processes show and log lines begin with: the proxy as people call it, whenever that changes."""
        if label != self._label:
            self._label = label
            short = getthreadtitle()  # proc(5), comm: stays the one by id, which `setproctitle` overwrites
            setproctitle(f"proxyfleet: {label}")
            setthreadtitle(short)
            set_subject(label)

    def _admit(self, message: AllowTestClient, answer: Answer) -> None:
        if self.serving.credentials is None:
            answer(Failed("not configured yet"))
        else:
            self.serving.testers.admit(message.user, message.token, message.request_id, message.ttl)
            answer(Done())

    def _explain(self, question: Explain, answer: Answer) -> None:
        if self.serving.judge is None:
            answer(Failed("not configured yet"))
            return
        try:
            explain(self.serving, question, answer)
        except Refused as refused:
            answer(Failed(refused.failure.detail, "target"))

    def _tell_accounts(self, question: QueryAccounts, answer: Answer) -> None:
        def tell(_settled: bool) -> None:
            accounts = self.serving.limits.accounts.values()
            answer(AccountStates({account.spec.id: account.state() for account in accounts}))

        if question.settle:
            self._usage.settle(tell)
        else:
            tell(True)

    # --- accepting ---

    def _listen_when_known(self) -> None:
        """With quotas, not before it is known what was used already; but a collector that is away stops nobody."""
        if self._listener is not None or self._stopping:
            return
        if self._usage.knows_all or self.loop.now >= self._listen_by:
            self._listen()
            return

        def settled(heard: bool) -> None:
            self.loop.call_later(0.0 if heard else USAGE_RETRY, self._listen_when_known)

        self._usage.settle(settled, USAGE_AWAITED)

    def _listen(self) -> None:
        listener = self.sockets[0]
        listener.setblocking(False)
        if listener.family in (socket.AF_INET, socket.AF_INET6):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
        self._listener = listener
        self.loop.watch(listener.fileno(), select.EPOLLIN, self._accept)

    def _accept(self, _mask: int) -> None:
        listener = self._listener
        if listener is None:
            return
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._cannot_accept(error)
                return
            sock.setblocking(False)
            if self.serving.accept_proxy_protocol:
                self._await_announcement(sock, address[0])
            else:
                self._admit_client(sock, address[0])

    def _await_announcement(self, sock: socket.socket, peer_ip: str) -> None:
        if len(self.serving.open) < self.serving.max_connections:
            ProxyHeaderReader(self.serving, sock, peer_ip, self._announced)
        else:
            self._last_ip = peer_ip
            self._turn_away_from_full(sock)

    def _announced(self, announcement: ProxyHeaderReader, header: Header) -> None:
        """The client is known. Its connection has a place already."""
        ends = header.ends
        self._admit_client(announcement.sock, ends[0][0] if ends else announcement.client_ip, places=1, ends=ends)
        self.serving.ended(announcement)

    def _admit_client(self, sock: socket.socket, client_ip: str, places: int = 0, ends: Ends | None = None) -> None:
        serving = self.serving
        if client_ip != self._last_ip:
            self._last_ip = client_ip  # clients come in crowds: one text for all connections of one address
        assert serving.judge is not None
        judgement = serving.judge.client(client_ip)
        if judgement.failure is not None:
            self._turn_away(sock, judgement.failure)
            return
        refusal = serving.limits.client_refusal(client_ip) if serving.limits.counts_clients else None
        if refusal is not None and not serving.limits.may_be_told(client_ip):
            self._turn_away(sock, refusal)
            return
        if len(serving.open) - places >= serving.max_connections:
            self._turn_away_from_full(sock)
            return
        transport = self._transport(sock)
        if transport is None:
            sock.close()
            return
        client = Client(serving, transport, self._last_ip)
        client.reported = judgement.reason
        client.ends = ends
        if client.meter is not None:
            client.meter.refusal = refusal
        serving.began(client)
        self.loop.watch(client.fileno, EDGE, client.on_client)
        if self._listener is None:
            client.retire(patient=True)  # it was announced while the actor is about to end

    def _transport(self, sock: socket.socket) -> Transport | None:
        """The connection as the protocol wants it; None when it wants TLS and there is no certificate."""
        if self._certificate is None:
            return sock
        context = self._certificate.context()
        if context is None:
            return None
        from actors.net.tls_stream import TlsStream  # only https proxies pay for it

        return TlsStream(sock, context)

    def _choose_certificate(self, spec: ProxySpec) -> None:
        """For `https`: the proxy's own pair of files, else the product's."""
        if spec.protocol != "https":
            self._certificate = None
            return
        from actors.forwarding.net.certificate_watch import CertificateWatch  # only https proxies pay for it

        if self._certificate is None:
            self._certificate = CertificateWatch(self.loop, self.serving.problems)
        self._certificate.use(spec.tls or self._own_tls)

    def _turn_away_from_full(self, sock: socket.socket) -> None:
        self.serving.count.values[ERRORS] += 1
        self._turn_away(sock, failures.out_of_connections(self.serving.max_connections))

    def _turn_away(self, sock: socket.socket, failure: Failure) -> None:
        """An answer where the protocol has one before a request, no request read, no place taken; but a record."""
        if self.serving.debug:
            trace.log.debug("client %s turned away: %s", self._last_ip, failure.detail)
        self.serving.refused_client(self._last_ip, failure)
        if self._certificate is not None:
            sock.close()  # a handshake only to say no would cost more than the connection
            return
        self.loop.watch(sock.fileno(), EDGE, lambda _mask: None)
        try:
            sock.send(turned_away(self.serving.protocol, failure, self.serving.policy.date(self.loop.now)))
        except OSError as error:
            log.debug("a client that was turned away is gone: %s", error)
        linger(self.serving, sock, self._last_ip)

    def _cannot_accept(self, error: OSError) -> None:
        if error.errno not in OUT_OF_DESCRIPTORS:
            log.debug("a connection ended before it was accepted: %s", error)
            return
        self.serving.problems.occurred(NO_DESCRIPTORS, "no descriptor is left for new clients: they wait in the queue")
        listener = self._listener
        if listener is not None:
            self.loop.unwatch(listener.fileno())
            self.loop.call_later(BREATHER, self._accept_again)

    def _accept_again(self) -> None:
        if self._listener is not None:
            self.loop.watch(self._listener.fileno(), select.EPOLLIN, self._accept)

    # --- telling ---

    def _report(self, problems: tuple[Problem, ...], over: tuple[Problem, ...]) -> None:
        ends = 0.0 if self._certificate is None else self._certificate.ends
        self.mailbox.tell(SUPERVISOR, ReportProblems(self.boot.instance, problems, over, ends))

    def _counters(self) -> Counters | None:
        serving, count = self.serving, self.serving.count
        if not serving.proxy_id:
            return None
        count.values[RECORDS_DROPPED] = self.records.dropped
        count.values[CPU_SECONDS] = time.process_time()
        return Counters(
            proxy_id=serving.proxy_id,
            instance=self.boot.instance,
            values=dict(zip(NAMES, count.values, strict=True)),
            active_connections=len(serving.open),
            last_request=count.last_request,
            refusals=dict(count.refusals),
            reported=dict(count.reported),
            statuses={str(status): number for status, number in count.statuses.items()},
            latency=sparse(count.latency),
            resident=_resident(),
        )

    # --- ending ---

    def drain(self, seconds: float) -> None:
        """Accept no more, let exchanges and tunnels end by themselves for `seconds`, then cut what is left."""
        if self._listener is not None:
            self.loop.unwatch(self._listener.fileno())
            self._listener = None
        for sock in self.sockets:
            sock.close()
        serving = self.serving
        serving.on_empty = lambda: self.loop.call_soon(self._emptied)
        for connection in tuple(serving.open):
            if isinstance(connection, Client):
                connection.retire(patient=True)
        self.loop.call_later(min(self._first_request, seconds), self._retire_silent)
        self.loop.call_later(seconds, self._cut)
        if not serving.open:
            self._emptied()

    def _retire_silent(self) -> None:
        for connection in tuple(self.serving.open):
            if isinstance(connection, Client):
                connection.retire(patient=False)
            elif isinstance(connection, ProxyHeaderReader):
                connection.end("connection_terminated")

    def _cut(self) -> None:
        for connection in tuple(self.serving.open):
            connection.end("connection_terminated")

    def _emptied(self) -> None:
        """No client is left: send the last counters and records, and end when they have arrived."""
        self.serving.on_empty = None
        self._teller.tell()
        self.records.flush()
        deadline = self.loop.now + LAST_RECORDS
        told = not self.serving.limits.accounts

        def usage_told(heard: bool) -> None:
            nonlocal told
            told = heard
            if not heard:
                self.loop.call_later(USAGE_RETRY, tell_usage)

        def tell_usage() -> None:
            self._usage.settle(usage_told, LAST_RECORDS, final=True)

        if not told:
            tell_usage()

        def settle() -> None:
            if (told and self.records.settled) or self.loop.now > deadline:
                self.finish()
            else:
                self.loop.call_later(0.02, settle)

        settle()

    def close(self) -> None:
        """Give everything back."""
        self.records.close()
        super().close()
        set_subject("")


def _resident() -> int:
    """Bytes of memory that this process has (proc(5), `statm`); 0 when no descriptor is left to look."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * PAGE
    except OSError:
        return 0  # out of descriptors: counters are told all the same


def _files(params: Any) -> tuple[str, str] | None:
    """`cert_file` and `key_file` of `server.tls`, when both are set."""
    pair = (params or {}).get("cert_file"), (params or {}).get("key_file")
    return (str(pair[0]), str(pair[1])) if all(pair) else None
