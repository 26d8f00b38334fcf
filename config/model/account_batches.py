"""Many accounts of the fleet in one request."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictStr

from config.model.fields import Part, example
from config.model.fleet_accounts import FleetAccountCreate, FleetAccountUpdate

BATCH_MAX = 1_000
"""Accounts in each list of a batch."""
IMPORT_MAX = 10_000
"""Accounts in each list of an import; each takes 10 KB or so of memory until all are stored."""

AccountId = Annotated[StrictStr, Field(min_length=1, max_length=64)]


class FleetAccountChange(FleetAccountUpdate):
    """A change of the account with this id."""

    id: AccountId


class AccountBatch(Part):
    """Accounts to create, to change and to delete, all of them or none."""

    model_config = example(
        {
            "create": [{"username": "alice", "password": "correct horse", "plan": "basic"}, {"username": "job-runner"}],
            "update": [{"id": "acc_0123456789abcdef", "enabled": False}],
            "delete": ["acc_fedcba9876543210"],
        }
    )

    create: Annotated[list[FleetAccountCreate], Field(max_length=BATCH_MAX)] = Field(default_factory=list)
    update: Annotated[list[FleetAccountChange], Field(max_length=BATCH_MAX)] = Field(default_factory=list)
    delete: Annotated[list[AccountId], Field(max_length=BATCH_MAX)] = Field(default_factory=list)

    @property
    def passwords(self) -> int:
        """The number of passwords to hash."""
        return sum(each.password is not None for each in (*self.create, *self.update))


class AccountImport(AccountBatch):
    """As a batch, of more accounts; passwords only as hashes."""

    model_config = example({"create": [{"username": "alice", "password_hash": "$2b$10$" + 53 * "u"}]})

    create: Annotated[list[FleetAccountCreate], Field(max_length=IMPORT_MAX)] = Field(default_factory=list)
    update: Annotated[list[FleetAccountChange], Field(max_length=IMPORT_MAX)] = Field(default_factory=list)
    delete: Annotated[list[AccountId], Field(max_length=IMPORT_MAX)] = Field(default_factory=list)
