"""The document in the making: proxies, accounts, lists, pools and policies, and the report on what they are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from api.import_export.convert.statements import (
    ConversionReport,
    Effect,
    Files,
    Place,
    Statement,
    UnreadableFile,
    passes,
    plain,
)
from config.model.accounts import AccountName
from config.model.fields import InvalidResource, field_path
from config.model.object_fields import list_name
from config.model.proxy_parts import SERVERS_MAX
from config.model.shared_objects.lists import LIST_ENTRIES_MAX
from config.model.shared_objects.policies import PolicyCreate, new_policy
from config.net.addresses import is_plain_address

DEPTH_MAX = 16
"""Includes in one another; squid has the same limit."""
State = TypeVar("State")
Split = Callable[[str], Iterator[tuple[int, list[str]]]]
"""Makes the lines of a text, each with its number, and their words."""
COPY = "copy it here, or name its place by --root"
SECTIONS = ("proxies", "accounts", "lists", "pools", "policies")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_NUMBERS = re.compile(r"[0-9]+(-[0-9]+)?")
"""Would be ports behind `list:`."""
_NAME: TypeAdapter[str] = TypeAdapter(AccountName)
_BCRYPT = re.compile(r"\$2[aby]\$(?:0[4-9]|1[0-5])\$[./0-9A-Za-z]{21}[.Oeu][./0-9A-Za-z]{31}")
_INSTEAD = "set a password: proxyfleet accounts update {} --enable --password; or import it with a bcrypt hash"


class Blocked(str):
    """In a table of directives: why nothing may be allowed without this one."""

    __slots__ = ()


UNNEEDED = ""
"""In a table of directives: of no meaning here. Another text says what to do instead."""


class Draft:
    """The sections of the document, and what was said about the lines of the file. Names are made unique here."""

    def __init__(self, main: Path, files: Files, accept: Sequence[str]) -> None:
        self.main = main
        self.files = files
        self.needless = dict.fromkeys(accept)
        """Lines that were accepted, and have nothing to accept so far."""
        self._accepted = frozenset(accept)
        self.report = ConversionReport()
        self.refuses = partial(self.report.add, Effect.REFUSES)
        self.lost = partial(self.report.add, Effect.LOST)
        self.differs = partial(self.report.add, Effect.DIFFERS)
        self.unneeded = partial(self.report.add, Effect.UNNEEDED)
        self.blocks: dict[Statement, None] = {}
        """Statements without which nothing may be allowed."""
        self.proxies: list[dict[str, Any]] = []
        self.accounts: list[dict[str, Any]] = []
        self.lists: list[dict[str, Any]] = []
        self.pools: list[dict[str, Any]] = []
        self.policies: list[dict[str, Any]] = []
        self.list_names: dict[frozenset[str], str] = {}
        """What lists of these domains would be called."""

    def statements(self, split: Split, path: Path, depth: int = 0) -> Iterator[Statement]:
        """All statements of a file and those that it includes, with an `include` of no file. Raises `UnreadableFile`
        for the file itself."""
        for number, words in split(self.files.read(path)):
            statement = Statement(Place(str(path), number), plain(words[0]), tuple(words[1:]))
            if statement.name != "include":
                yield statement
                continue
            for word in statement.words or ("",):
                yield from self._included(split, statement, plain(word), depth + 1)

    def _included(self, split: Split, statement: Statement, pattern: str, depth: int) -> Iterator[Statement]:
        try:
            if depth > DEPTH_MAX:
                raise UnreadableFile(f"more than {DEPTH_MAX} files include one another")
            found = self.files.expand(pattern, statement.place.file)
        except UnreadableFile as error:
            self.missing(statement, str(error))
            return
        if not found:
            yield statement
        for each in found:
            try:
                yield from self.statements(split, each, depth)
            except UnreadableFile as error:
                self.missing(statement, str(error))

    def carry_over(
        self,
        statements: Iterable[Statement],
        table: Mapping[str, Callable[[State, Statement], None] | str],
        state: State,
    ) -> None:
        """Do with each statement what its row in the table says, or report it."""
        for each in statements:
            row = table.get(each.name)
            if callable(row):
                row(state, each)
            else:
                self._leave_out(each, row)

    def accepts(self, place: Place) -> bool:
        """Whether what can't be carried over of this line may be left out."""
        names = {str(place), f"{place.file.rpartition('/')[2]}:{place.line}", self.option(place).split()[1]}
        for each in names & self._accepted:
            self.needless.pop(each, None)
        return not names.isdisjoint(self._accepted)

    def option(self, place: Place) -> str:
        """How to accept a line: by its number in the main file, or as `FILE:LINE`."""
        return f"--accept {place.line if place.file == str(self.main) else place}"

    def block(self, statement: Statement, why: str, instead: str) -> None:
        """Nothing may be allowed, since this statement can't be carried over, unless that is accepted."""
        if self.accepts(statement.place):
            self.report.add(Effect.ACCEPTED, statement, f"{why}; it is left out", instead)
            return
        self.blocks[statement] = None
        more = "the first rules of each policy refuse everything until you delete the one that names this line"
        self.refuses(statement, f"{why}; {more}", f"{instead}; or leave it out: {self.option(statement.place)}")

    def _leave_out(self, statement: Statement, row: str | None) -> None:
        """Report a statement that is not carried over, as its row in the table of directives says."""
        if isinstance(row, Blocked):
            self.block(statement, row, "carry it over by hand")
        elif row == UNNEEDED:
            self.unneeded(statement, "a proxy here does it in a way of its own, or needs it not")
        else:
            instead = row or "check its spelling and what it does; if it denies something, add a rule"
            self.lost(statement, "it is not carried over", instead)

    def add_server(self, statement: Statement, word: str, servers: list[str]) -> None:
        """Add the address of a name server, unless there are as many as can be."""
        if not is_plain_address(word):
            self.lost(statement, f"{word} is no address alone", "write the address of the name server")
        elif len(servers) < SERVERS_MAX and word not in servers:
            servers.append(word)

    def missing(self, statement: Statement, why: str) -> None:
        """Block for a file that can't be read."""
        self.block(statement, f"{why}, and it may deny something", COPY)

    def proxy_name(self, text: str) -> str:
        """A name for a proxy that none has yet."""
        return _free(text[:80], " ", self.proxies)

    def list_of(self, domains: frozenset[str]) -> list[str]:
        """The names of lists that have these domains together."""
        name, entries = self.list_names.get(domains, "domains"), sorted(domains)
        parts = [entries[index : index + LIST_ENTRIES_MAX] for index in range(0, len(entries), LIST_ENTRIES_MAX)]
        return [self._object(self.lists, {"kind": "domains", "entries": each}, name) for each in parts]

    def pool_of(self, upstreams: list[dict[str, Any]], policy: str, name: str) -> str:
        """What a rule says as `use` for these upstreams."""
        return f"pool:{self._object(self.pools, {'policy': policy, 'upstreams': upstreams}, name)}"

    def policy_of(self, rules: list[dict[str, Any]], name: str) -> str:
        """The name of a policy with these rules."""
        return self._object(self.policies, {"rules": rules}, name)

    def _object(self, section: list[dict[str, Any]], made: dict[str, Any], name: str) -> str:
        """The name of an object with these fields, which is like the given one. One of the same is used again."""
        for each in section:
            if each | made == each:
                return str(each["name"])
        word = _UNFIT.sub("-", name).strip("-._")[:50] or "converted"
        word = f"n{word}" if _NUMBERS.fullmatch(word) else word
        free = list_name(_free(word, "-", [*self.lists, *self.pools, *self.policies]))
        section.append({"name": free, **made})
        return free

    def add_accounts(self, entries: Iterable[tuple[Statement, str, str]], proxies: list[str]) -> None:
        """An account at these proxies for each name and hash; disabled where the hash can't be used."""
        taken = {each["username"] for each in self.accounts}
        for statement, name, hashed in entries:
            if name in taken or not passes(_NAME.validate_python, name):
                why = f"the user name {name!r} is not allowed here, or is there twice"
                self.lost(statement, why, "create an account of another name")
                continue
            taken.add(name)
            usable = _BCRYPT.fullmatch(hashed) is not None
            if not usable:
                why = f"the password of {name} is no bcrypt hash that can be checked here; the account is disabled"
                self.refuses(statement, why, _INSTEAD.format(name))
            given = {"password_hash": hashed} if usable else {"enabled": False}
            self.accounts.append({"username": name, **given, "proxies": {"names": proxies}})

    def document(self) -> dict[str, Any]:
        """The document, without empty sections."""
        found = {name: section for name in SECTIONS if (section := getattr(self, name))}
        return {"kind": "proxyfleet.config", "version": 1, **found}


def _free(text: str, blank: str, objects: Iterable[Mapping[str, Any]]) -> str:
    """`text`, or `text` with the first number, that is the name of none."""
    taken = {each["name"] for each in objects}
    names = (text if number == 1 else f"{text}{blank}{number}" for number in count(1))
    return next(name for name in names if name not in taken)


def password_entries(text: str, path: str) -> Iterator[tuple[Statement, str, str]]:
    """The lines `USER:HASH` of a file of passwords (htpasswd), for `Draft.add_accounts`."""
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, hashed = line.strip().partition(":")
        if colon and not name.startswith("#"):
            yield Statement(Place(path, number), "password", (name,)), name, hashed.partition(":")[0]


def problems_of(document: dict[str, Any]) -> list[tuple[str, str]]:
    """What an import would refuse: fields and errors. What only a running product knows is not checked."""
    from api.import_export.document import ConfigDocument  # with the API's security, which takes time to load

    found = list(_problems("", ConfigDocument.model_validate, document))
    for index, each in enumerate(document.get("policies", ())):
        found += _problems(
            f"policies[{index}].", lambda entry: new_policy(PolicyCreate.model_validate(entry), 0.0), each
        )
    return found


def _problems(prefix: str, check: Callable[[Any], object], entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    try:
        check(entry)
    except InvalidResource as error:
        yield f"{prefix}{error.field}", error.error
    except ValidationError as error:
        yield from ((f"{prefix}{field_path(each['loc'])}", each["msg"]) for each in error.errors())
