"""Who may use a proxy: the user of `auth`, the proxy's own accounts, and those of the table that all proxies share.

The table of accounts is opened at the first name that is no other's. Accounts that were found are remembered until
something but a credential changes in the table. What has changed is asked for once in a turn of the loop, so a change
that was acknowledged holds for every request that comes later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from actors.accounts.records import AccountRecord, CredentialRecord, effective
from actors.accounts.table import AccountTable, Changed, Revision, TableError, digest_of
from actors.bounded import keep
from actors.bus.loop import Loop
from actors.bus.messages.common import ACCOUNTS_TABLE
from actors.bus.messages.specs import ProxySpec
from actors.forwarding.limits.accounts_in_use import FoundAccount, UnreadableError, is_same_password
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.net.transport import Transport
from actors.problems import ActiveProblems

CACHED_NAMES = 1024

OnChanged = Callable[[set[Changed] | None], None]
"""Called with what has changed in the table; None: anything may have."""


CERTIFIED_NAMES_MAX = 100
"""Names of one certificate that accounts are found by."""

_NAME_KINDS: Final = {"DNS": "DNS:", "URI": "URI:"}


class PeerCertificate(NamedTuple):
    """The certificate that a client has sent in its TLS handshake, as accounts know it.

    `entries` are normal (`config.files.certificates`), the fingerprint first. `ends` is Unix seconds."""

    entries: tuple[str, ...]
    ends: float


def read_peer(transport: Transport) -> PeerCertificate | None:
    """The certificate of the client at the other end, which was verified; None when it has shown none."""
    import hashlib  # only where clients are asked for a certificate
    import ssl

    from actors.net.tls_stream import TlsStream

    found = transport.peer_certificate() if isinstance(transport, TlsStream) else None
    if found is None:
        return None
    fields, der = found
    names = dict.fromkeys(_names(fields))
    fingerprint = f"SHA256:{hashlib.sha256(der).hexdigest()}"
    return PeerCertificate(
        (fingerprint, *tuple(names)[:CERTIFIED_NAMES_MAX]), float(ssl.cert_time_to_seconds(fields["notAfter"]))
    )


def _names(fields: dict[str, Any]) -> Iterator[str]:
    """The common names of the subject, and the alternative names (RFC 5280 4.1.2.6 and 4.2.1.6)."""
    from config.files.certificates import normal_entry

    common = (value for part in fields.get("subject", ()) for name, value in part if name == "commonName")
    other = (_NAME_KINDS[kind] + value for kind, value in fields.get("subjectAltName", ()) if kind in _NAME_KINDS)
    for text in (*(f"CN={value}" for value in common), *other):
        try:
            yield normal_entry(text)
        except ValueError:
            continue  # no account can have such an entry


RETRY = 0.5
"""Seconds."""
REPLACED_CHECKED = 0.2
"""Seconds between two checks whether another file has taken the place: so few that each poll of accounts in use makes
one."""

T = TypeVar("T")

_FAULTS = (TableError, ValueError, TypeError)
"""The last two: what is in it is no record of this release."""


class Fleet:
    """The table of accounts. Everything that reads raises `UnreadableError` while it can't be read.

    What can't be opened or read, or not at once, is a problem of the proxy, and is opened again every `RETRY` seconds.
    Meanwhile accounts of the fleet can't authenticate; connections that are open go on.
    """

    def __init__(self, loop: Loop, problems: ActiveProblems, path: Path) -> None:
        self._loop = loop
        self._problems = problems
        self._path = path
        self._table: AccountTable | None = None
        self._failed = False
        self._checked = 0.0
        self.opened = 0
        """How many times a file was opened: the revisions of two have nothing to do with each other."""
        self._open()

    # --- look-ups ---

    def state(self) -> tuple[int, Revision]:
        """Which file it is and its last revision; another value means that something may have changed."""
        if self._loop.now - self._checked >= REPLACED_CHECKED:
            self._checked = self._loop.now
            if self._table is not None and self._table.replaced:
                self._close()
                self._open()
        return self.opened, self._read(lambda table: table.revision)

    def changes(self, since: Revision) -> set[Changed] | None:
        """As `AccountTable.changes`."""
        return self._read(lambda table: table.changes(since))

    def named(self, username: str, proxy_id: str, tags: Collection[str]) -> FoundAccount | None:
        """The account with this user name that may use the proxy."""

        def find(table: AccountTable) -> FoundAccount | None:
            accounts = table.accounts_named(username)
            return next((_found(table, each) for each in accounts if each.may_use(proxy_id, tags)), None)

        return self._read(find)

    def certified(self, entries: Collection[str], proxy_id: str, tags: Collection[str]) -> list[FoundAccount]:
        """The accounts with any of these entries for certificates that may use the proxy."""

        def find(table: AccountTable) -> list[FoundAccount]:
            accounts = {each.id: each for entry in entries for each in table.accounts_certified(entry)}
            return [_found(table, each) for each in accounts.values() if each.may_use(proxy_id, tags)]

        return self._read(find)

    def most_rounds(self) -> int:
        """As `AccountTable.most_rounds`."""
        return self._read(AccountTable.most_rounds)

    def account(self, identifier: str, proxy_id: str, tags: Collection[str]) -> FoundAccount | None:
        """The account with this id, if it may use the proxy."""

        def find(table: AccountTable) -> FoundAccount | None:
            account = table.account(identifier)
            return _found(table, account) if account is not None and account.may_use(proxy_id, tags) else None

        return self._read(find)

    def credential(self, secret: str) -> CredentialRecord | None:
        """The credential with this secret."""
        return self._read(lambda table: table.credential(digest_of(secret)))

    def credential_by_id(self, identifier: str) -> CredentialRecord | None:
        """The credential with this id."""
        return self._read(lambda table: table.credential_by_id(identifier))

    # --- faults ---

    def _read(self, look_up: Callable[[AccountTable], T]) -> T:
        if self._table is None:
            raise UnreadableError(f"{self._path} can't be read")
        try:
            return look_up(self._table)
        except _FAULTS as error:
            self._close()
            self._fail(error)
            raise UnreadableError(f"{self._path}: {error}") from error

    def _open(self) -> None:
        try:
            self._table = AccountTable(self._path)
        except TableError as error:
            self._fail(error)
            return
        self.opened += 1
        if self._failed:
            self._failed = False
            self._problems.ends(ACCOUNTS_TABLE, "the table of accounts can be read again")

    def _close(self) -> None:
        table, self._table = self._table, None
        if table is not None:
            table.close()

    def _fail(self, error: Exception) -> None:
        self._failed = True
        self._problems.begins(ACCOUNTS_TABLE, f"the table of accounts can't be read: {error}")
        self._loop.call_later(RETRY, self._open)

    def __repr__(self) -> str:
        return f"<Fleet {self._path}, {'open' if self._table is not None else 'unreadable'}>"


def _found(table: AccountTable, account: AccountRecord) -> FoundAccount:
    plan = table.plan(account.plan) if account.plan else None
    return FoundAccount(effective(account, plan), account.plan)


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
        self._state: tuple[int, Revision] = (0, (0, 0))
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
            keep(self._found, user, found, CACHED_NAMES)
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
            keep(self._found, username, found, CACHED_NAMES)
            return found

    def account(self, identifier: str) -> FoundAccount | None:
        """The account of the table with this id, unless its name is another's here. Raises `UnreadableError`.

        Also while the proxy wants no credentials, when tunnels of accounts go on; so has `credential_by_id`.
        """
        fleet = self._fleet or self._open()
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
        fleet = self._fleet or self._open()
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
            keep(self._certified, key, names, CACHED_NAMES)
            return names

    def certified_user(self, peer: PeerCertificate, now: float) -> str | Failure:
        """The name of the account that this certificate is one of, or why it is none's; `now` is Unix seconds."""
        if peer.ends <= now:
            return failures.certificate_unmatched("has expired")
        try:
            names = self.certified(peer)
        except UnreadableError:
            return failures.ACCOUNTS_UNAVAILABLE
        if len(names) > 1:
            return failures.certificate_unmatched("matches several accounts", ", ".join(names))
        return names[0] if names else failures.certificate_unmatched("matches no account", " ".join(peer.entries))

    # --- changes ---

    def _forget(self) -> None:
        self._found.clear()
        self._certified.clear()

    def refresh(self) -> None:
        """Take what has changed in the table. Once a turn is enough. Raises `UnreadableError`."""
        fleet = self._fleet
        if fleet is None or self._refreshed == self._loop.now:
            return
        state, before = fleet.state(), self._state
        if state != before:
            follows = state[0] == before[0] and state[1][0] >= before[1][0] and state[1][1] >= before[1][1]
            changes = fleet.changes(before[1]) if follows else None
            if changes is None or any(kind != "credential" for kind, _id in changes):
                self._forget()
            self.on_changed(changes)
            self._state = state  # not before: what could not be read is to be read again
        self._refreshed = self._loop.now

    def _open(self) -> Fleet | None:
        """The table, if there is one and the proxy wants credentials."""
        if self._fleet is None and self._wanted and self.path is not None and self.path.exists():
            self._fleet = Fleet(self._loop, self._problems, self.path)
        return self._fleet if self._wanted else None

    def __repr__(self) -> str:
        return f"<Directory of {self._proxy_id}: {len(self._own)} of its own, {self._fleet!r}>"
