"""Responses about many accounts of the fleet."""

from __future__ import annotations

from api.openapi.schemas.base import ResponseModel


class NamedAccount(ResponseModel):
    """An account that was created or changed."""

    id: str
    username: str


class BatchCount(ResponseModel):
    """The number of accounts; `updated` without those that were so before."""

    created: int
    updated: int
    deleted: int


class BatchedAccounts(ResponseModel):
    """The accounts in the order of the request; `deleted` are ids.

    Of a dry run `created` is empty, of lines all lists.
    """

    created: list[NamedAccount]
    updated: list[NamedAccount]
    deleted: list[str]
    count: BatchCount
    dry_run: bool
