"""Views of an export and of the outcome of an import. An existing secret is null, others are absent."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import create_model

from api.engine.responses import F
from api.objects.accounts import ACCOUNTS
from api.objects.kinds import KINDS
from api.openapi.schemas.base import ResponseModel

_ChangedKind: Any = Literal[(*(each.name for each in KINDS.values()), "settings")]


class Vault(ResponseModel):
    """All secrets, sealed with a key that is derived from the passphrase."""

    kdf: Literal["scrypt"]
    n: int
    r: int
    p: int
    salt: str
    cipher: Literal["AES-256-GCM"]
    nonce: str
    data: str


def _with_sections(cls: type[F]) -> type[F]:
    """Decorates the model of an export: with the entries of each kind. Those of accounts may be omitted."""
    sections: dict[str, Any] = {}
    for name, kind in KINDS.items():
        entries: Any = list[kind.transfer.exported]  # type: ignore[name-defined]
        sections[name] = (entries | None, None) if kind is ACCOUNTS else (entries, ...)
    return create_model(cls.__name__, __base__=cls, __module__=cls.__module__, __doc__=cls.__doc__, **sections)


@_with_sections
class ExportedConfig(ResponseModel):
    """The configuration as one document, which can be imported."""

    kind: Literal["proxyfleet.config"]
    version: Literal[1]
    settings: dict[str, dict[str, Any]]
    secrets: Vault | None = None


class FieldChange(ResponseModel):
    """A field that differs; a secret is `***`, an absent value null."""

    field: str
    before: Any
    after: Any


class ResourceChange(ResponseModel):
    """The change of one resource. `id` is null before it is created; `secret` is that of a new webhook."""

    kind: _ChangedKind
    name: str
    id: str | None
    action: Literal["create", "update", "delete", "unchanged"]
    fields: list[FieldChange]
    secret: str | None = None


class ImportSummary(ResponseModel):
    """The number of resources by action."""

    create: int
    update: int
    delete: int
    unchanged: int


class Planned(ResponseModel):
    """The changes to a configuration, or with `dry_run` those that would be made."""

    dry_run: bool
    changed: bool
    summary: ImportSummary
    changes: list[ResourceChange]


class NotCompared(ResponseModel):
    """What is unchanged because the document says nothing about it.

    `fields`: whether fields that its entries leave out are not compared, as in a document that is not minimal;
    `objects`: by section the number of those without an entry; `sections`: those that it lacks.
    """

    fields: bool
    objects: dict[str, int]
    sections: list[str]


class Imported(Planned):
    """The changes of an import, or with `dry_run` those that it would make."""

    not_compared: NotCompared
