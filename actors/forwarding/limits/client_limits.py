"""What clients are limited to by their address: requests per minute, and which accounts and credentials they may use.

How many addresses use an account or a credential is counted over all proxies (`actors.state.account_clients`).

A request says that its address is in use, and so do the bytes that a connection moves, a few times in each window. An
address that has been silent for so long that others have its place is refused, which ends a connection that moves bytes
then.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from actors.bus.loop import Loop
from actors.forwarding.protocols import failures
from actors.net.client_key import client_key
from actors.state.counts import COUNTED, SharedKey
from actors.state.live_state import RETRY, LiveState

if TYPE_CHECKING:
    from pathlib import Path

    from actors.forwarding.limits.accounts import Account
    from actors.forwarding.limits.meter import Meter, MeteredAccount
    from actors.forwarding.protocols.failures import Failure
    from actors.state.account_clients import AccountClients

CLIENT: Final = "client"
"""Begins the key of a client's requests."""
CLIENTS_MAX = 131_072
"""Beyond that, the client whose last request is the longest ago is forgotten though its requests still count."""
FORGOTTEN_AT_ONCE = 512
"""By the timer, in one turn."""
SOON = 0.05
PERIOD = 10.0

_PAUSE_MAX: Final = 10.0
_PART: Final = 0.1
"""Of a window, after which bytes say again that an address is in use."""


class _Limited(NamedTuple):
    """A limit that holds: whose it is as a word and by its id, and what it says."""

    owner: str
    identifier: str
    clients: int
    window: int


def _limited(account: MeteredAccount, credential: MeteredAccount | None) -> Iterator[_Limited]:
    limits = account.spec.limits
    if credential is not None and credential.spec.limits.clients:
        own = credential.spec.limits
        window = own.clients_window or limits.clients_window
        yield _Limited("credential", credential.spec.id, own.clients, window)
    if limits.clients:
        yield _Limited("account", account.spec.id, limits.clients, limits.clients_window)


def _limited_of(meter: Meter) -> tuple[_Limited, ...]:
    return () if meter.account is None or meter.holder is None else tuple(_limited(meter.account, meter.credential))


class ClientLimits:
    """Those of the accounts and credentials of one proxy. Nothing is opened before one is limited."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.path: Path | None = None
        """The file that all processes of the machine have; None: the limits don't hold."""
        self.on_failure: Callable[[str], None] = lambda _detail: None
        self._opened: AccountClients | None = None
        self._retry_at = -math.inf

    def refusal(self, account: Account, credential: Account | None, address: str) -> Failure | None:
        """Why a client at this address may not use them now; nothing is counted."""
        return self._first_refusal(account, credential, address, counts=False)

    def admit(self, account: Account, credential: Account | None, address: str) -> Failure | None:
        """A client at this address uses them. Returns why it may not, else None."""
        return self._first_refusal(account, credential, address, counts=True)

    def follow(self, meter: Meter) -> None:
        """From now on the bytes of this connection say that its address is in use, if that is limited."""
        limited = _limited_of(meter)
        window = min((each.window for each in limited), default=0)
        meter.follow(_Moved(self._loop, meter, window, self._use).moved if window else None)
        meter.followed = tuple(each.identifier for each in limited)

    def include(self, account: Account) -> None:
        """Its limits have changed. With the first one open connections count, however many addresses they are from."""
        new: dict[tuple[str, int], dict[str, None]] = {}
        for meter in tuple(account.meters):
            for each in _limited_of(meter):
                if each.identifier not in meter.followed and meter.holder is not None:
                    new.setdefault((each.identifier, each.window), {})[meter.holder.client_ip] = None
            self.follow(meter)
        clients = self._store() if new else None
        if clients is not None:
            for (identifier, window), addresses in new.items():
                clients.include(identifier, addresses, window)

    def _first_refusal(
        self, account: MeteredAccount, credential: MeteredAccount | None, address: str, *, counts: bool
    ) -> Failure | None:
        limited = tuple(_limited(account, credential))
        clients = self._store() if limited else None
        if clients is None:
            return None
        asks = (
            (clients.wait, clients.admit)
            if counts and len(limited) > 1
            else (clients.admit if counts else clients.wait,)
        )
        for ask in asks:  # what one of both refuses is no use of the other
            for owner, identifier, limit, window in limited:
                wait = ask(identifier, address, limit, window)
                if wait:
                    return failures.account_clients(limit, wait, owner)
        return None

    def _use(self, meter: Meter) -> None:
        """Bytes of this connection have moved."""
        account, holder = meter.account, meter.holder
        if account is not None and holder is not None:
            failure = self._first_refusal(account, meter.credential, holder.client_ip, counts=True)
            if failure is not None:
                self._loop.call_soon(partial(holder.end, failure.reason))

    def _store(self) -> AccountClients | None:
        if self._opened is None and self.path is not None and self._loop.now >= self._retry_at:
            from actors.state.account_clients import open_clients  # only proxies with such limits pay for it

            try:
                self._opened = open_clients(self.path, lambda: self._loop.now, self._failed)
            except OSError as error:
                self._retry_at = self._loop.now + RETRY
                self._failed(str(error))
        return self._opened

    def _failed(self, detail: str) -> None:
        self.on_failure(f"limits.clients of accounts does not hold: {detail}")


class _Moved:
    """Passes on that a connection moves bytes, a few times in each window (seconds)."""

    __slots__ = ("_due", "_loop", "_meter", "_pause", "_use")

    def __init__(self, loop: Loop, meter: Meter, window: int, use: Callable[[Meter], None]) -> None:
        self._loop = loop
        self._meter = meter
        self._pause = min(_PART * window, _PAUSE_MAX)
        self._due = loop.now + self._pause
        self._use = use

    def moved(self) -> None:
        if self._loop.now >= self._due:
            self._due = self._loop.now + self._pause
            self._use(self._meter)


class ClientWindows:
    """The requests per minute of each client, by `client_key`. What no longer counts is forgotten a little at a time.

    Clients are in the order of their last request, so those that are idle are at the front. Each new one makes room for
    itself by forgetting up to two of those, and a timer forgets the rest when no new ones come: no turn of the loop
    walks over all of them. There is a timer only while there are clients.
    """

    def __init__(self, loop: Loop, state: LiveState) -> None:
        self._loop = loop
        self._state = state
        self._windows: OrderedDict[str, SharedKey] = OrderedDict()  # a dict is slow to find its oldest key
        self._timed = False

    def __len__(self) -> int:
        return len(self._windows)

    def window(self, client_ip: str) -> SharedKey:
        """Where to count a request of the client at this address."""
        key = client_key(client_ip)
        window = self._windows.get(key)
        if window is None:
            return self._add(key)
        self._windows.move_to_end(key)
        return window

    def _add(self, key: str) -> SharedKey:
        self._forget_idle(2)
        if len(self._windows) >= CLIENTS_MAX:
            self._forget_oldest()
        window = self._windows[key] = self._state.key(CLIENT, key)
        if not self._timed:
            self._timed = True
            self._loop.call_later(COUNTED + PERIOD, self._on_timer)
        return window

    def _on_timer(self) -> None:
        more = self._forget_idle(FORGOTTEN_AT_ONCE)
        self._timed = bool(self._windows)
        if self._timed:
            self._loop.call_later(SOON if more else PERIOD, self._on_timer)

    def _forget_idle(self, most: int) -> bool:
        """Forget up to `most` clients; True when that many were idle, so there may be more."""
        windows = self._windows
        for _ in range(most):
            if not windows or windows[next(iter(windows))].own_requests:
                return False
            self._forget_oldest()
        return True

    def _forget_oldest(self) -> None:
        _key, window = self._windows.popitem(last=False)
        window.release()

    def __repr__(self) -> str:
        return f"<ClientWindows: {len(self._windows)}>"
