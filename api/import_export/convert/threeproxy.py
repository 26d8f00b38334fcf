"""3proxy: `3proxy.cfg`, as version 0.9 and 1.0 read it. A row of `TABLE` for each command that is carried over."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any

from api.import_export.convert.decisions import DENY, Condition, DecisionLine, RuleWriter, Walk
from api.import_export.convert.draft import COPY, UNNEEDED, Blocked, Draft
from api.import_export.convert.regions import PLAIN, TUNNEL, Addresses, Intervals, Names, Region, of_all, ports
from api.import_export.convert.statements import FILE, Statement, UnreadableFile, is_port, named, printable
from config.net.addresses import is_plain_address
from config.net.names import is_host_name
from config.passwords import hash_password

WHOLE = 1000
"""The sum of the weights of a group of parents."""
PROTOCOLS = {"proxy": ("http", 3128), "socks": ("socks5", 1080), "auto": ("mixed", 8080)}
"""Protocol and usual port."""
_UPSTREAMS = {"http": "http", "connect": "http", "connect+": "http", "socks4": "socks4", "socks5": "socks5"}
_WITHOUT_PASSWORDS = frozenset({"none", "iponly"})
_KNOWN_AUTH = _WITHOUT_PASSWORDS | {"strong", "cache", "cacheacl"}
_OPERATIONS = {"HTTP": PLAIN, "HTTPS": TUNNEL, "HTTP_CONNECT": TUNNEL}
_WORD = re.compile(r'(\$?)((?:"(?:[^"]|"")*"?|[^\s"])+)')
_QUOTED = re.compile(r'"((?:[^"]|"")*)"?')


@dataclass(slots=True)
class ReadState:
    """What commands have set up so far, which services are started with."""

    draft: Draft
    auth: tuple[str, ...] = ("none",)
    entries: list[tuple[Statement, list[Statement]]] = field(default_factory=list)
    """Each `allow` and `deny` with the `parent` lines behind it."""
    external: list[str] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    """Of proxies."""
    servers: list[str] = field(default_factory=list)
    users: list[Statement] = field(default_factory=list)


def convert(draft: Draft) -> None:
    """Carry over the configuration. Raises `UnreadableFile`."""
    state = ReadState(draft)
    statements = draft.statements(_lines, draft.main)
    draft.carry_over((replace(each, words=tuple(_expanded(draft, each))) for each in statements), TABLE, state)
    names = [each["name"] for each in draft.proxies if each.get("auth")]
    if names:
        draft.add_accounts(_passwords(state), names)
    elif state.users:
        draft.unneeded(state.users[0], "no service asks for passwords, so no accounts are made")


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text.splitlines(), 1):
        words = [] if line[:1] in ("#", " ", "\t") else _words(line)
        if words[:1] == ["end"]:
            return
        if words:
            yield number, words


def _words(line: str) -> list[str]:
    """Words, of which parts may be in quotation marks; names of files with words have `FILE` before them."""
    return [
        (FILE if of_file else "") + printable(_QUOTED.sub(lambda part: part[1].replace('""', '"'), word))
        for of_file, word in _WORD.findall(line)
    ]


def _expanded(draft: Draft, statement: Statement) -> Iterator[str]:
    """The words with those of files (`$FILE`) in their places."""
    for word in statement.words:
        if not word.startswith(FILE):
            yield word
            continue
        try:
            text = draft.files.read(draft.files.find(word.removeprefix(FILE), statement.place.file))
        except UnreadableFile as error:
            if statement.name in ("allow", "deny", "parent"):
                draft.missing(statement, str(error))
            else:
                draft.lost(statement, f"{error}; its words are missing", COPY)
            continue
        yield from (each for line in text.splitlines() for each in _words(line))


def _passwords(state: ReadState) -> Iterator[tuple[Statement, str, str]]:
    """Names and hashes. Passwords in the clear are hashed: the document has none."""
    for statement in state.users:
        for word in statement.words:
            name, _, rest = word.partition(":")
            kind, _, password = rest.partition(":")
            clear = kind == "CL" and 0 < len(password) <= 128
            yield replace(statement, words=(name,)), name, hash_password(password) if clear else password


# --- commands -----------------------------------------------------------------------------------------------------


def _auth(state: ReadState, statement: Statement) -> None:
    state.auth = tuple(each.lower() for each in statement.words) or ("none",)
    if unknown := sorted(set(state.auth) - _KNOWN_AUTH):
        why = f"{', '.join(unknown)}: passwords are checked here in each case, so some clients are refused"
        instead = "create accounts, name clients by addresses, or have an HTTP back end check: auth.backend"
        state.draft.refuses(statement, why, instead)


def _upstream_line(state: ReadState, statement: Statement) -> None:
    if state.entries and state.entries[-1][0].name == "allow":
        state.entries[-1][1].append(statement)
    else:
        state.draft.lost(statement, "stands behind no allow", "put it behind the allow that it extends")


def _address(state: ReadState, statement: Statement) -> None:
    """`internal` and `external`, which may have an address of each family; the last line counts."""
    word = statement.first
    if not is_plain_address(word):
        state.draft.lost(statement, f"{word} is no address", "set host and bind_address of the proxies")
    elif statement.name == "internal":
        state.fields["host"] = word
    else:
        others = [each for each in state.external if ip_address(each).version != ip_address(word).version]
        state.external = [] if ip_address(word).is_unspecified else [*others, word]


def _maxconn(state: ReadState, statement: Statement) -> None:
    if statement.first.isdecimal() and 1 <= int(statement.first) <= 100_000:
        state.fields["settings"] = {"max_connections": int(statement.first)}
    else:
        state.draft.lost(statement, "is no number of connections", "set settings.max_connections of the proxies")


def _service(state: ReadState, statement: Statement) -> None:
    """A proxy with the state so far."""
    draft = state.draft
    protocol, port = PROTOCOLS[statement.name]
    proxy: dict[str, Any] = {"name": "", "host": "0.0.0.0", "port": port, "protocol": protocol}  # noqa: S104
    proxy |= state.fields
    if state.external:
        proxy["bind_address"] = state.external if len(state.external) > 1 else state.external[0]
    if state.servers:
        proxy["dns"] = {"servers": list(state.servers)}
    if protocol == "http":
        proxy["headers"] = {"forwarded": "rfc7239"}
    for word in statement.words:
        _option(state, statement, proxy, word)
    if statement.name == "socks":
        draft.differs(statement, "SOCKS4 is refused at a socks5 proxy", "make it mixed if there are such clients")
    if asks := bool(set(state.auth) - _WITHOUT_PASSWORDS):
        proxy["auth"] = {"enabled": True}
        if set(state.auth) & _WITHOUT_PASSWORDS:
            why = "clients that were allowed without a password need one here"
            draft.refuses(statement, why, "make a proxy at another port for them, without auth")
    proxy["name"] = draft.proxy_name(f"3proxy {statement.name} {proxy['port']}")
    if rules := _rules(state, statement, asks):
        proxy["policy"] = draft.policy_of(rules, "3proxy")
    draft.proxies.append(proxy)


def _option(state: ReadState, statement: Statement, proxy: dict[str, Any], word: str) -> None:
    flag, value = word[:2], word[2:]
    if flag == "-p" and is_port(value):
        proxy["port"] = int(value)
    elif flag in ("-i", "-e") and is_plain_address(value):
        proxy["host" if flag == "-i" else "bind_address"] = value
    elif flag == "-a":
        if "headers" in proxy:
            proxy["headers"] = {"forwarded": "off"}
    elif word in ("-4", "-6", "-46", "-64"):
        proxy["dns"] = {**proxy.get("dns", {}), "prefer": f"ipv{word[1]}"}
        state.draft.differs(statement, f"{word}: where a name has no address of the family, the other one is used")
    elif flag == "-H":
        why = "-H: the addresses of clients are in PROXY headers, which anyone who reaches the port could send"
        state.draft.block(statement, why, "set accept_proxy_protocol, and have a firewall let only the balancer in")
    elif flag not in ("-n", "-l", "-s", "-g", "-o"):
        state.draft.lost(statement, f"the option {word} is not carried over", "see the fields of a proxy")


_BLOCKED = Blocked("services behind it refuse, ask for or change what can't be carried over")
_OF_3PROXY = """
archiver authcache chroot config counter daemon log logformat monitor nscache nscache6 pidfile rotate service setgid
setuid stacksize timeouts
"""

TABLE: dict[str, Callable[[ReadState, Statement], None] | str] = {
    "auth": _auth,
    "users": lambda state, statement: state.users.append(statement),
    **dict.fromkeys(("allow", "deny"), lambda state, statement: state.entries.append((statement, []))),
    "parent": _upstream_line,
    "flush": lambda state, _statement: state.entries.clear(),
    **dict.fromkeys(("internal", "external"), _address),
    "maxconn": _maxconn,
    "nserver": lambda state, line: state.draft.add_server(line, line.first.strip("[]"), state.servers),
    **dict.fromkeys(PROTOCOLS, _service),
    **dict.fromkeys(
        ("redirect", "nsrecord", "ssl_serv", "ssl_server", "pcre", "pcre_rewrite", "pcre_extend"), _BLOCKED
    ),
    **dict.fromkeys(("bandlimin", "bandlimout", "connlim"), "set limits of the proxies or accounts"),
    **dict.fromkeys(("countin", "countout", "countall"), "set a quota of the accounts"),
    "include": "no file matches: copy them here, or name their place by --root",
    "admin": "the dashboard and the API take its place: docs/dashboard.md",
    **dict.fromkeys(_OF_3PROXY.split(), UNNEEDED),
}
"""By the name of the command: what carries it over, or why it isn't (`Draft.carry_over`)."""


# --- policies -----------------------------------------------------------------------------------------------------


def _rules(state: ReadState, service: Statement, asks: bool) -> list[dict[str, Any]]:
    """The rules of a service; `asks`: clients need a password."""
    draft, writer = state.draft, RuleWriter(state.draft)
    lines = [_line(draft, each, service.name, asks) for each, _behind in state.entries]
    parents = {id(each): found for each, found in state.entries}

    def leaf(region: Region, line: DecisionLine | None, _exact: bool) -> None:
        if line is None:
            writer.add("no entry matches", region, DENY)
        else:
            allows = line.statement.name == "allow"
            action = _action(draft, parents[id(line.statement)]) if allows else DENY
            writer.add(named(line.statement, draft.main), region, action)

    def fill() -> None:
        if state.auth[0] != "none" and lines:
            Walk(draft, lines, leaf, []).run()

    return writer.rules(fill, service)


def _action(draft: Draft, parents: Sequence[Statement]) -> dict[str, Any]:
    """Directly without parents, else by a group of upstreams."""
    if not parents:
        return {"use": "direct"}
    upstreams = [found for each in parents if (found := _upstream(each.words)) is not None]
    whole = len(upstreams) == len(parents)
    if not whole or (len(parents) > 1 and sum(int(each.first) for each in parents) > WHOLE):
        why = "it is no upstream that is known here, or a chain of them; what the allow before it matches is refused"
        draft.refuses(parents[0], why, "use one group of upstreams, and convert again")
        return DENY
    policy = "round_robin" if len(parents) > 1 else "failover"
    return {"use": draft.pool_of(upstreams, policy, f"upstreams-line-{parents[0].place.line}")}


def _upstream(words: Sequence[str]) -> dict[str, Any] | None:
    """`parent WEIGHT TYPE HOST PORT USER PASSWORD`; None for what is no upstream here."""
    share, kind, host, port, user, password = (*words, *[""] * 6)[:6]
    if kind not in _UPSTREAMS or not share.isdecimal() or not is_port(port):
        return None
    if user == "*" or not (is_host_name(host) or (is_plain_address(host) and not ip_address(host).is_unspecified)):
        return None
    upstream: dict[str, Any] = {"protocol": _UPSTREAMS[kind], "host": host.lower(), "port": int(port)}
    upstream["weight"] = min(max(round(int(share) / 10), 1), 100)
    if user:
        upstream["auth"] = {"username": user, **({"password": password} if password and kind != "socks4" else {})}
    return upstream


def _line(draft: Draft, statement: Statement, service: str, asks: bool) -> DecisionLine:
    """`allow USERS SOURCES TARGETS PORTS OPERATIONS DAYS TIMES`. Unless it `asks`, entries with users never match."""
    makers: tuple[Callable[[list[str]], tuple[Region, ...]], ...] = (
        Region.of_users if asks else lambda _words: (),
        lambda words: of_all(Region(clients=Addresses.union(map(Addresses.read, words)))),
        _targets,
        lambda words: of_all(Region(ports=Intervals.union(map(ports, words)))),
        lambda words: _operations(words, service),
    )
    found = []
    for index, text in enumerate(statement.words):
        words = [each for each in text.split(",") if each]
        if not words or "*" in words:
            continue
        try:
            found.append(Condition(makers[min(index, len(makers) - 1)](words)))
        except ValueError as error:
            found.append(Condition(unclear=f"{text} {error}"))
    return DecisionLine.of(draft, statement, statement.name == "deny", found)


def _targets(words: list[str]) -> tuple[Region, ...]:
    numeric = [each for each in words if ":" in each or re.fullmatch(r"[0-9][0-9./-]*", each)]
    names = [_name(each.lower()) for each in words if each not in numeric]
    return of_all(Region(hosts=Addresses.union(map(Addresses.read, numeric))), Region(hosts=Names.union(names)))


def _name(word: str) -> Names:
    if not is_host_name(word.removeprefix("*.")):
        raise ValueError("is no name or *.NAME; rules have no patterns inside of names")
    return Names(frozenset({word}))


def _operations(words: list[str], service: str) -> tuple[Region, ...]:
    """Those of HTTP, and CONNECT of SOCKS where there is no other; also days and times, which are no operations."""
    if service != "proxy" or not set(words) <= _OPERATIONS.keys():
        raise ValueError("is checked by no rule (of operations HTTP and HTTPS are, at proxy; no days and times)")
    return Region.of_methods(frozenset().union(*(_OPERATIONS[each] for each in words)))
