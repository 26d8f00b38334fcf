"""From a target to a connected socket: resolve once, judge every address, connect to the very address judged.

Several addresses are tried in turn: the next one starts when the one before has failed or has been silent for
`STAGGER` seconds, and the first to connect wins (in the spirit of RFC 8305). The deadline is the caller's: it calls
`cancel`.
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from actors.bus.loop import Loop, Timer
from actors.bus.messages.problems import BIND_ADDRESS, NO_DESCRIPTORS
from actors.forwarding.access.policy import AccessPolicy
from actors.forwarding.net.resolver import Answer, OnResolved, Resolved, Resolver
from actors.forwarding.net.source_address import ANY, Source, SourceAddressUnavailable
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.forwarding.requester import OURSELVES, Requester
from config.text.name_addresses import name_and_address

STAGGER = 0.25
ADDRESSES_MAX = 8

EDGE = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
"""How every stream socket is watched, from its first moment to its last: one `epoll_ctl` for its whole life."""

ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
READABLE = select.EPOLLIN | ENDED

OnDialled = Callable[[socket.socket | Failure], None]
Connect = Callable[[str, int], socket.socket]

_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


_FAILURES: Mapping[int, tuple[Callable[[str], Failure], str]] = {
    errno.ECONNREFUSED: (failures.connection_refused, " refuses connections"),
    errno.ETIMEDOUT: (failures.connection_timed_out, " does not answer"),
    errno.EHOSTUNREACH: (failures.host_unreachable, ": no route to the host"),
    errno.ECONNRESET: (failures.connection_lost, " resets connections"),
}
"""By errors of a connect, what is made of them and how the sentence goes on behind the target."""


def connect(address: str, port: int, source: Source = ANY) -> socket.socket:
    """A socket that is connecting. Raises `OSError` when the kernel refuses at once, `SourceAddressUnavailable` among
    them."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        source.bind(sock)
        trouble = sock.connect_ex((address, port))
        if trouble not in (0, errno.EINPROGRESS):
            raise OSError(trouble, "connect")
    except BaseException:
        sock.close()
        raise
    return sock


def _unforeseen(error: Exception) -> None:
    """Where nobody isolates connections from each other, it ends the process."""
    raise error


class Dialer:
    """Opens connections for one actor. `connector` is what really connects; tests put their own in."""

    def __init__(self, loop: Loop, resolver: Resolver, connector: Connect = connect) -> None:
        self.loop = loop
        self.resolver = resolver
        self.connector = connector
        self.source = ANY
        self.judge: AccessPolicy | None = None
        self.on_crash: Callable[[Exception], None] = _unforeseen
        """Called with an exception that nobody foresaw, which has ended a connection on its way to an upstream."""
        self.on_trouble: Callable[[str, str], None] = lambda _what, _detail: None

    def leave_from(self, source: Source) -> None:
        """Where connections come from that are made from now on."""
        self.source = source
        self.connector = partial(connect, source=source)

    def look_up(self, target: Authority, done: OnResolved, asker: Requester) -> bool:
        """Call `done`, later, with the addresses of `target`, or why there are none or it is refused by its name.

        True when that is a matter of the resolver, and so of time.
        """
        return self.find(target, lambda answer: self.loop.call_soon(lambda: done(answer)), asker)

    def find(self, target: Authority, done: OnResolved, asker: Requester) -> bool:
        """As `look_up`, but `done` is called in this very call when the answer is known."""
        assert self.judge is not None
        refused = self.judge.name(target)
        if refused is not None and refused.failure is not None:
            answer: Answer = refused.failure
        elif target.literal:
            answer = Resolved((target.host,))
        else:
            self.resolver.resolve(target.host, done, asker)
            return True
        done(answer)
        return False

    def dial(self, target: Authority, done: OnDialled, asker: Requester = OURSELVES) -> Dial:
        """Begin; `done` is called once, later, unless the dial is cancelled before."""
        return Dial(self, target, done, asker)


class Dial:
    """One attempt to reach one target, for the asker, whom it stands for at the resolver (see `Requester`)."""

    def __init__(self, dialer: Dialer, target: Authority, done: OnDialled, asker: Requester) -> None:
        self._asker = asker
        self._dialer = dialer
        self._loop = dialer.loop
        self._target = target
        self._done: OnDialled | None = done
        self._untried: list[str] = []
        self._trying: dict[int, socket.socket] = {}
        self._stagger: Timer | None = None
        self._failure = failures.unroutable("no address to connect to")
        self._reasons: dict[str, str] = {}
        self.reported = ""
        """What rules in report mode would have refused about the connection that was made."""
        self.mask = 0
        """What the kernel said of the connection when it was made: its edges are not told again."""
        self.resolving = True
        dialer.find(target, self._looked_up, self)

    @property
    def client_ip(self) -> str:
        """Whose it is."""
        return self._asker.client_ip

    @property
    def waits(self) -> bool:
        """Is it still wanted?"""
        return self._done is not None and self._asker.waits

    def cancel(self) -> None:
        """Give up; `done` is not called any more."""
        self._done = None
        self._drop_all()

    def _looked_up(self, answer: Answer) -> None:
        self.resolving = False
        if isinstance(answer, Failure):
            self._end(answer)
        else:
            self._judge(answer.addresses)

    def _judge(self, addresses: tuple[str, ...]) -> None:
        if self._done is None:
            return
        judge, source = self._dialer.judge, self._dialer.source
        assert judge is not None
        judged = [(address, judge.address(self._target, address)) for address in addresses]
        passed = [address for address, judgement in judged if judgement.failure is None]
        self._untried = [address for address in passed if source.refuses(address) is None][:ADDRESSES_MAX]
        self._reasons = {address: judgement.reason for address, judgement in judged if judgement.reason}
        refused = [judgement.failure for _address, judgement in judged if judgement.failure is not None]
        if not passed and refused:
            self._end(refused[0])
        elif passed and not self._untried:
            self._end(source.refuses(passed[0]) or self._failure)
        else:
            self._try_next()

    def _try_next(self) -> None:
        """Start the next address, or fail when none is left and none is under way."""
        while self._untried and self._done is not None:
            address = self._untried.pop(0)
            try:
                sock = self._dialer.connector(address, self._target.port)
            except SourceAddressUnavailable as lost:
                self._failure = failures.source_lost()
                self._dialer.on_trouble(BIND_ADDRESS, f"no connection can leave from {lost.strerror}")
                continue
            except OSError as error:
                self._note(error.errno or 0, address)
                continue
            fd = sock.fileno()
            self._trying[fd] = sock
            self._loop.watch(fd, EDGE, partial(self._settled, fd, address))
            if self._untried:
                self._stagger = self._loop.call_later(STAGGER, self._try_next)
            return
        if not self._trying:
            self._end(self._failure)

    def _settled(self, fd: int, address: str, mask: int) -> None:
        """The kernel has decided about one attempt."""
        sock = self._trying.get(fd)
        if sock is None:
            return
        trouble = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if trouble:
            self._note(trouble, address)
            self._drop(fd)
            if self._stagger is not None:
                self._stagger.cancel()
            self._try_next()
            return
        del self._trying[fd]
        self.reported = self._reasons.get(address, "")
        self.mask = mask
        self._end(sock)

    def _note(self, trouble: int, address: str) -> None:
        if trouble in _OUT_OF_DESCRIPTORS:
            self._failure = failures.out_of_descriptors()
            self._dialer.on_trouble(NO_DESCRIPTORS, "no descriptor is left for connections to origins")
            return
        failed, what = _FAILURES.get(
            trouble, (failures.unroutable, f": {errno.errorcode.get(trouble, 'unknown error')}")
        )
        target = self._target
        self._failure = failed(f"{target.host} port {target.port}{what}")
        if not target.literal:
            recorded = f"{name_and_address(target.host, address)} port {target.port}{what}"
            self._failure = replace(self._failure, recorded=recorded)

    def _end(self, result: socket.socket | Failure) -> None:
        self._drop_all()
        if isinstance(result, Failure):
            self._loop.call_soon(lambda: self._fail(result))  # it may be known in the very call that began the dial
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

    def _drop_all(self) -> None:
        if self._stagger is not None:
            self._stagger.cancel()
        for fd in tuple(self._trying):
            self._drop(fd)

    def _drop(self, fd: int) -> None:
        self._loop.unwatch(fd)
        self._trying.pop(fd).close()
