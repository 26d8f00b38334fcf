"""Minimal documents: what they leave out of an object that they name is its default.

`minimal` leaves it out of an export, and `completed` puts it into the entries of an import: each is the reverse of the
other, so that an import of what was exported finds every field that was changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from api.engine.kind import Kind
from api.engine.transfer import WHOLE, differing
from api.import_export.document import ConfigDocument
from api.import_export.plan import Problems
from api.objects.kinds import KINDS
from api.objects.proxies.proxy_service import ProxyRules
from config.model.declaration import M

_SECRETS = frozenset({"password", "secret"})
"""Of which null means that they stay as they are."""
_IDENTITY = frozenset({"name", "username", "url", "port", "protocol"})


def minimal(document: Mapping[str, Any]) -> dict[str, Any]:
    """`document` with entries that have only what differs."""
    head = {name: document[name] for name in ("kind", "version")}
    sections = {
        name: [_sparse(kind, entry) for entry in document[name]] for name, kind in KINDS.items() if name in document
    }
    settings = {group: values for group, values in document["settings"].items() if values}
    return {**head, "minimal": True, **document, "settings": settings, **sections}


def _sparse(kind: Kind[Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    made = kind.transfer.sparse
    return differing(entry, kind.transfer.blank) if made is None else made(entry)


# --- the reverse --------------------------------------------------------------------------------------------------


def completed(document: ConfigDocument, rules: ProxyRules, problems: Problems) -> ConfigDocument:
    """A minimal document with the defaults that it leaves out; another one as it is.

    Adds a problem for each field that is left out and has no default. `rules` are what new proxies have.
    """
    if not document.minimal:
        return document
    sections: dict[str, Any] = {}
    for name, kind in KINDS.items():
        entries, usual = document.section(name), _Usual(kind, rules)
        if entries is not None:
            _refuse_incomplete(kind, entries, problems)
            sections[name] = [_with_defaults(entry, usual.of(entry)) for entry in entries]
    return document.model_copy(update=sections)


def _refuse_incomplete(kind: Kind[Any], entries: list[Any], problems: Problems) -> None:
    for index, entry in enumerate(entries):
        for name in kind.transfer.required:
            if getattr(entry, name) is None:
                path = f"{kind.collection}[{index}].{name}"
                problems.add(path, "is required in a minimal document: it has no default")


def _with_defaults(given: M, usual: BaseModel) -> M:
    """`given` with what it leaves out of `usual`."""
    added: dict[str, Any] = {}
    for name in usual.model_fields_set - _SECRETS:
        default = getattr(usual, name)
        if name not in given.model_fields_set:
            added[name] = default
        elif name not in WHOLE:
            value = getattr(given, name)
            if isinstance(value, BaseModel) and isinstance(default, BaseModel):
                added[name] = _with_defaults(value, default)
    return given.model_copy(update=added)


class _Usual:
    """Entries that have the defaults, each made once: of objects that are null by default, those of the ones it has."""

    def __init__(self, kind: Kind[Any], rules: ProxyRules) -> None:
        self._kind = kind
        self._rules = rules
        self._made: dict[str, BaseModel] = {}

    def of(self, entry: Any) -> BaseModel:
        """The one for this entry."""
        transfer = self._kind.transfer
        values = transfer.blank if transfer.usual is None else transfer.usual(entry, self._rules)
        key = repr(values)
        if key not in self._made:
            self._made[key] = _unnamed(transfer.model.model_validate({transfer.identity: "blank", **values}))
        return self._made[key]


def _unnamed(entry: BaseModel) -> BaseModel:
    """Without what an entry always has itself."""
    values = {name: getattr(entry, name) for name in entry.model_fields_set - _IDENTITY}
    return type(entry).model_construct(_fields_set=set(values), **values)
