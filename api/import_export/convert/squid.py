"""squid: `squid.conf`, as version 5 and 6 read it. A row of `TABLE` for each directive that is carried over."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_address
from typing import Any

from pydantic import TypeAdapter

from api.import_export.convert.decisions import DENY, DecisionLine, RuleWriter, Walk
from api.import_export.convert.draft import COPY, UNNEEDED, Blocked, Draft, password_entries
from api.import_export.convert.regions import EVERYTHING, Region
from api.import_export.convert.squid_acls import Acls
from api.import_export.convert.statements import (
    FILE,
    Statement,
    UnreadableFile,
    is_port,
    named,
    passes,
    plain,
    printable,
)
from config.model.object_fields import HeaderName
from config.net.addresses import is_plain_address
from config.net.names import canonical_name

LINE_MAX = 1024 * 1024
XFF = "X-Forwarded-For"
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')
_HEADER: TypeAdapter[str] = TypeAdapter(HeaderName)
_OTHER_WAYS = frozenset({"intercept", "transparent", "tproxy", "accel", "vhost", "require-proxy-header"})
_OF_CACHES = frozenset({"no-query", "no-digest", "no-netdb-exchange", "no-delay", "proxy-only", "default"})
DIRECT = {"use": "direct"}
MODES = {"sourcehash": "sticky", "round-robin": "round_robin"}
"""Options of upstreams with the upstream policy of each, in squid's order: the first that any of them has chooses."""

Next = Callable[[Region], None]


@dataclass(slots=True)
class Peer:
    """A `cache_peer`, as an upstream; `mode` is the option by which squid chooses it among several."""

    statement: Statement
    upstream: dict[str, Any]
    mode: str = ""
    access: list[Statement] = field(default_factory=list)


@dataclass(slots=True)
class Squid:
    """What the directives of a configuration say, and the policy of all proxies that is made of it."""

    draft: Draft
    acls: Acls
    writer: RuleWriter
    lists: dict[str, list[Statement]] = field(default_factory=dict)
    peers: dict[str, Peer] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)
    """Addresses that all requests leave from, one of each family."""
    switches: dict[str, str] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    """Of every proxy."""
    removed_headers: dict[str, None] = field(default_factory=dict)
    password_files: list[Statement] = field(default_factory=list)
    _label: str = ""
    _decided: list[Region] = field(default_factory=list)

    def rules(self) -> list[dict[str, Any]]:
        """All rules. More than a policy may have: one rule, which refuses everything."""
        access = self.lists.setdefault("http_access", [])
        deny = partial(self._add, action=DENY)
        fill = partial(self._choose, access, EVERYTHING, self._route, deny)
        return self.writer.rules(fill, access[0] if access else None)

    def _choose(
        self, listed: list[Statement], region: Region, allowed: Next, denied: Next, strict: str = "deny"
    ) -> None:
        """Walk through `NAME allow|deny ACL…`. Without a line that matches, the opposite of the last one holds.

        Lines with `strict` may match more than they say. Rules are named by the lines of `http_access`.
        """
        lines, find = list[DecisionLine](), self.acls.condition
        default = bool(listed) and listed[-1].first == "deny"
        for each in listed:
            if each.first in ("allow", "deny"):
                parts = (replace(find(name.removeprefix("!")), negated=name.startswith("!")) for name in each.words[1:])
                lines.append(DecisionLine.of(self.draft, each, each.first == strict, parts))
            else:
                self.draft.lost(each, "says neither allow nor deny", "remove the line")

        def leaf(part: Region, line: DecisionLine | None, exact: bool) -> None:
            if listed is self.lists["http_access"]:
                self._label = "no line matches" if line is None else named(line.statement, self.draft.main)
            allows = default if line is None else line.statement.first == "allow"
            (partial(self._add, action=DENY) if not exact else allowed if allows else denied)(part)

        Walk(self.draft, lines, leaf, self._decided).run(region)

    # --- the way ---

    def _route(self, region: Region) -> None:
        """Directly, or by which upstreams. Without lines of a list no request is in it."""
        always, never = (self.lists.get(name, []) for name in ("always_direct", "never_direct"))
        only = partial(self._by_peers, only=True)
        perhaps = partial(self._choose, never, allowed=only, denied=self._by_peers, strict="allow")
        self._choose(always, region, partial(self._add, action=DIRECT), perhaps)

    def _by_peers(self, region: Region, chosen: tuple[Peer, ...] = (), index: int = 0, only: bool = False) -> None:
        """The upstreams that their own lists allow, one after another; `only`: without one it fails."""
        if index == len(self.peers):
            self._use(region, chosen, only)
            return
        peer = list(self.peers.values())[index]
        go_on = partial(self._by_peers, index=index + 1, only=only)
        with_it, without = partial(go_on, chosen=(*chosen, peer)), partial(go_on, chosen=chosen)
        if peer.access:
            self._choose(peer.access, region, with_it, without)
        else:
            with_it(region)

    def _use(self, region: Region, chosen: tuple[Peer, ...], only: bool) -> None:
        """Without an upstream squid goes directly, unless it must not: there it fails."""
        if chosen and not only:
            why = "without never_direct squid goes directly for what it can't cache, and when no upstream is up"
            self.draft.differs(chosen[0].statement, why, "change the rules that use upstreams: here they do for all")
        if chosen:
            self._add(region, {"use": self._pool(chosen)})
        elif only:
            why = "no cache_peer takes some requests that must not go directly: squid fails (502), a rule refuses (403)"
            self.draft.differs(self.lists["never_direct"][0], why)
            self._add(region, {**DENY, "reason": "no upstream may be used"})
        else:
            self._add(region, DIRECT)

    def _pool(self, peers: tuple[Peer, ...]) -> str:
        """What a rule says as `use` where squid has these to choose from."""
        modes = {each.mode for each in peers}
        if len(modes) > 1:
            why = "squid asks those with round-robin or sourcehash first, a pool has one way for all of its upstreams"
            self.draft.differs(peers[0].statement, why, "see the pools of the document")
        policy = next((policy for mode, policy in MODES.items() if mode in modes), "failover")
        name = "-".join(("upstreams", *(str(each.upstream["name"]) for each in peers)))
        return self.draft.pool_of([each.upstream for each in peers], policy, name)

    def _add(self, region: Region, action: dict[str, Any]) -> None:
        """With upstreams the way is in the name, too: a line may have several."""
        use = str(action["use"])
        by = f", {use.removeprefix('pool:')}" if self.peers and use != "deny" else ""
        by = ", no upstream" if "reason" in action else by
        self.writer.add(f"{self._label}{by}", region, action)


def convert(draft: Draft) -> None:
    """Carry over the configuration. Raises `UnreadableFile`."""
    squid = Squid(draft, Acls(draft), RuleWriter(draft))
    draft.carry_over(draft.statements(_lines, draft.main), TABLE, squid)
    _finish(squid)
    policy = draft.policy_of(squid.rules(), "squid")
    for proxy in draft.proxies:
        proxy |= {"policy": policy, **squid.fields}
    squid.acls.report_unused()


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """The words of lines, with continued ones in one, without comments and empty lines."""
    waiting, first, size = list[str](), 0, 0
    for number, raw in enumerate([*text.splitlines(), ""], 1):
        part = raw.strip()
        if part.startswith("#"):
            continue
        first = first or number
        size += len(part)
        if part.endswith("\\") and size < LINE_MAX:
            waiting.append(part[:-1])
            continue
        if words := _words("".join([*waiting, part])):
            yield first, words
        waiting, first, size = [], 0, 0


def _words(line: str) -> list[str]:
    """Quoted words, which may name files of parameters, have `FILE` before them."""
    words: list[str] = []
    for match in _WORD.finditer(line):
        if match[0].startswith("#"):
            break
        words.append(printable(match[2]) if match[1] is None else FILE + printable(match[1]))
    return words


def _finish(squid: Squid) -> None:
    """What follows from all lines together: fields of every proxy, and accounts."""
    draft, access = squid.draft, squid.lists.get("http_access", [])
    if not access:
        draft.differs(None, "without a line squid refuses everything, and so do the rules", "add lines", "http_access")
    squid.fields["headers"] = _headers(squid)
    if squid.sources:
        squid.fields["bind_address"] = squid.sources if len(squid.sources) > 1 else squid.sources[0]
    lines = [line for each in squid.lists.values() for line in each]
    if not any(_needs_account(squid, line) for line in lines):
        return
    squid.fields["auth"] = {"enabled": True}
    names = [proxy["name"] for proxy in draft.proxies]
    for statement in squid.password_files:
        found = draft.files.find(plain(statement.words[-1]), str(draft.main))
        try:
            draft.add_accounts(password_entries(draft.files.read(found), str(found)), names)
        except UnreadableFile as error:
            draft.refuses(statement, f"{error}; so no account has a password", COPY)
    if "auth_param" not in squid.switches:
        draft.refuses(None, "no line says how passwords are checked", "create accounts for the proxies", "auth_param")
    for line in access:  # squid asks for credentials at the line that needs them, a proxy here before the first
        if _needs_account(squid, line):
            return
        if line.first == "allow":
            why = "clients that this line allows without a password need one here"
            draft.refuses(line, why, "make a proxy at another port for them, without auth")


def _needs_account(squid: Squid, statement: Statement) -> bool:
    return bool(squid.acls.kinds(statement.words[1:]) & {"proxy_auth", "proxy_auth_regex", "max_user_ip"})


def _headers(squid: Squid) -> dict[str, Any]:
    """squid adds the client's address unless it is forbidden to; a proxy here only if it is asked to."""
    mode, via = squid.switches.get("forwarded_for", "on"), squid.switches.get("via")
    own = XFF.lower() in map(canonical_name, squid.removed_headers)
    if mode in ("delete", "truncate"):
        squid.removed_headers[XFF] = None
    if mode == "off":
        squid.draft.differs(None, f"squid sends {XFF}: unknown, and a proxy here adds no field", "", "forwarded_for")
    forwarded = "x-forwarded-for" if mode in ("on", "truncate") and not own else "off"
    removed = {"remove": list(squid.removed_headers)} if squid.removed_headers else {}
    return {**({"via": via} if via in ("on", "off") else {}), "forwarded": forwarded, **removed}


# --- directives ---------------------------------------------------------------------------------------------------


def _list(squid: Squid, statement: Statement) -> None:
    squid.lists.setdefault(statement.name, []).append(statement)


def _switch(squid: Squid, statement: Statement) -> None:
    squid.switches[statement.name] = plain(statement.first)


def _second_list(squid: Squid, statement: Statement) -> None:
    if statement.words in (("allow", "all"), ("allow",)):
        squid.draft.unneeded(statement, "allows what http_access does")
    else:
        squid.draft.block(statement, "a second list beside http_access has to allow requests", "add it to http_access")


def _port(squid: Squid, statement: Statement) -> None:
    """A proxy for one line, unless clients can't be served in that way here."""
    draft = squid.draft
    address, *options = map(plain, statement.words or ("",))
    given = {key: value for key, _, value in (each.partition("=") for each in options)}
    if unfit := sorted(given.keys() & _OTHER_WAYS):
        why = f"{unfit[0]}: clients don't name the proxy, or stand behind a balancer; no proxy is made for it"
        draft.lost(statement, why, "have clients name the proxy (PAC file); for balancers: accept_proxy_protocol")
        return
    host, colon, number = address.rpartition(":")
    host = {"": "0.0.0.0", "localhost": "127.0.0.1"}.get(host, host.strip("[]"))  # noqa: S104 - as squid does
    if not is_port(number) or not is_plain_address(host):
        draft.lost(statement, f"{address} has no port, or a name", "name an address and a port")
        return
    if not colon:
        draft.differs(statement, "the proxy listens at addresses of IPv4", 'set "host": "::" if clients come by IPv6')
    name = draft.proxy_name(f"squid {given.pop('name', '') or number}")
    for key in given:
        draft.lost(statement, f"the option {key} is not carried over", "see the fields of a proxy")
    draft.proxies.append({"name": name, "host": host, "port": int(number), "protocol": "http"})


def _peer(squid: Squid, statement: Statement) -> None:
    """`cache_peer HOST TYPE PORT ICP-PORT OPTIONS…`."""
    host, kind, port, _icp, *options = (*map(plain, statement.words), "", "", "", "")[: max(4, len(statement.words))]
    given = {key: value for key, _, value in (each.partition("=") for each in options)}
    name = given.pop("name", host)
    if kind != "parent" or "originserver" in given:
        squid.draft.unneeded(statement, "a sibling has a cache, an originserver is behind a reverse proxy")
        return
    if not is_port(port) or name in squid.peers:
        squid.draft.lost(statement, "has no port, or the name of another", "complete the line, with name= of its own")
        return
    upstream: dict[str, Any] = {"protocol": "http", "host": host.lower(), "port": int(port), "name": name[:100]}
    peer = squid.peers[name] = Peer(statement, upstream)
    for key, value in given.items():
        if key in MODES:
            peer.mode = key
        elif key in ("ssl", "tls"):
            upstream["protocol"] = "https"
        elif key == "weight" and value.isdecimal():
            upstream["weight"] = min(max(int(value), 1), 100)
        elif key == "login" and ":" in value and not value.startswith("*"):
            user, _, password = value.partition(":")
            upstream["auth"] = {"username": user, **({"password": password} if password else {})}
        elif key not in _OF_CACHES:
            squid.draft.lost(statement, f"the option {key} is not carried over", "see docs/how-to/upstreams.md")


def _peer_access(squid: Squid, statement: Statement) -> None:
    """`cache_peer_access NAME allow|deny ACL…`."""
    peer = squid.peers.get(plain(statement.first))
    if peer is None:
        squid.draft.unneeded(statement, f"no cache_peer {plain(statement.first)} was carried over")
        return
    peer.access.append(Statement(statement.place, statement.name, statement.words[1:]))


def _source(squid: Squid, statement: Statement) -> None:
    """`tcp_outgoing_address ADDRESS` for all requests."""
    address, *acls = map(plain, statement.words or ("",))
    families = {ip_address(each).version for each in squid.sources}
    if set(acls) - {"all"}:
        squid.draft.lost(statement, "holds for some access lists", "set egress in the rules of a policy for them")
    elif not is_plain_address(address) or ip_address(address).is_unspecified or ip_address(address).version in families:
        squid.draft.lost(statement, "names no address, or another one", "write an address of this machine")
    else:
        squid.sources.append(address)
        squid.draft.differs(statement, "targets without an address of its family are refused with 502")


def _name_servers(squid: Squid, statement: Statement) -> None:
    servers = squid.fields.setdefault("dns", {}).setdefault("servers", [])
    for word in map(plain, statement.words):
        squid.draft.add_server(statement, word, servers)


def _auth(squid: Squid, statement: Statement) -> None:
    """`auth_param SCHEME PARAMETER …`."""
    scheme, parameter, program, *rest = (*map(plain, statement.words), "", "", "")
    if parameter != "program":
        why = "a proxy here has its own way of asking for credentials, and compares user names with regard to case"
        squid.draft.unneeded(statement, why, about=f"auth_param {scheme} {parameter}")
        return
    squid.switches["auth_param"] = scheme
    if scheme == "basic" and program.rpartition("/")[2] in ("basic_ncsa_auth", "ncsa_auth") and any(rest):
        squid.password_files.append(statement)
        return
    why = f"{scheme} by {program or 'nothing'}: the program can't be asked, so all who need a password are refused"
    instead = "clients use Basic here: import accounts, or have an HTTP back end check passwords (auth.backend)"
    squid.draft.refuses(statement, why, instead)


def _header(squid: Squid, statement: Statement) -> None:
    """`request_header_access NAME deny all`; a field that is allowed stays as it is."""
    name, *rest = statement.words or ("",)
    if [name.lower(), *rest] == ["via", "deny", "all"]:
        squid.switches["via"] = "off"
    elif rest == ["deny", "all"] and name not in ("All", "Other") and passes(_HEADER.validate_python, name):
        squid.removed_headers[name] = None
    elif rest != ["allow", "all"]:
        why = "fields are removed by their names, from all requests, and none of those that a proxy sets itself"
        squid.draft.lost(statement, why, "name each field: headers.remove, or a rule of the policy with headers")


_PROGRAM = Blocked("programs and other services decide by it which requests are allowed, and none can be asked here")
_LIMITS = "set limits of the proxies or accounts"
_OF_SQUID = """
access_log cache cache_dir cache_effective_group cache_effective_user cache_log cache_mem cache_mgr cache_store_log
cache_swap_high cache_swap_low coredump_dir debug_options delay_pools error_directory external_acl_type ftp_user
hierarchy_stoplist icp_access icp_port logfile_rotate logformat maximum_object_size maximum_object_size_in_memory
minimum_object_size pid_filename quick_abort_max quick_abort_min quick_abort_pct refresh_pattern shutdown_lifetime
snmp_port strip_query_terms unique_hostname url_rewrite_children visible_hostname workers
"""

TABLE: dict[str, Callable[[Squid, Statement], None] | str] = {
    "acl": lambda squid, statement: squid.acls.add(statement),
    **dict.fromkeys(("http_access", "always_direct", "never_direct"), _list),
    **dict.fromkeys(("http_reply_access", "miss_access", "adapted_http_access"), _second_list),
    "http_port": _port,
    "cache_peer": _peer,
    "cache_peer_access": _peer_access,
    "tcp_outgoing_address": _source,
    **dict.fromkeys(("via", "forwarded_for"), _switch),
    "dns_nameservers": _name_servers,
    "auth_param": _auth,
    "request_header_access": _header,
    **dict.fromkeys(("url_rewrite_program", "redirect_program", "adaptation_access", "icap_access"), _PROGRAM),
    "follow_x_forwarded_for": Blocked("access lists hold for addresses in X-Forwarded-For, which is not believed here"),
    **dict.fromkeys(("if", "else"), Blocked("conditions are not known: lines of both branches are read")),
    "configuration_includes_quoted_values": Blocked("quoted words are taken for names of files"),
    **dict.fromkeys(("http_access2", "cache_peer_domain"), Blocked("the word is older than those that are known here")),
    **dict.fromkeys(("delay_class", "delay_parameters", "delay_access", "client_ip_max_connections"), _LIMITS),
    **dict.fromkeys(("request_header_add", "request_header_replace"), "set headers.set of the proxies"),
    "https_port": "make a proxy of the protocol https, with tls.cert_file, tls.key_file and tls.client_ca",
    "include": "no file matches: copy them here, or name their place by --root",
    "deny_info": "a rule's reason is a sentence that the client of a refused request reads",
    "hosts_file": "name hosts in dns.hosts of the proxies",
    **dict.fromkeys(_OF_SQUID.split(), UNNEEDED),
}
"""By the name of the directive: what carries it over, or why it isn't (`Draft.carry_over`)."""
