"""Many accounts of the fleet in one request."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictStr

from config.model.fields import Body, InvalidResource, example
from config.model.fleet_accounts import FleetAccount, FleetAccountCreate, FleetAccountUpdate
from config.model.object_fields import Tags, retagged

BATCH_MAX = 1_000
"""Accounts in each list of a batch."""
IMPORT_MAX = 10_000
"""Accounts in each list of an import; each takes 10 KB or so of memory until all are stored."""

AccountId = Annotated[StrictStr, Field(min_length=1, max_length=64)]


class FleetAccountChange(FleetAccountUpdate):
    """A change of the account with this id. `add_tags` and `remove_tags` keep its other tags."""

    id: AccountId
    add_tags: Tags | None = None
    remove_tags: Tags | None = None

    def resolved(self, account: FleetAccount) -> FleetAccountChange:
        """See `FleetAccountUpdate`."""
        if self.add_tags is None and self.remove_tags is None:
            return self
        if self.tags is not None:  # type: ignore[attr-defined]  # a field of the account, which `gives` adds
            raise InvalidResource("tags", "must be left out beside add_tags and remove_tags")
        return self.model_copy(update={"tags": retagged(account.tags, self.add_tags or (), self.remove_tags or ())})


class AccountBatch(Body):
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
