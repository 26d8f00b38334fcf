"""How objects of a kind come and go with a document of the configuration: exported, matched, planned, restored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple

from pydantic import BaseModel

from api.engine.records import R, Stored, view_of
from api.engine.responses import OF_INSTALLATION, ResponseModel
from config.files.secret_box import SecretBox
from config.model.accounts import Quota
from config.model.declaration import entries_of


class SecretValue(str):
    """A secret, as it is stored. It is only compared: `without_secrets` replaces it by null in an export."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "SecretValue"


def without_secrets(value: Any) -> Any:
    """The same without secrets: null where there is one."""
    if isinstance(value, SecretValue):
        return None
    if isinstance(value, Mapping):
        return {name: without_secrets(item) for name, item in value.items()}
    return [without_secrets(item) for item in value] if isinstance(value, list) else value


def password(stored: str | None) -> dict[str, SecretValue]:
    """The field of an entry that says that there is a password."""
    return {} if stored is None else {"password": SecretValue(stored)}


def without(form: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """An entry without these fields."""
    return {key: value for key, value in form.items() if key not in names}


def entry_of(record: BaseModel) -> dict[str, Any]:
    """A record as an entry of a document: its view without what belongs to one installation, its name first."""
    fields = type(record).model_fields.values()
    counts = [entries.count for entries in map(entries_of, fields) if entries is not None]
    view = without(view_of(record), *OF_INSTALLATION, *counts)
    return {**{name: view[name] for name in ("name", "description") if name in view}, **view}


ALWAYS = frozenset({"name", "host", "port", "protocol", "username", "auth", "role"})
"""Fields that a minimal document always has; `auth` unless all of it has its defaults."""
WHOLE = frozenset({"proxies", "nodes"})
"""Of which a part says something else than the whole: `all` beside `tags`."""
_NO_DEFAULT = object()


def differing(entry: Mapping[str, Any], blank: Mapping[str, Any]) -> dict[str, Any]:
    """What an entry of a minimal document has: the fields that are not as in `blank`."""
    kept: dict[str, Any] = {}
    for name, value in entry.items():
        usual = blank.get(name, _NO_DEFAULT)
        if name in ALWAYS | WHOLE or not isinstance(value, Mapping) or not isinstance(usual, Mapping):
            if name in ALWAYS or value != usual:
                kept[name] = value
        elif inner := differing(value, usual):
            kept[name] = inner
    return kept


@dataclass(frozen=True, slots=True)
class Planning:
    """What planning an entry needs beside it.

    `sealed` are all secrets that came with the document (`api.import_export.document.Secrets`), `rules` those of
    proxies. `refuse` adds a problem to a field of the entry.
    """

    seal: SecretBox
    now: float
    rules: Any
    sealed: Any
    refuse: Callable[[str, str], None]
    weak_passwords: bool = False
    """Whether accounts may have any password."""


class PlannedRecord(NamedTuple):
    """A record as it is to be, and a secret that was made for it, which only the response to this import has."""

    record: Any
    secret: str | None = None


def with_usual_quota(blank: Mapping[str, Any]) -> Callable[[Any, Any], Mapping[str, Any]]:
    """The `usual` of entries whose `quota` is null by default: one that has a quota has the defaults of its members."""
    return lambda entry, _rules: blank if entry.quota is None else {**blank, "quota": Quota().model_dump()}


GivenEntries = Sequence[Any]
"""Entries of a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer(Generic[R]):
    """How objects of a kind come and go with a document. `model` is that of an entry, `exported` that of
    one in a response, `entry` makes one of a record.

    `key` is what records and entries are known by, `identity` the field that has it. `blank` has the defaults of an
    entry, for minimal documents; `usual` those for an entry with these members, where it depends on them and on the
    rules of proxies; `sparse` makes an entry minimal; `required` are fields that have no default.
    """

    model: type[BaseModel]
    exported: type[ResponseModel]
    entry: Callable[[R], dict[str, Any]] = entry_of
    key: Callable[[Any], Any] = lambda each: each.name
    identity: str = "name"
    match: Callable[[Sequence[Stored[R]], GivenEntries, Callable[[str, str], None]], dict[int, Stored[R]]] | None = None
    """The stored object of each entry, by index; adds problems. None: by `key`, which is that of one entry each."""
    wanted: Callable[[Stored[R] | None, Any, Planning], PlannedRecord | None] | None = None
    """The record as an entry describes it; raises `InvalidResource`, `SecretBoxError`. None after a problem that was
    added. A kind without it has what `new` and `change` make of the entry."""
    blank: Mapping[str, Any]
    usual: Callable[[Any, Any], Mapping[str, Any]] | None = None
    sparse: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    required: tuple[str, ...] = ()
    openable: Callable[[R, SecretBox], tuple[R, list[str]]] | None = None
    """A record without the secrets that can't be opened any more, and their fields. Raises `SecretBoxError`. None: it
    has none that are sealed."""
    restored: Callable[[R, R, float], R] = lambda _before, after, now: after.model_copy(update={"updated_at": now})
    """An earlier record, with what is not restored in an object that is there, as it is before."""
    brought_back: Callable[[R, float], R] = lambda after, _now: after
    """A record of an object that was deleted, as it comes back."""
    refit: Callable[[R, float, SecretBox], object] = lambda _record, _now, _seal: None
    """Raises `InvalidResource` if fields of a record do not fit together that were put together anew."""
