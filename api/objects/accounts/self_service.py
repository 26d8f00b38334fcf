"""What holders of accounts do themselves: sign in with the account's name and password, look at it, and what its plan
permits (`self_service` of a plan)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from actors.net.client_key import client_key
from api.audit.refused import WINDOW, Budget
from api.engine.commit import OF_ALL_HOLDERS
from api.engine.objects import Objects
from api.errors import Denied, Invalid, NotFound, StaleRevision, TooBusy, Unauthenticated
from api.objects.accounts.account_kind import status_of
from api.objects.accounts.account_names import may_use
from api.objects.accounts.inline_accounts import EveryAccount, InlineAccounts
from api.objects.accounts.password_renewal import PasswordRenewal
from api.objects.accounts.plan_kind import Plans
from api.objects.proxies.proxy_cache import StoredProxy
from api.objects.proxies.proxy_service import ProxyService
from api.security.account_sessions import LIFETIME, PREFIX, AccountSession, AccountSessions
from api.security.authentication import UNKNOWN_USER_HASH
from api.security.caller import AccountHolder
from api.security.login_throttle import LoginThrottle
from api.security.password_checker import PasswordChecker
from api.store import RevisionConflict, StoreError
from api.store.accounts import AccountStore
from config.model.fleet_accounts import FleetAccount, FleetAccountUpdate
from config.model.plans import Plan, RuleLimits, SelfService, StoredRules
from config.passwords import hash_password, is_foreign, is_whole
from config.text.formatting import timestamp_text

log = logging.getLogger(__name__)

SAME_NAME_MAX = 8
"""Accounts of one name whose passwords are checked for one sign-in. With more of them one that names no proxy fails."""
CREDENTIALS_MAX = 1_000
"""Credentials of one account up to which its holder may make another: each takes room in the store and in the table."""
PASSWORDS_MAX = 10
"""Changes of a password by one holder in an hour: each is a revision, of which so many are kept."""
_LIMITS = tuple(RuleLimits.model_fields)
WRONG = "The user name or the password is wrong"

Record = Callable[[str, str | None, str, str], None]
"""Audits a failed sign-in: the action, the id of the account, the name that was given, the reason."""


@dataclass(frozen=True, slots=True)
class AccountOfHolder:
    """The account of a holder, its plan, and its revision."""

    record: FleetAccount
    plan: Plan | None
    revision: int

    @property
    def permitted(self) -> SelfService:
        """What the holder may do."""
        return SelfService() if self.plan is None else self.plan.self_service

    @property
    def rules(self) -> StoredRules:
        """The rules that hold: the account's own, field by field, or else those of the plan."""
        own, plan = self.record, self.plan
        if plan is None:
            return StoredRules(**{name: getattr(own, name) for name in StoredRules.model_fields})
        limits = {name: _first(getattr(own.limits, name), getattr(plan.limits, name)) for name in _LIMITS}
        whole = {name: _first(getattr(own, name), getattr(plan, name)) for name in StoredRules.model_fields}
        return StoredRules(**{**whole, "limits": RuleLimits(**limits)})


class SelfServiceSignIn:
    """Signs holders in and knows their tokens again. Thread-safe."""

    def __init__(
        self,
        sessions: AccountSessions,
        store: AccountStore,
        every: EveryAccount,
        inline: InlineAccounts,
        accounts: Objects[FleetAccount],
        plans: Plans,
        proxies: ProxyService,
        checker: PasswordChecker,
        record: Record,
        renewal: PasswordRenewal,
        enabled: Callable[[], bool],
        throttle: LoginThrottle,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.enabled = enabled
        self.throttle = throttle
        self._passwords = Budget(PASSWORDS_MAX, in_all=OF_ALL_HOLDERS)
        self._sessions = sessions
        self._store = store
        self._every = every
        self._inline = inline
        self._accounts = accounts
        self._plans = plans
        self._proxies = proxies
        self._checker = checker
        self._record = record
        self._renewal = renewal
        self._clock = clock
        self._placing = threading.Lock()

    # --- signing in and out ---

    def sign_in(self, username: str, password: str, proxy: str | None, address: str) -> tuple[AccountHolder, str]:
        """The holder of the account with this name and password, and the token.

        Raises `Denied` when self-service is off, `Unauthenticated`, `TooBusy`, and `Invalid` on `proxy` when it must
        say which of several accounts is meant.
        """
        self._require_enabled()
        locked = self.throttle.locked_for(username, address)
        found = self._candidates(username, proxy)
        if len(found) > SAME_NAME_MAX:
            found = []  # as if there were none: another response would disclose that there are some
        right = self._with_password(found, password, address)
        locked = locked or self.throttle.locked_for(username, address)  # guesses at the same time count too
        if locked:
            self._record("account.login_failed", None, username, "locked out")
            raise TooBusy(locked, "Too many failed sign-ins")
        if not right:
            self._failed(found[0].id if len(found) == 1 else None, username, address)
            raise Unauthenticated(WRONG)
        if len(self._candidates(username, None)) == 1:  # else one of them could guess at another for ever
            self.throttle.succeeded(username, address)
        if len(right) > 1:
            raise Invalid("proxy", "is required: several accounts have this name and this password")
        return self._signed_in(self._renewed(right[0], password))

    def sign_out(self, holder: AccountHolder) -> None:
        """End the holder's token. Raises `StoreWriteError`."""
        self._sessions.end(holder.session)

    def end_sign_ins(self, account_ids: Iterable[str]) -> None:
        """End all tokens of these accounts, for good. Raises `StoreWriteError`."""
        self._sessions.end_of(account_ids)

    def holder_of(self, authorization: str | None) -> AccountHolder | None:
        """Whose token the header has; None when it has none of a holder. Raises `Unauthenticated`, `StoreError`."""
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip(" ")
        if scheme.lower() != "bearer" or not token.startswith(PREFIX):
            return None
        session = self._sessions.find(token)
        account = None if session is None or not self.enabled() else self._live(session)
        if session is None or account is None:
            raise Unauthenticated("The access token is not valid")
        if session.until <= self._clock():
            details = {"expired_at": timestamp_text(session.until)}
            raise Unauthenticated("The token has expired", "TOKEN_EXPIRED", details)
        return AccountHolder(account.id, account.username, session)

    # --- the account ---

    def account(self, holder: AccountHolder) -> AccountOfHolder:
        """The account of a holder. Raises `NotFound` when it is deleted at this moment."""
        stored = self._every.get(holder.account_id)
        return AccountOfHolder(stored.record, self._plans.known(stored.record.plan), stored.revision)

    def proxies(self, account: FleetAccount) -> list[StoredProxy]:
        """The active proxies that an account may use."""
        found = self._proxies.all()
        return [each for each in found if each.record.status == "active" and may_use(account.proxies, each.record)]

    def change_password(self, holder: AccountHolder, current: str, new: str, address: str) -> None:
        """Give the account another password, which ends its tokens. Failures count as those of a sign-in.

        Raises `Denied` when the plan doesn't permit it, `Invalid`, `TooBusy`, and as `Objects.update`.
        """
        own = self.account(holder)
        if not own.permitted.password:
            raise Denied("the plan of the account does not permit changing the password")
        locked = self.throttle.locked_for(own.record.username, address)
        if locked:
            raise TooBusy(locked, "Too many failed sign-ins")
        if not self._with_password([own.record], current, address):
            self._failed(own.record.id, own.record.username, address)
            raise Invalid("current_password", "is wrong")
        if self._passwords.take(holder.account_id) is None:
            raise TooBusy(int(WINDOW), f"The password was changed {PASSWORDS_MAX} times within an hour")
        try:
            self._accounts.update(holder.account_id, FleetAccountUpdate(password=new), own.revision)
        except (StaleRevision, RevisionConflict) as error:  # perhaps to a password that this one must not replace
            raise TooBusy(1, "The account was changed at this moment") from error

    def require_credentials(self, holder: AccountHolder) -> None:
        """Raise `Denied` when the plan doesn't permit to make and revoke credentials."""
        if not self.account(holder).permitted.credentials:
            raise Denied("the plan of the account does not permit making or revoking credentials")

    @contextmanager
    def place(self, holder: AccountHolder) -> Iterator[None]:
        """For making one credential. Raises `Invalid` when the account has as many as holders may make."""
        with self._placing:
            if self._store.credential_count(holder.account_id) >= CREDENTIALS_MAX:
                text = f"the account has {CREDENTIALS_MAX} credentials, those of the last hour included: revoke some"
                raise Invalid(None, text)
            yield

    def close(self) -> None:
        """Close the file of the sign-ins."""
        self._sessions.close()

    # --- inside ---

    def _require_enabled(self) -> None:
        if not self.enabled():
            raise Denied("self-service is off (accounts.self_service)")

    def _candidates(self, username: str, proxy: str | None) -> list[FleetAccount]:
        """The accounts of this name, at the proxy of this name or id if there is one."""
        fleet = (FleetAccount.model_validate(each.body) for each in self._store.accounts_named(username))
        named = [*fleet, *self._inline.named(username)]
        if proxy is None:
            return named
        found = [each.record for each in self._proxies.all() if proxy in (each.record.id, each.record.name)]
        return [each for each in named if any(may_use(each.proxies, record) for record in found)]

    def _with_password(self, accounts: list[FleetAccount], password: str, address: str) -> list[FleetAccount]:
        """Those with this password that may be used now. Takes as long where there is none."""
        hashes = [each.password_hash or UNKNOWN_USER_HASH for each in accounts] or [UNKNOWN_USER_HASH]
        right = [self._checker.check_password(password, each, client_key(address)) for each in hashes]
        now = self._clock()
        return [
            account
            for account, good in zip(accounts, right, strict=False)
            if good and account.password_hash is not None and _may_sign_in(account, now)
        ]

    def _renewed(self, account: FleetAccount, password: str) -> FleetAccount:
        """The account with a hash of our own in place of one from elsewhere, as far as that can be stored now."""
        previous = account.password_hash or ""
        if is_foreign(previous) and is_whole(password):
            try:
                if self._renewal.renew(account.id, previous, hash_password(password)):
                    return self._accounts.get(account.id).record
            except (StoreError, NotFound) as error:
                log.warning("the password of %s keeps its hash for now: %s", account.id, error)
        return account

    def _signed_in(self, account: FleetAccount) -> tuple[AccountHolder, str]:
        """Issue the token, unless the account was changed while its password was checked."""
        assert account.password_hash is not None
        token = self._sessions.issue(account.id, account.password_hash)
        session = self._sessions.find(token)
        if session is None or self._live(session) is None:
            raise Unauthenticated(WRONG)
        return AccountHolder(account.id, account.username, session), token

    def _live(self, session: AccountSession) -> FleetAccount | None:
        """The account of a sign-in, if it may still be used with the password of then."""
        try:
            account = self._every.get(session.account_id).record
        except NotFound:
            return None
        same = account.is_password(session.password)
        return account if same and _may_sign_in(account, self._clock()) else None

    def _failed(self, account_id: str | None, username: str, address: str) -> None:
        self._record("account.login_failed", account_id, username, "wrong credentials")
        if self.throttle.failed(username, address):
            self._record("account.locked", account_id, username, "too many failures")


def _first(own: Any, inherited: Any) -> Any:
    return inherited if own is None else own


def _may_sign_in(account: FleetAccount, now: float) -> bool:
    return status_of(account, now) not in ("disabled", "expired")


def token_view(token: str) -> dict[str, Any]:
    """The data of the response to a sign-in."""
    return {"access_token": token, "expires_in": LIFETIME, "token_type": "Bearer"}
