"""Who may use a proxy: the user of `auth`, the proxy's own accounts, and those of the table that all proxies share.

The table of accounts is opened at the first name that is no other's. Accounts that were found are remembered until
something but a credential changes in the table. What has changed is asked for once in a turn of the loop, so a change
that was acknowledged holds for every request that comes later.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from actors.bounded import keep
from actors.bus.loop import Loop
from actors.bus.messages.specs import ProxySpec
from actors.forwarding.limits.held_accounts import FoundAccount, UnreadableError, is_same_password
from actors.problems import ActiveProblems

if TYPE_CHECKING:
    from actors.accounts.records import CredentialRecord
    from actors.accounts.table import Changed
    from actors.forwarding.access.fleet import Fleet
    from actors.forwarding.access.peer_certificate import PeerCertificate

NAMES_KEPT = 1024

OnChanged = Callable[["set[Changed] | None"], None]
"""Called with what has changed in the table; None: anything may have."""


class Directory:
    """See the module. `path` is the file of the fleet; None, or no such file: it has no accounts."""

    def __init__(self, loop: Loop, problems: ActiveProblems | None = None, path: Path | None = None) -> None:
        self._loop = loop
        self._problems = problems or ActiveProblems(loop, lambda: loop.now)
        self.path = path
        self.on_changed: OnChanged = lambda _changes: None
        self._own: dict[str, bytes] = {}
        self._proxy_id = ""
        self._tags: frozenset[str] = frozenset()
        self._wanted = False
        self._by_name = False
        self._fleet: Fleet | None = None
        self._found: dict[str, FoundAccount | None] = {}
        self._certified: dict[str, tuple[str, ...]] = {}
        self._state = (0, 0)
        self._refreshed = -1.0

    def configure(self, spec: ProxySpec) -> None:
        """Take the users and accounts of a configuration."""
        users = [(account.username, account.password_hash) for account in spec.accounts]
        if spec.auth_username is not None:
            users.append((spec.auth_username, spec.auth_hash))
        self._own = {user: (stored or "").encode() for user, stored in users}
        self._proxy_id, self._tags = spec.id, frozenset(spec.tags)
        self._wanted = spec.wants_credentials
        self._by_name = spec.protocol == "socks4"
        self._forget()

    # --- names ---

    def is_own(self, user: str) -> bool:
        """Whether it is the user of `auth` or an account of the proxy itself."""
        return user in self._own

    def stored(self, user: str) -> bytes | None:
        """The hash of the user's password, empty where there is no password; None for an unknown user."""
        own = self._own.get(user)
        if own is not None:
            return own
        try:
            found = self.named(user)
        except UnreadableError:
            return None
        return None if found is None else (found.spec.password_hash or "").encode()

    def is_password(self, user: str, stored: bytes) -> bool:
        """Whether this hash is of the user's present password: it is the stored one, or the one that was before it."""
        own = self._own.get(user)
        if own is not None:
            return own == stored
        try:
            found = self.named(user)
        except UnreadableError:
            return False
        return found is not None and is_same_password(found.spec, stored.decode())

    def account_id(self, user: str) -> str | None:
        """The id of the account of the table with this name; None where there is none, or it can't be read."""
        try:
            found = self.named(user)
        except UnreadableError:
            return None
        return None if found is None else found.spec.id

    def most_rounds(self) -> int:
        """The rounds of bcrypt that a wrong password costs at most, as far as the table decides that; 0 without one."""
        try:
            fleet = self._open()
            return 0 if fleet is None else fleet.most_rounds()
        except UnreadableError:
            return 0

    def is_unreadable(self, user: str) -> bool:
        """Whether the table of accounts decides about this user, and can't be read."""
        try:
            self.named(user)
        except UnreadableError:
            return True
        return False

    def is_unknown(self, user: str) -> bool:
        """Whether there is certainly no such user: the table of accounts can be read, and does not have it either."""
        if not user or user in self._own:
            return False
        try:
            return self.named(user) is None
        except UnreadableError:
            return False

    def exists(self, user: str) -> bool:
        """Whether there is such a user. Another name is not remembered: beginnings of names would fill the memory."""
        if user in self._own:
            return True
        fleet = self._open() if user else None
        try:
            if fleet is None:
                return False
            self.refresh()
            found = self._found.get(user) or fleet.named(user, self._proxy_id, self._tags)
        except UnreadableError:
            return False
        if found is not None and user not in self._found:
            keep(self._found, user, found, NAMES_KEPT)
        return found is not None

    def admits_name(self, user: str) -> bool:
        """Whether the name alone authenticates, in a protocol without passwords.

        Those of a `socks4` proxy have no other way; on `mixed` a user with a password needs it.
        """
        own = self._own.get(user)
        if own is not None:
            return self._by_name or not own
        try:
            found = self.named(user)
        except UnreadableError:
            return False
        return found is not None and found.spec.socks4_by_name

    def named(self, username: str) -> FoundAccount | None:
        """The account of the table with this name. Raises `UnreadableError`."""
        fleet = self._open() if username and username not in self._own else None
        if fleet is None:
            return None
        self.refresh()
        try:
            return self._found[username]
        except KeyError:
            found = fleet.named(username, self._proxy_id, self._tags)
            keep(self._found, username, found, NAMES_KEPT)
            return found

    def account(self, identifier: str) -> FoundAccount | None:
        """The account of the table with this id, unless its name is another's here. Raises `UnreadableError`."""
        fleet = self._open()
        found = None if fleet is None else fleet.account(identifier, self._proxy_id, self._tags)
        return None if found is None or found.spec.username in self._own else found

    # --- credentials ---

    def credential(self, secret: str, user: str) -> tuple[str, CredentialRecord] | None:
        """The user and the credential that this is the secret of. None if it is none, or of another than `user`.

        `user` may be empty. Raises `UnreadableError`.
        """
        fleet = self._open()
        credential = None if fleet is None else fleet.credential(secret)
        if credential is None:
            return None
        found = self.named(user) if user else self.account(credential.account_id)
        if found is None or found.spec.id != credential.account_id:
            return None
        self.refresh()
        return found.spec.username, credential

    def credential_by_id(self, identifier: str) -> CredentialRecord | None:
        """The credential with this id. Raises `UnreadableError`."""
        fleet = self._open()
        return None if fleet is None else fleet.credential_by_id(identifier)

    # --- certificates ---

    def certified(self, peer: PeerCertificate) -> tuple[str, ...]:
        """The names of the accounts that this certificate is one of: one, unless none or too many match.

        Raises `UnreadableError`.
        """
        fleet = self._open()
        if fleet is None:
            return ()
        self.refresh()
        key = peer.entries[0]
        try:
            return self._certified[key]
        except KeyError:
            found = fleet.certified(peer.entries, self._proxy_id, self._tags)
            names = tuple(sorted(each.spec.username for each in found if each.spec.username not in self._own))
            keep(self._certified, key, names, NAMES_KEPT)
            return names

    # --- changes ---

    def _forget(self) -> None:
        self._found.clear()
        self._certified.clear()

    def refresh(self) -> None:
        """Take what has changed in the table. Once a turn is enough. Raises `UnreadableError`."""
        fleet = self._fleet
        if fleet is None or not self._wanted or self._refreshed == self._loop.now:
            return
        state, before = fleet.state(), self._state
        if state != before:
            follows = state[0] == before[0] and state[1] > before[1]
            changes = fleet.changes(before[1]) if follows else None
            if changes is None or any(kind != "credential" for kind, _id in changes):
                self._forget()
            self.on_changed(changes)
            self._state = state  # not before: what could not be read is to be read again
        self._refreshed = self._loop.now

    def _open(self) -> Fleet | None:
        """The table, if there is one and the proxy wants credentials."""
        if self._fleet is None and self._wanted and self.path is not None and self.path.exists():
            from actors.forwarding.access.fleet import Fleet

            self._fleet = Fleet(self._loop, self._problems, self.path)
        return self._fleet if self._wanted else None

    def __repr__(self) -> str:
        return f"<Directory of {self._proxy_id}: {len(self._own)} of its own, {self._fleet!r}>"
