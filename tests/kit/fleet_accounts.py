"""Accounts of the fleet in a data directory, given as the records that forwarding reads, and written by the store."""

from __future__ import annotations

from typing import Any

from actors.accounts.records import LIMITS, AccountRecord, CredentialRecord, InheritedRules, PlanRecord, ScheduleData
from actors.accounts.table import digest_of
from api.store import Write
from api.store.accounts import ACCOUNTS, CREDENTIALS, PLANS
from config.files.paths import DataDir
from config.model.account_credentials import AccountCredential
from config.model.fleet_accounts import FleetAccount
from config.model.plans import DAYS, Plan
from tests.kit.own_accounts import OwnAccounts

Record = AccountRecord | PlanRecord | CredentialRecord
OF_CREDENTIALS = ("clients", "clients_window")


class FleetAccounts:
    """Writes as the API does; what is put twice has changed."""

    def __init__(self, data: DataDir) -> None:
        self.path = data.fleet
        self._store: OwnAccounts | None = OwnAccounts(data)
        self._secrets: dict[str, str] = {}

    @property
    def store(self) -> OwnAccounts:
        assert self._store is not None
        return self._store

    def put(self, *records: Record) -> int:
        """Store them in one commit, whose number this is."""
        return self.store.commit([self._write(each) for each in records])

    def put_credential(self, record: CredentialRecord, secret: str) -> None:
        """Store a new credential with this secret."""
        self._secrets[record.id] = secret
        self.put(record)

    def remove(self, *records: Record) -> int:
        """In one commit, whose number this is."""
        return self.store.commit([Write(self._write(each).collection, each.id, None) for each in records])

    def clear(self) -> None:
        """Remove all there is."""
        self.store.commit(
            [
                Write(collection, each.id, None)
                for collection in (CREDENTIALS, ACCOUNTS, PLANS)
                for each in self.store.every(collection)
            ]
        )

    def close(self) -> None:
        """All is in the file itself then."""
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _write(self, record: Record) -> Write:
        if isinstance(record, AccountRecord):
            return Write(ACCOUNTS, record.id, _account(record))
        if isinstance(record, PlanRecord):
            return Write(PLANS, record.id, _plan(record))
        return Write(CREDENTIALS, record.id, _credential(record, self._secrets[record.id]))


def _account(record: AccountRecord) -> dict[str, Any]:
    blank = FleetAccount(id=record.id, username="any", created_at=1.0, updated_at=1.0).model_dump(mode="json")
    proxies = {"all": record.all_proxies, "ids": list(record.proxy_ids), "tags": list(record.proxy_tags)}
    return {
        **blank,
        **record._asdict(),
        **_rules(record.rules),
        "expires_at": record.expires_at or None,
        "proxies": proxies,
        "renewal_hash": record.renewal,
    }


def _plan(record: PlanRecord) -> dict[str, Any]:
    blank = Plan(id=record.id, name=record.name, created_at=1.0, updated_at=1.0).model_dump(mode="json")
    own = {"password": record.self_service_password, "credentials": record.self_service_credentials}
    return {**blank, **_rules(record.rules), "self_service": own, "disclose": record.disclose}


def _credential(record: CredentialRecord, secret: str) -> dict[str, Any]:
    digest = digest_of(secret).hex()
    blank = AccountCredential(
        id=record.id, account_id="any", prefix="any", secret_hash=digest, expires_at=1.0, created_at=1.0
    )
    fields = record._asdict()
    limits = {name: fields.pop(name) or None for name in OF_CREDENTIALS}
    return {**blank.model_dump(mode="json"), **fields, "limits": {**limits, "clients": limits["clients"] or 0}}


def _rules(rules: InheritedRules) -> dict[str, Any]:
    quota = rules.quota
    return {
        **rules._asdict(),
        "limits": {name: getattr(rules, name) for name in LIMITS},
        "quota": None if quota is None else {"bytes": quota[0], "period": quota[1]},
        "schedule": None if rules.schedule is None else _schedule(rules.schedule),
    }


def _schedule(data: ScheduleData) -> dict[str, Any]:
    zone, windows = data
    return {
        "timezone": zone,
        "windows": [
            {"days": [DAYS[day] for day in days], "from": _clock(begin), "to": _clock(end)}
            for days, begin, end in windows
        ],
    }


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"
