"""The document in the making: proxies, accounts, lists, pools and policies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from api.import_export.convert.host_sets import Names
from config.files.secret_box import SecretBox
from config.model.fields import InvalidResource, field_path
from config.model.lists import LIST_ENTRIES_MAX, ListCreate, new_list
from config.model.object_fields import list_name
from config.model.policies import PolicyCreate, new_policy

_UNUSED = SecretBox(Path("unused"))
"""Lists of a draft have no secrets."""
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_NUMBERS = re.compile(r"[0-9]+(-[0-9]+)?")
"""Would be ports behind `list:`."""


class Draft:
    """The sections of the document. Names are made unique here."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.proxies: list[dict[str, Any]] = []
        self.accounts: list[dict[str, Any]] = []
        self.lists: list[dict[str, Any]] = []
        self.pools: list[dict[str, Any]] = []
        self.policies: list[dict[str, Any]] = []
        self._proxy_names: set[str] = set()
        self._named: dict[frozenset[str], str] = {}
        """Names of lists of domains by their content."""
        self._hints: dict[frozenset[str], str] = {}

    def object_name(self, text: str) -> str:
        """A name for a list, pool or policy, made of `text`, that none has yet."""
        taken = {each["name"] for each in (*self.lists, *self.pools, *self.policies)}
        plain = _UNFIT.sub("-", text).strip("-._")[:50] or "converted"
        for name in self._variants(f"n{plain}" if _NUMBERS.fullmatch(plain) else plain, "-"):
            if name not in taken:
                return list_name(name)
        raise AssertionError

    def proxy_name(self, text: str) -> str:
        """A name for a proxy that none has yet."""
        name = next(name for name in self._variants(text[:80], " ") if name not in self._proxy_names)
        self._proxy_names.add(name)
        return name

    @staticmethod
    def _variants(text: str, blank: str) -> Iterator[str]:
        yield text
        yield from (f"{text}{blank}{number}" for number in count(2))

    def hint(self, names: Names, name: str) -> None:
        """A list of these names would be called so."""
        self._hints.setdefault(names.domains(), name)

    def list_of(self, domains: frozenset[str]) -> list[str]:
        """The names of lists that have these domains together."""
        if domains not in self._named:
            name = self.object_name(self._hints.get(domains, "domains"))
            self.lists.append({"name": name, "kind": "domains", "entries": sorted(domains)[:LIST_ENTRIES_MAX]})
            self._named[domains] = name
        rest = frozenset(sorted(domains)[LIST_ENTRIES_MAX:])
        return [self._named[domains], *(self.list_of(rest) if rest else [])]

    def document(self) -> dict[str, Any]:
        """The document, without empty sections."""
        sections = {
            "proxies": self.proxies,
            "accounts": self.accounts,
            "lists": self.lists,
            "pools": self.pools,
            "policies": self.policies,
        }
        found = {name: section for name, section in sections.items() if section}
        return {"kind": "proxyfleet.config", "version": 1, **found}


def problems_of(document: dict[str, Any]) -> list[tuple[str, str]]:
    """What an import would refuse: fields and errors. What only a running product knows is not checked."""
    from api.import_export.document import ConfigDocument  # with the API's security, which takes time to load

    try:
        ConfigDocument.model_validate(document)
    except ValidationError as error:
        return [(field_path(each["loc"]), each["msg"]) for each in error.errors()]
    return [*_of_objects("policies", document.get("policies", [])), *_of_objects("lists", document.get("lists", []))]


def _of_objects(section: str, objects: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for index, each in enumerate(objects):
        try:
            if section == "policies":
                new_policy(PolicyCreate.model_validate(each), 0.0)
            else:
                new_list(ListCreate.model_validate(each), 0.0, _UNUSED)
        except InvalidResource as error:
            yield f"{section}[{index}].{error.field}", error.error
        except ValidationError as error:
            yield from ((f"{section}[{index}].{field_path(one['loc'])}", one["msg"]) for one in error.errors())
