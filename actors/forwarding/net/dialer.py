"""From a target to a connected socket: resolve once, check every address, connect to the very address checked.

Several addresses are tried in turn, IPv6 and IPv4 alternating (RFC 8305): the next one starts when the one before has
failed or has been silent for `STAGGER` seconds, and the first to connect wins. Which were silent is remembered
(`address_order`). Addresses of one family don't wait for late ones of the other. The deadline is the caller's: it
calls `cancel`.
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from actors.bus.loop import Loop, Timer
from actors.bus.messages.common import BIND_ADDRESS, NO_DESCRIPTORS
from actors.forwarding.access.policy import AccessPolicy, Decision, refused
from actors.forwarding.access.rules import OwnRules
from actors.forwarding.isolation import OURSELVES, Requester
from actors.forwarding.net.resolver import AddressOrder, OnResolved, Resolution, Resolved, Resolver
from actors.forwarding.net.source_address import ANY, SourceAddress, SourceAddressUnavailable
from actors.forwarding.net.timer_wheel import TimerWheel
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from config.text.access_fields import name_and_address

if TYPE_CHECKING:
    from actors.forwarding.policies.judge import Judge

STAGGER: Final = 0.2
"""Seconds until the next address is tried beside one that is silent. RFC 8305 5 recommends 0.25 and allows 0.1 to 2: an
address from which nothing comes back costs less than a quarter of a second so, with the lookup of its name."""
ADDRESSES_MAX: Final = 8

EDGE: Final = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
"""How every stream socket is watched, from its first moment to its last: one `epoll_ctl` for its whole life."""

ENDED: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
READABLE: Final = select.EPOLLIN | ENDED

OnDialled = Callable[[socket.socket | Failure], None]
Connect = Callable[[str, int], socket.socket]

_FAILED: Final = select.EPOLLERR | select.EPOLLHUP
"""What epoll reports of an attempt that has failed; `SO_ERROR` says why. Without them it is connected."""
NO_ADDRESS: Final = failures.unroutable("no address to connect to")
_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
_NO_ROUTE = (errno.ENETUNREACH, errno.EADDRNOTAVAIL)

_FAILURES: Mapping[int, tuple[Callable[[str], Failure], str]] = {
    errno.ECONNREFUSED: (failures.connection_refused, " refuses connections"),
    errno.ETIMEDOUT: (failures.connection_timed_out, " does not respond"),
    errno.EHOSTUNREACH: (failures.host_unreachable, ": no route to the host"),
    errno.ECONNRESET: (failures.connection_lost, " resets connections"),
}
"""By the error of a connect: the failure, and the end of its sentence behind the target."""


def connect(address: str, port: int, source: SourceAddress = ANY) -> socket.socket:
    """A socket that is connecting. Raises `OSError` when the kernel refuses at once, `SourceAddressUnavailable` among
    them."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        source.bind(sock)
        code = source.connect(sock, (address, port)) if source.given else sock.connect_ex((address, port))
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, "connect")
    except BaseException:
        sock.close()
        raise
    return sock


def _reraise(error: Exception) -> None:
    """End the process, where connections are not isolated from each other."""
    raise error


class AddressDecisions:
    """What is decided about some addresses of a target. A refusal of one comes before it that no connection can leave
    from an address of ours to the others."""

    __slots__ = ("decisions", "refused", "unreachable", "usable")

    def __init__(self, decisions: list[tuple[str, Decision]], source: SourceAddress) -> None:
        allowed = [address for address, decision in decisions if decision.failure is None]
        self.decisions = decisions
        self.usable = [address for address in allowed if source.refuses(address) is None]
        """Those that may be connected to."""
        self.refused = next((decision for _address, decision in decisions if decision.failure is not None), None)
        """The first refusal."""
        self.unreachable = source.refuses(allowed[0]) if allowed and not self.usable else None
        """Why none of those that are allowed can be connected to."""

    def outcome(self, source: SourceAddress) -> Decision:
        """That of a request for these addresses alone, before anything is connected."""
        if self.usable:
            return dict(self.decisions)[self.usable[0]]
        if self.refused is not None:
            return self.refused
        if self.unreachable is not None:
            return refused(self.unreachable, source.rule or BIND_ADDRESS, "source")
        return refused(NO_ADDRESS, "", "resolve")


def decide_addresses(
    access: AccessPolicy, target: Authority, addresses: tuple[str, ...], source: SourceAddress
) -> AddressDecisions:
    """Decide about each: guard, rules, policies, and whether a connection can leave from `source`."""
    return AddressDecisions([(address, access.address(target, address)) for address in addresses], source)


class Dialer:
    """Opens connections for one actor, to targets that `access` allows. `connector` is what connects.

    `timers` are for the deadlines of those through upstreams; without, it has its own.
    """

    def __init__(
        self,
        loop: Loop,
        resolver: Resolver,
        access: AccessPolicy,
        connector: Connect = connect,
        timers: TimerWheel | None = None,
    ) -> None:
        self.loop = loop
        self.timers = TimerWheel(loop) if timers is None else timers
        self.resolver = resolver
        self.access = access
        self.connector = connector
        self.source = ANY
        self.addresses = AddressOrder()
        self.on_crash: Callable[[Exception], None] = _reraise
        """Called with an unforeseen exception that has ended a connection on its way to an upstream."""
        self.on_problem: Callable[[str, str], None] = lambda _what, _detail: None

    def set_source(self, source: SourceAddress) -> None:
        """Make further connections from this address."""
        self.source = source
        self.connector = partial(connect, source=source)

    def resolve_later(
        self, target: Authority, done: OnResolved, requester: Requester, own: OwnRules = (), judge: Judge | None = None
    ) -> bool:
        """As `resolve`, but `done` is never called in this very call."""
        return self.resolve(target, lambda result: self.loop.call_soon(lambda: done(result)), requester, own, judge)

    def resolve(
        self,
        target: Authority,
        done: OnResolved,
        requester: Requester,
        own: OwnRules = (),
        judge: Judge | None = None,
        in_parts: bool = False,
    ) -> bool:
        """Call `done` with the addresses of `target`, or why there are none or its name is refused.

        It is called in this very call when that is known. Returns True when the resolver has to find out, which may
        take time.
        """
        refused = self.access.for_request(own, judge).name(target)
        if refused is not None and refused.failure is not None:
            result: Resolution = refused.failure
        elif target.literal:
            result = Resolved((target.host,))
        else:
            self.resolver.resolve(target.host, done, requester, in_parts)
            return True
        done(result)
        return False

    def dial(
        self,
        target: Authority,
        done: OnDialled,
        requester: Requester = OURSELVES,
        own: OwnRules = (),
        judge: Judge | None = None,
        source: SourceAddress | None = None,
    ) -> Dial:
        """Begin; `done` is called once, later, unless the dial is cancelled before. `own` rules and policies (`judge`)
        hold for it as well. `source`: where it leaves from, if not from where all do."""
        return Dial(self, target, done, requester, own, judge, source)


class Dial:
    """One attempt to reach one target, for the requester, whom it stands for at the resolver (see `Requester`)."""

    def __init__(
        self,
        dialer: Dialer,
        target: Authority,
        done: OnDialled,
        requester: Requester,
        own: OwnRules = (),
        judge: Judge | None = None,
        source: SourceAddress | None = None,
    ) -> None:
        self._judge = judge
        self.source = source
        """Where it leaves from; None: from where all of the proxy do."""
        self._requester = requester
        self._own = own
        self._dialer = dialer
        self._loop = dialer.loop
        self._target = target
        self._done: OnDialled | None = done
        self._untried: list[str] = []
        self._trying: dict[int, tuple[socket.socket, str, float]] = {}
        """The attempts under way by descriptor, each with its address and its begin."""
        self._seen: tuple[str, ...] = ()
        self._more_to_come = False
        self._stagger: Timer | None = None
        self._failure = NO_ADDRESS
        self._refused: Failure | None = None
        """Why an address may not be connected to; the result when none of the others connects."""
        self._reported: dict[str, Failure] = {}
        self.reported: Failure | None = None
        """What rules in report mode would have refused about the connection that was made."""
        self.mask = 0
        """The events of the connection when it was made: the kernel does not report these edges again."""
        self._resolving = True
        if judge is not None and judge.addresses:
            self._on_resolved(Resolved(judge.addresses))
        else:
            dialer.resolve(target, self._on_resolved, self, own, judge, in_parts=True)

    @property
    def client_ip(self) -> str:
        """See `Requester`."""
        return self._requester.client_ip

    @property
    def waits(self) -> bool:
        """See `Requester`."""
        return self._done is not None and self._requester.waits

    @property
    def overdue(self) -> Failure | None:
        """See `PendingOrigin`."""
        return self._dialer.resolver.overdue(self._target.host) if self._resolving else self._refused

    def cancel(self) -> None:
        """Stop it; `done` is not called any more."""
        self._done = None
        self._close_attempts()

    def _on_resolved(self, result: Resolution) -> None:
        self._resolving = False
        late, self._more_to_come = self._more_to_come, isinstance(result, Resolved) and result.more
        if isinstance(result, Failure):
            if not late:
                self._end(result)
            elif not self._trying and not self._untried and self._done is not None:
                self._end(self._failure)
        else:
            new = tuple(each for each in result.addresses if each not in self._seen)
            self._seen += new
            self._try_allowed(new, late)

    def _try_allowed(self, addresses: tuple[str, ...], late: bool) -> None:
        """Try those of the addresses that may be connected to."""
        if self._done is None:
            return
        access, source = self._dialer.access.for_request(self._own, self._judge), self.source or self._dialer.source
        found = decide_addresses(access, self._target, addresses, source)
        usable = [*self._untried, *found.usable]
        self._untried = self._dialer.addresses.order(usable, self._loop.now)[:ADDRESSES_MAX]
        self._reported |= {address: decision.reported for address, decision in found.decisions if decision.reported}
        if self._refused is None and found.refused is not None:
            self._refused = found.refused.failure
        if not self._untried:
            self._failure = found.unreachable or self._failure
        if late and self._trying:
            self._resume()
        else:
            self._try_next()

    def _resume(self) -> None:
        """Try late addresses when the attempt under way has had its time."""
        if self._untried and (self._stagger is None or self._stagger.call is None):
            latest = max(began for _sock, _address, began in self._trying.values())
            self._stagger = self._loop.call_later(max(0.0, latest + STAGGER - self._loop.now), self._try_next)

    def _try_next(self) -> None:
        """Start the next address, or fail when none is left and none is under way."""
        while self._untried and self._done is not None:
            address = self._untried.pop(0)
            try:
                sock = self._connect(address)
            except SourceAddressUnavailable as lost:
                self._failure = failures.SOURCE_LOST
                self._dialer.on_problem(BIND_ADDRESS, f"no connection can leave from {lost.strerror}")
                continue
            except OSError as error:
                self._note_error(error.errno or 0, address)
                continue
            fd = sock.fileno()
            self._trying[fd] = sock, address, self._loop.now
            self._loop.watch(fd, EDGE, partial(self._on_connected, fd, address))
            if self._untried:
                self._stagger = self._loop.call_later(STAGGER, self._try_next)
            return
        if not self._trying and not self._more_to_come:
            self._end(self._failure)

    def _connect(self, address: str) -> socket.socket:
        if self.source is None:
            return self._dialer.connector(address, self._target.port)
        return connect(address, self._target.port, self.source)

    def _on_connected(self, fd: int, address: str, mask: int) -> None:
        """The kernel has connected one attempt, or has failed to."""
        attempt = self._trying.get(fd)
        if attempt is None:
            return
        sock = attempt[0]
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if mask & _FAILED else 0
        if code:
            self._note_error(code, address)
            self._close_attempt(fd)
            if self._stagger is not None:
                self._stagger.cancel()
            self._try_next()
            return
        del self._trying[fd]
        self._learn(address)
        self.reported = self._reported.get(address)
        self.mask = mask
        self._end(sock)

    def _learn(self, connected: str) -> None:
        """Remember what this success says about the other attempts."""
        known, now = self._dialer.addresses, self._loop.now
        known.has_connected(connected)
        for _sock, address, began in self._trying.values():
            if now - began >= STAGGER:
                known.was_silent(address, connected, now)

    def _note_error(self, code: int, address: str) -> None:
        if code in _NO_ROUTE and self.source is None and not self._dialer.source.given:
            self._dialer.addresses.has_no_route(address, self._loop.now)
        if code in _OUT_OF_DESCRIPTORS:
            self._failure = failures.OUT_OF_DESCRIPTORS
            self._dialer.on_problem(NO_DESCRIPTORS, "no descriptor is left for connections to origins")
            return
        unknown = failures.unroutable, f": {errno.errorcode.get(code, 'unknown error')}"
        failed, what = _FAILURES.get(code, unknown)
        target = self._target
        self._failure = failed(f"{target.host} port {target.port}{what}")
        if not target.literal:
            recorded = f"{name_and_address(target.host, address)} port {target.port}{what}"
            self._failure = replace(self._failure, recorded=recorded)

    def _end(self, result: socket.socket | Failure) -> None:
        self._close_attempts()
        if isinstance(result, Failure):
            failure = result if self._refused is None or result.status == 503 else self._refused
            self._loop.call_soon(lambda: self._fail(failure))  # it may be known in the very call that began the dial
            return
        done, self._done = self._done, None
        if done is not None:
            done(result)
        else:
            self._loop.unwatch(result.fileno())
            result.close()

    def _fail(self, failure: Failure) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(failure)

    def _close_attempts(self) -> None:
        if self._stagger is not None:
            self._stagger.cancel()
        for fd in tuple(self._trying):
            self._close_attempt(fd)

    def _close_attempt(self, fd: int) -> None:
        self._loop.unwatch(fd)
        self._trying.pop(fd)[0].close()
