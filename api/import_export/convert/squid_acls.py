"""`acl` of squid: collects the definitions, and makes conditions of the types that rules can check: a row for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from api.import_export.convert.decisions import ALWAYS, Condition
from api.import_export.convert.draft import COPY, Draft
from api.import_export.convert.regions import PLAIN, TUNNEL, Addresses, Intervals, Names, Region, Regions, of_one, ports
from api.import_export.convert.statements import FILE, Place, Statement, UnreadableFile
from config.net.names import is_host_name

_OPTION = re.compile(r"[-+][inms](=.*)?|--")
_METHOD = re.compile(r"[A-Za-z][A-Za-z-]{0,30}")
_PROTOCOLS = {"HTTP": PLAIN, "NONE": TUNNEL}


@dataclass(slots=True)
class Acl:
    """An access list by its definitions. `unread` says what of it can't be read."""

    name: str
    kind: str
    statement: Statement
    values: list[tuple[str, Statement]] = field(default_factory=list)
    """Each with its line."""
    options: set[str] = field(default_factory=set)
    unread: str = ""
    made: Condition | None = None


Maker = Callable[[Acl, Draft], Condition]
_BUILT_IN = (
    "all src all",
    "localhost src 127.0.0.0/8 ::1",
    "to_localhost dst 127.0.0.0/8 0.0.0.0/32 ::1 ::",
    "to_linklocal dst 169.254.0.0/16 fe80::/10",
    "manager proto cache_object",
    "CONNECT method CONNECT",
)
"""Access lists that squid defines itself."""


class Acls:
    """All access lists. Names are compared without regard to case, as by squid."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._known: dict[str, Acl] = {}
        for line in _BUILT_IN:
            self.add(Statement(Place("", 0), "acl", tuple(line.split())))

    def add(self, statement: Statement) -> None:
        """Add a line `acl NAME TYPE VALUES…`."""
        name, kind = (*statement.words, "", "")[:2]
        acl = self._known.setdefault(name.lower(), Acl(name, kind, statement))
        if not acl.statement.place.file:
            acl.statement = statement
        if not kind or acl.kind != kind:
            acl.unread = f"{name} has no type, or two"
            self._draft.lost(statement, acl.unread, "write all lines of one name with one type")
            return
        acl.values += self._values(acl, statement)

    def _values(self, acl: Acl, statement: Statement) -> Iterator[tuple[str, Statement]]:
        options = True
        for word in statement.words[2:]:
            if word.startswith(FILE):
                yield from self._of_file(acl, statement, word.removeprefix(FILE))
            elif options and _OPTION.fullmatch(word):
                acl.options.add(word)
                options = word != "--"
            else:
                yield word, statement

    def _of_file(self, acl: Acl, statement: Statement, name: str) -> Iterator[tuple[str, Statement]]:
        path = self._draft.files.find(name, statement.place.file)
        try:
            text = self._draft.files.read(path)
        except UnreadableFile as error:
            acl.unread = str(error)
            self._draft.lost(statement, acl.unread, COPY)
            return
        for number, line in enumerate(text.splitlines(), 1):
            words = () if line.strip().startswith("#") else line.split()
            one = Statement(Place(str(path), number), "acl", (acl.name, acl.kind, *words))
            yield from ((word, one) for word in words)

    def kinds(self, words: Sequence[str]) -> set[str]:
        """The types of the access lists that a line names."""
        found = (self._known.get(each.removeprefix("!").lower()) for each in words)
        return {each.kind for each in found if each is not None}

    def report_unused(self) -> None:
        """Report those that no line that was carried over uses."""
        for acl in self._known.values():
            if acl.statement.place.file and acl.made is None:
                self._draft.unneeded(acl.statement, "no line that was carried over uses it", "", f"acl {acl.name}")

    def condition(self, name: str) -> Condition:
        """What an access list matches."""
        acl = self._known.get(name.lower())
        if acl is None:
            return Condition(unclear=f"there is no acl {name}")
        if acl.made is None:
            maker = KINDS.get(acl.kind)
            unknown = f"{acl.kind} {_UNKNOWN.get(acl.kind, 'is nothing that a rule can check')}"
            made = Condition(unclear=unknown) if maker is None else maker(acl, self._draft)
            acl.made = replace(made, unclear=acl.unread) if acl.unread else made
        return acl.made


def _set_of(read: Callable[[str], Any], regions: Callable[[list[Any]], Regions]) -> Maker:
    """A condition on one dimension: the `regions` of what `read` makes of the values."""

    def make(acl: Acl, draft: Draft) -> Condition:
        found, unclear = [], ""
        for text, statement in acl.values:
            try:
                found.append(read(text))
            except ValueError as error:
                unclear = f"{text}: {error}"
                draft.lost(statement, unclear, "write it in another form, and convert again")
        return Condition(regions(found), unclear)

    return make


def _name(text: str) -> Names:
    """`example.com`, `.example.com`."""
    name = text.lower().removesuffix(".")
    bare = name.removeprefix(".")
    if not bare.isascii() or not is_host_name(bare):
        raise ValueError("is no domain in ASCII (xn--…); for an address use the type dst")
    return Names(frozenset({bare, f"*.{bare}"} if name.startswith(".") else {bare}))


_domains = _set_of(_name, lambda found: of_one("hosts", Names.union(found)))


def _dstdomain(acl: Acl, draft: Draft) -> Condition:
    if "-n" not in acl.options:
        why = "squid looks up the name of a client's numeric target; here a rule about names never matches one"
        draft.differs(acl.statement, why, "name their addresses, too, if clients may ask so", f"acl {acl.name}")
    made = _domains(acl, draft)
    for each in made.regions:
        if isinstance(each.hosts, Names):
            draft.list_names.setdefault(each.hosts.domains(), acl.name)
    return made


def _one_method(text: str) -> str:
    """squid knows the usual methods in small letters, too."""
    if not _METHOD.fullmatch(text):
        raise ValueError("is no method that a rule can name")
    return text.upper()


def _proto(acl: Acl, _draft: Draft) -> Condition:
    """Clients can't ask for other protocols here."""
    known = (_PROTOCOLS.get(text.upper(), frozenset()) for text, _statement in acl.values)
    return Condition(Region.of_methods(frozenset().union(*known)))


def _proxy_auth(acl: Acl, _draft: Draft) -> Condition:
    names = {text for text, _statement in acl.values}
    if "REQUIRED" in names or not names:
        return ALWAYS
    unclear = "-i: user names are compared with regard to case" if "-i" in acl.options else ""
    return Condition(Region.of_users(names), unclear)


KINDS: dict[str, Maker] = {
    "src": _set_of(Addresses.read, lambda found: of_one("clients", Addresses.union(found))),
    "dst": _set_of(Addresses.read, lambda found: of_one("hosts", Addresses.union(found))),
    "dstdomain": _dstdomain,
    "port": _set_of(ports, lambda found: of_one("ports", Intervals.union(found))),
    "method": _set_of(_one_method, lambda found: Region.of_methods(frozenset(found))),
    "proto": _proto,
    "proxy_auth": _proxy_auth,
}
_UNKNOWN = {
    **dict.fromkeys(("url_regex", "urlpath_regex", "dstdom_regex"), "has expressions; write the hosts as dstdomain"),
    "time": "matches times; set the schedule of rules, or of accounts and plans",
    "maxconn": "counts connections; set limits.connections_per_client of the proxies",
    "max_user_ip": "counts addresses of a user; set limits.clients of the accounts",
    "arp": "matches hardware addresses; name the client's addresses by src",
    "srcdomain": "matches the client's name; name its addresses by src",
    "external": "asks a program; accounts with an HTTP back end (auth.backend) are the nearest",
}
"""Of types that are often met: why no rule has them, and what is nearest."""
