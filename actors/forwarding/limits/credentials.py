"""A credential of an account in use. It narrows the account, all of which holds as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.bus.messages.specs import AccountSpec, LimitsSpec
from actors.forwarding.limits.accounts import Account
from actors.forwarding.limits.meter import Meter
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure

if TYPE_CHECKING:
    from actors.accounts.records import CredentialRecord

REVOKED = "credential_revoked"


class Credential(Account):
    """Counts, lapses and ends connections as an account does, with words of its own."""

    def refusal(self, client_ip: str, now: float) -> Failure | None:
        """See `Account.refusal`."""
        if self.lapsed(now):
            return failures.CREDENTIAL_EXPIRED
        if self.spec.allow_clients and not self.may_come_from(client_ip):
            return failures.CREDENTIAL_NETWORK
        return failures.CREDENTIAL_QUOTA if self.usage.exhausted else None

    def admit(self, meter: Meter) -> Failure | None:
        """See `Account.admit`."""
        most = self.spec.limits.connections
        if meter.credential is not self and 0 < most <= self.connections:
            return failures.credential_connections(most)
        return None


def spec_of(record: CredentialRecord) -> AccountSpec:
    """What a credential allows, as of an account without a password."""
    return AccountSpec(
        id=record.id,
        username="",
        password_hash=None,
        limits=LimitsSpec(connections=record.max_connections),
        quota=record.quota,
        expires_at=record.expires_at,
        allow_clients=record.allow_clients,
        allow_destinations=record.allow_destinations or (),
    )
