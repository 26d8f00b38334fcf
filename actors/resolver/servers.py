"""One name server: what is known of its health, and a query to it, by UDP and TCP, TLS or HTTPS.

Counted are requests of actors, and by name server queries, failures and latencies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from functools import partial

from actors.bus.loop import Loop
from actors.histogram import BUCKETS, bucket_of, sparse
from actors.resolver.stream import FramedStream, UdpQuery
from actors.resolver.wire import (
    FORMERR,
    NOTIMP,
    PAYLOAD,
    STREAM_MAX,
    Bogus,
    DnsQuery,
    DnsResponse,
    new_query,
    read_response,
)
from config.net.addresses import is_address
from config.net.dns_servers import DnsServer

UNUSED_MAX = 64
"""Servers whose counters are kept though no proxy has them any more."""


class ServerCounts:
    """Counters of one name server since the start."""

    def __init__(self) -> None:
        self.queries = 0
        self.failures = 0
        self.seconds = 0.0
        self._latency = [0] * BUCKETS

    def responded(self, seconds: float) -> None:
        """A response has come after this time."""
        self.seconds += seconds
        self._latency[bucket_of(seconds)] += 1

    @property
    def latency(self) -> tuple[tuple[int, int], ...]:
        """Number and count of the buckets of `actors.histogram` that aren't empty."""
        return sparse(self._latency)


class Counts:
    """All counters of the process."""

    def __init__(self) -> None:
        self.requests = 0
        self.hits = 0
        self.failures = 0
        self.dropped: Counter[str] = Counter()
        """Messages that are no response to a query, by what is wrong with them."""
        self.servers: dict[str, ServerCounts] = {}

    def of_server(self, name: str) -> ServerCounts:
        """The counters of a name server."""
        return self.servers.setdefault(name, ServerCounts())

    def forget_unused(self, used: Collection[str]) -> None:
        """Drop the counters of servers that are not used any more, except those that came last."""
        unused = [name for name in self.servers if name not in used]
        for name in unused[:-UNUSED_MAX]:
            del self.servers[name]


UNKNOWN_RTT = 0.25
"""Seconds after which a server that has not responded yet gets company."""
SHORTEST_HEDGE, LONGEST_HEDGE = 0.05, 0.4
FIRST_STREAM = 1.0
"""The same for a server that has to be connected to first."""
MISSED_MAX = 3
"""Queries in a row without a response, after which a server is only asked when the others fail."""
SILENT_AFTER = 1.0
"""Seconds since the last response, before which a missing one does not count for that."""
PROBE_FIRST, PROBE_LONGEST = 5.0, 60.0
LOW_CASE_FOR = 3600.0
NO_EDNS_FOR = 900.0
"""Seconds that a server is asked without EDNS: it may be another one by then, or was forged (RFC 6891, section 6.2.2).
"""

OnResponse = Callable[[DnsResponse | str], None]
"""Called with the response, or with why there is none as a clause."""
Cancel = Callable[[], None]
FindAddress = Callable[[str, Callable[[str | None], None]], None]
"""Calls back once with the address of a name, or with None."""


class NameServer:
    """See the module. `ask` may be called any number of times at once."""

    def __init__(
        self,
        loop: Loop,
        find: FindAddress,
        server: DnsServer,
        counts: Counts,
        stream_only: bool,
        refuses: Callable[[str, int, str], str | None],
    ) -> None:
        """`refuses` says why it may not be asked at an address and a port (`actors.resolver.service.Guard`)."""
        self.name = str(server)
        self.counts = counts.of_server(self.name)
        self.rtt: float | None = None
        """Seconds, smoothed; None before the first response."""
        self._loop = loop
        self._find = find
        self._server = server
        self._refuses = refuses
        self._dropped = counts.dropped
        self.by_stream = stream_only or server.transport != "udp"
        """Whether it is never asked by UDP."""
        self._no_edns_until = 0.0
        self._low_case_until = 0.0
        self._missed = 0
        self._responded_at = float("-inf")
        self._probe_at, self._probe_after = 0.0, PROBE_FIRST
        self._stream: FramedStream | None = None

    # --- health ---

    @property
    def is_silent(self) -> bool:
        """Whether it has not responded lately, though others have."""
        return self._missed >= MISSED_MAX

    def probe_due(self) -> bool:
        """Whether a server that is not asked first should be asked beside the others, to learn how it is now."""
        if self._loop.now < self._probe_at:
            return False
        self._probe_after = min(2 * self._probe_after, PROBE_LONGEST) if self.is_silent else PROBE_FIRST
        self._probe_at = self._loop.now + self._probe_after
        return True

    @property
    def hedge_after(self) -> float:
        """Seconds after which another server is asked as well."""
        if self.rtt is None:
            return FIRST_STREAM if self.by_stream else UNKNOWN_RTT
        return min(max(3 * self.rtt, SHORTEST_HEDGE), LONGEST_HEDGE)

    def responded(self, seconds: float) -> None:
        """It has responded, whatever it says."""
        self.counts.responded(seconds)
        self._missed, self._responded_at = 0, self._loop.now
        self.rtt = seconds if self.rtt is None or seconds < self.rtt / 3 else self.rtt + (seconds - self.rtt) / 8

    def was_late(self, seconds: float) -> None:
        """It has not responded for so long, and another one has."""
        if self.rtt is not None and seconds > self.rtt:
            self.rtt += (seconds - self.rtt) / 2
        self.missed()

    def missed(self) -> None:
        """It has not responded in its time, or can't be reached. Names that take long are no silence."""
        self.counts.failures += 1
        if self._loop.now - self._responded_at > SILENT_AFTER:
            self._missed += 1

    # --- queries ---

    def ask(self, name: str, kind: int, done: OnResponse) -> Cancel:
        """Put a question; `done` is called once, later, unless it is cancelled."""
        self.counts.queries += 1
        return _QueryAttempt(self, name, kind, done).cancel

    def query(self, name: str, kind: int) -> DnsQuery:
        """The query as this server understands it. Raises `NotAName`."""
        now = self._loop.now
        return new_query(
            name, kind, not self.by_stream and now >= self._low_case_until, edns=now >= self._no_edns_until
        )

    @property
    def loop(self) -> Loop:
        """The loop."""
        return self._loop

    def send(
        self, query: DnsQuery, by_stream: bool, received: Callable[[bytes, int], bool], lost: Callable[[str], None]
    ) -> Cancel:
        """Send a query. `received` gets messages with the id of the query until it returns True."""
        if by_stream or self.by_stream:
            if self._stream is None or self._stream.closed or self._stream.full:
                self._stream = self._new_stream()
            return self._stream.send(query, received, lost)
        server = self._server
        refused = self._refuses(server.host, server.port, server.host)
        if refused is not None:
            self._loop.call_soon(partial(lost, refused))
            return _nothing
        return UdpQuery(self._loop, (server.host, server.port), query, received, lost).close

    def read(self, message: bytes, query: DnsQuery, number: int, longest: int) -> DnsResponse:
        """As `read_response`, of at most `longest` bytes; what is no response is counted. Raises `Bogus`."""
        try:
            if len(message) > longest and message[:2] == number.to_bytes(2, "big"):
                raise Bogus("overlong")
            return read_response(message, query, number)
        except Bogus as error:
            self._dropped[str(error)] += 1
            raise

    def keeps_no_case(self) -> None:
        """A response by TCP had the name in other letters, too: so it is the server that changes them."""
        self._low_case_until = self._loop.now + LOW_CASE_FOR

    def without_edns(self, query: DnsQuery, response: DnsResponse) -> bool:
        """Whether the query has to be repeated without EDNS (RFC 6891, section 7), as all for a while."""
        if not query.edns or response.code not in (FORMERR, NOTIMP):
            return False
        self._no_edns_until = self._loop.now + NO_EDNS_FOR
        return True

    def close(self) -> None:
        """Close its connection."""
        if self._stream is not None:
            self._stream.close()

    def _new_stream(self) -> FramedStream:
        server = self._server
        if server.transport == "https":
            from actors.resolver.https import HttpsStream  # needs h2, which only this does

            stream: FramedStream = HttpsStream(self._loop, server)
        else:
            stream = FramedStream(self._loop, server.name if server.transport == "tls" else None)
        connect = partial(self._connect, stream)
        find = partial(connect, server.host) if is_address(server.host) else partial(self._find, server.host, connect)
        self._loop.call_soon(find)
        return stream

    def _connect(self, stream: FramedStream, address: str | None) -> None:
        if address is None:
            stream.close("its name does not resolve")
            return
        refused = self._refuses(address, self._server.port, self._server.host)
        if refused is not None:
            stream.close(refused)
        else:
            stream.connect((address, self._server.port))

    def __repr__(self) -> str:
        return f"<NameServer {self.name}>"


class _QueryAttempt:
    """One question to one server: first by UDP, by TCP where that doesn't do, and without EDNS where it must be."""

    def __init__(self, server: NameServer, name: str, kind: int, done: OnResponse) -> None:
        self._server = server
        self._done: OnResponse | None = done
        self._began = server.loop.now
        self._by_stream = server.by_stream
        self._query = server.query(name, kind)
        self._cancel: Cancel = _nothing
        self._send()

    def cancel(self) -> None:
        """End it; `done` is not called any more."""
        self._done = None
        cancel, self._cancel = self._cancel, _nothing
        cancel()

    def _send(self) -> None:
        cancel, self._cancel = self._cancel, _nothing
        cancel()
        self._cancel = self._server.send(self._query, self._by_stream, self._received, self._lost)

    def _received(self, message: bytes, number: int) -> bool:
        """Whether the message is a response."""
        try:
            response = self._server.read(message, self._query, number, STREAM_MAX if self._by_stream else PAYLOAD)
        except Bogus as error:
            return self._on_bogus(str(error))
        if (response.truncated and not self._by_stream) or self._server.without_edns(self._query, response):
            self._by_stream = self._by_stream or response.truncated
            self._query = self._query._replace(edns=self._query.edns and response.code not in (FORMERR, NOTIMP))
            self._send()
            return True
        self._end(response)
        return True

    def _on_bogus(self, why: str) -> bool:
        """What came by UDP may be forged: the response may still come. What came by a stream is of the server."""
        query = self._query
        if why == "alias_loop":
            self._end("its aliases (CNAME) are a loop or too many")
        elif not self._by_stream:
            if why not in ("case", "overlong"):
                return False
            self._by_stream = True
            self._send()
        elif why == "case" and query.question != query.question.lower():
            self._server.keeps_no_case()
            self._query = new_query(query.name, query.kind, False, query.edns)
            self._send()
        else:
            self._end("its response is not usable")
        return True

    def _lost(self, why: str) -> None:
        self._server.missed()
        self._end(why)

    def _end(self, result: DnsResponse | str) -> None:
        done = self._done
        if isinstance(result, DnsResponse):
            self._server.responded(self._server.loop.now - self._began)
        self.cancel()
        if done is not None:
            done(result)


def _nothing() -> None:
    return
