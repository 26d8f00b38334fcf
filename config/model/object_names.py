"""Which objects others name: policies and lists in entries and fields, and how such names are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from config.net.entries import GEO, names_list

if TYPE_CHECKING:
    from config.model.account_rules import StoredRules
    from config.model.proxies import ProxyRecord

PREFIXES: Final = {"list:": "lists", "geo:": "lists", "pool:": "pools"}
"""What a text begins with that names an object of a collection: `list:mirrors:443`, `geo:world:country=DE`."""
HIDDEN: Final = "***"
_SINGULAR: Final = {"lists": "list", "pools": "pool", "policies": "policy"}


class Named(NamedTuple):
    """That `field` names an object of a collection; `is_place`: a part of a database of places."""

    collection: str
    name: str
    field: str
    is_place: bool = False

    @property
    def kind(self) -> str:
        """What one object of the collection is called."""
        return _SINGULAR[self.collection]

    @property
    def key(self) -> str:
        """The object as messages name it: `pool:paris`."""
        return f"{self.kind}:{self.name}"

    def misfit(self, kind: str) -> str:
        """Why it can't name a list of this kind, empty if it can."""
        if self.collection != "lists" or self.is_place == (kind == GEO):
            return ""
        if self.is_place:
            return f"the list {self.name!r} has {kind}: it is named as list:{self.name}"
        return f"the list {self.name!r} is a database: name a part of it as geo:{self.name}:country=DE or …:asn=64500"


def named_in(texts: Iterable[str] | None, field: str) -> Iterator[Named]:
    """The objects that the entries of a list name; `field` is that of the list."""
    for index, text in enumerate(texts or ()):
        found = named_by(text, f"{field}[{index}]")
        if found is not None:
            yield found


def named_by(text: str, field: str) -> Named | None:
    """The object that a text names, None if it is none."""
    prefix, colon, rest = text.partition(":")
    collection = PREFIXES.get(prefix + colon)
    if collection is None or (collection == "lists" and not names_list(text)):
        return None
    return Named(collection, rest.partition(":")[0], field, prefix == GEO)


def without_names(entries: Iterable[str]) -> list[str]:
    """Entries for people who are not to know what objects are called: `list:***:443`, `geo:***:country=DE`."""
    return [_without_name(each) if named_by(each, "") else each for each in entries]


def _without_name(entry: str) -> str:
    prefix, _, rest = entry.partition(":")
    _, colon, more = rest.partition(":")
    return f"{prefix}:{HIDDEN}{colon}{more}"


def names_of_proxy(proxy: ProxyRecord) -> Iterator[Named]:
    """The objects that a proxy names."""
    if proxy.policy is not None:
        yield Named("policies", proxy.policy, "policy")
    if proxy.pool is not None:
        yield Named("pools", proxy.pool, "pool")
    for name in ("allow_destinations", "deny_destinations"):
        yield from named_in(getattr(proxy.access, name), f"access.{name}")


def names_of_rules(rules: StoredRules) -> Iterator[Named]:
    """The objects that an account or a plan names."""
    if rules.policy is not None:
        yield Named("policies", rules.policy, "policy")
    for name in ("allow_destinations", "deny_destinations"):
        yield from named_in(getattr(rules, name), name)
