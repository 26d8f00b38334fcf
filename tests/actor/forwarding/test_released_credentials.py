"""Credentials that were used and are of no more use are forgotten: what an actor had of them is released at once."""

from __future__ import annotations

import gc
import time

import pytest

from actors.accounts.records import CredentialRecord
from actors.forwarding.context import ForwardingContext
from actors.forwarding.limits import limits
from actors.forwarding.limits.accounts import Credential
from actors.forwarding.limits.accounts_in_use import SWEEP
from actors.forwarding.limits.usage import AccountCounter
from tests.actor.forwarding.in_process_actor import Inside
from tests.actor.forwarding.shared_accounts import AccountsTable, bearer, fetch
from tests.kit.forwarding_rig import until
from tests.kit.scripted_origins import Origin, counted, responds

MANY = 40
YES = responds(*[counted(b"yes")] * (2 * MANY))


def sweep(shared: ForwardingContext) -> None:
    shared.limits.in_use._swept = -SWEEP  # the last one is long ago
    shared.limits.in_use._sweep()


def left(shared: ForwardingContext) -> list[int]:
    """How many credentials and counters there are still: a turn of the loop sweeps as many as it has time for."""
    return [len(credentials_of(shared)), len(shared.limits.usage.by_id)]


def objects_of(kind: type) -> int:
    """Without a collection of cycles: an actor seldom makes one. What is taken out of collections isn't listed."""
    gc.unfreeze()
    return sum(type(each) is kind for each in gc.get_objects())


def use(rig: Inside, table: AccountsTable, origin: Origin) -> list[tuple[CredentialRecord, str]]:
    ada = table.account("ada")
    minted = [table.mint(ada) for _ in range(MANY)]
    for _record, secret in minted:
        assert fetch(rig, origin, bearer(secret))[0] == 200
    return minted


def are_dormant(shared: ForwardingContext) -> bool:
    return all(each.dormant for each in shared.limits.in_use)


def credentials_of(shared: ForwardingContext) -> list[Credential]:
    return [each for each in shared.limits.in_use if isinstance(each, Credential)]


def test_no_table_has_a_credential_that_has_expired_or_was_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SURPLUS_MAX", 0)
    with Inside(auth_required=True) as rig, Origin(YES) as origin:
        table = AccountsTable(rig)
        gc.collect()
        before = objects_of(Credential), objects_of(AccountCounter)
        gc.disable()
        try:
            minted = use(rig, table, origin)
            until(lambda: rig.inspect(are_dormant), "the connections have ended")
            assert objects_of(Credential) - before[0] == MANY
            table.remove(*(record for record, _secret in minted[::2]))
            expired = time.time() - 1
            table.put(*(record._replace(expires_at=expired) for record, _secret in minted[1::2]))
            until(lambda: all(each.spec.expires_at == expired for each in rig.inspect(credentials_of)), "all is known")
            rig.inspect(sweep)
            until(lambda: rig.inspect(left) == [0, 1], "all are swept")
            until(lambda: objects_of(Credential) == before[0], "the credentials are released")
            until(lambda: objects_of(AccountCounter) == before[1] + 1, "their counters are released")
        finally:
            gc.enable()
            table.close()
