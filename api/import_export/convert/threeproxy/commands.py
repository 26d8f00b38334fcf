"""The commands of 3proxy.cfg: a row each, with the function that carries it over."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address

from api.import_export.convert.report import Effect
from api.import_export.convert.squid.others import Group
from api.import_export.convert.statements import Statement, is_address
from api.import_export.convert.threeproxy.services import start
from api.import_export.convert.threeproxy.state import Entry, State
from config.model.dns import SERVERS_MAX
from config.net.host_names import is_host_name

Converter = Callable[[State, Statement], None]

_KNOWN_AUTH = frozenset({"none", "iponly", "strong", "cache", "cacheacl", "useronly"})


def _auth(state: State, statement: Statement) -> None:
    state.auth = tuple(each.lower() for each in statement.words) or ("none",)
    for kind in state.auth:
        if kind not in _KNOWN_AUTH:
            why = f"{kind} is not known here, so all who need a password are refused"
            state.report.add(
                Effect.REFUSES, statement, why, "create accounts, or have an HTTP back end check: auth.backend"
            )
    if "useronly" in state.auth:
        why = "useronly: a user name without a password lets no client in here"
        state.report.add(Effect.REFUSES, statement, why, "set passwords of the accounts, or name clients by addresses")


def _users(state: State, statement: Statement) -> None:
    state.users += [(statement, word) for word in statement.words]


def _entry(state: State, statement: Statement) -> None:
    state.entries.append(Entry(statement, statement.name == "allow"))


def _redirect(state: State, statement: Statement) -> None:
    why = "requests can't be sent to another target; what the line matches is refused"
    state.report.add(Effect.REFUSES, statement, why, "write parent lines for upstreams, and convert again")
    state.entries.append(Entry(Statement(statement.place, statement.name, statement.words[2:]), False))


def _upstream(state: State, statement: Statement) -> None:
    if not state.entries or not state.entries[-1].allow:
        state.report.add(Effect.LOST, statement, "stands behind no allow", "put it behind the allow that it extends")
        return
    state.entries[-1].parents.append(statement)


def _flush(state: State, _statement: Statement) -> None:
    state.entries = []


def _internal(state: State, statement: Statement) -> None:
    word = (statement.words or ("",))[0]
    if not is_address(word):
        state.report.add(Effect.LOST, statement, f"{word} is no address", "set the host of the proxies")
        return
    state.internal = word


def _external(state: State, statement: Statement) -> None:
    word = (statement.words or ("",))[0]
    if not is_address(word):
        state.report.add(Effect.LOST, statement, f"{word} is no address", "set bind_address of the proxies")
        return
    same = [each for each in state.external if ip_address(each).version != ip_address(word).version]
    state.external = [] if ip_address(word).is_unspecified else [*same, word]


def _maxconn(state: State, statement: Statement) -> None:
    word = (statement.words or ("",))[0]
    if word.isdecimal() and 1 <= int(word) <= 100_000:
        state.maxconn = int(word)


def _name_server(state: State, statement: Statement) -> None:
    address, slash, _transport = (statement.words or ("",))[0].partition("/")
    servers = state.dns.setdefault("servers", [])
    host, colon, port = address.rpartition(":") if address.count(":") == 1 else (address, "", "")
    if not is_address(host) or (colon and not port.isdecimal()):
        state.report.add(Effect.LOST, statement, f"{address} is no address", "write the address of the name server")
        return
    if slash:
        state.report.add(Effect.DIFFERS, statement, "it is asked by UDP first, and by TCP where that is not enough")
    if len(servers) < SERVERS_MAX and address not in servers:
        servers.append(address)


def _name_record(state: State, statement: Statement) -> None:
    name, address = (*statement.words, "", "")[:2]
    if not is_host_name(name.lower()) or not (is_address(address) or is_host_name(address.lower())):
        state.report.add(Effect.LOST, statement, "is no name with an address", "set dns.hosts of the proxies")
    elif not is_address(address):
        state.report.add(
            Effect.LOST, statement, "a name can't stand for another name", "set its addresses in dns.hosts"
        )
    elif ip_address(address).is_unspecified:
        state.refused_names.append((statement, name.lower()))
    else:
        state.dns.setdefault("hosts", {}).setdefault(name.lower(), []).append(address)


def _bandwidth(state: State, statement: Statement) -> None:
    state.bandwidth.append(statement)


def _counter(state: State, statement: Statement) -> None:
    state.counters.append(statement)


def _tls_on(state: State, _statement: Statement) -> None:
    state.serves_tls = True


def _tls_off(state: State, _statement: Statement) -> None:
    state.serves_tls = False


def _tls_file(field: str) -> Converter:
    def convert(state: State, statement: Statement) -> None:
        path = (statement.words or ("",))[0]
        if path.startswith("/"):
            state.tls[field] = path
        else:
            instead = f"set tls.{field} of the proxies"
            state.report.add(Effect.LOST, statement, "names no file by its whole path", instead)

    return convert


def _expression(state: State, statement: Statement) -> None:
    why = "expressions are matched with what passes through, which rules can't"
    state.block(statement, why, "carry it over as rules about hosts and paths")


TABLE: dict[str, Converter] = {
    "auth": _auth,
    "users": _users,
    "allow": _entry,
    "deny": _entry,
    "redirect": _redirect,
    "parent": _upstream,
    "flush": _flush,
    "internal": _internal,
    "external": _external,
    "maxconn": _maxconn,
    "nserver": _name_server,
    "nsrecord": _name_record,
    **dict.fromkeys(("bandlimin", "bandlimout", "nobandlimin", "nobandlimout"), _bandwidth),
    **dict.fromkeys(("countin", "countout", "countall", "nocountin", "nocountout", "nocountall"), _counter),
    **dict.fromkeys(("ssl_serv", "ssl_server"), _tls_on),
    **dict.fromkeys(("ssl_noserv", "ssl_noserver"), _tls_off),
    "ssl_server_cert": _tls_file("cert_file"),
    "ssl_server_key": _tls_file("key_file"),
    "ssl_server_ca_file": _tls_file("client_ca"),
    **dict.fromkeys(("pcre", "pcre_rewrite", "pcre_extend"), _expression),
    **dict.fromkeys(("proxy", "socks", "auto"), start),
}
"""By the name of the command."""

_GROUPS = (
    Group(
        Effect.UNNEEDED,
        "daemon service pidfile log logformat logdump rotate archiver config monitor writable stacksize setuid setgid "
        "chroot nscache nscache6 authcache force noforce delimchar nolog weight backlog parentretries pcre_options "
        "counter timeouts",
        "a proxy here does it in a way of its own, or needs it not",
    ),
    Group(
        Effect.LOST,
        "tcppm udppm tlspr pop3p imapp smtpp ftppr icqpr msnpr",
        "there are proxies for HTTP and SOCKS only",
        "keep 3proxy for this service, or let clients use SOCKS",
    ),
    Group(
        Effect.LOST, "dnspr", "there is no DNS server for clients", "clients of a proxy need none: it resolves names"
    ),
    Group(Effect.LOST, "admin", "the dashboard and the API take its place", "see docs/dashboard.md"),
    Group(
        Effect.LOST,
        "connlim noconnlim",
        "connections are limited for each client, account or proxy",
        "set limits.connections_per_client or requests_per_minute of the proxies, or limits of accounts",
    ),
    Group(
        Effect.LOST,
        "ssl_mitm ssl_nomitm ssl_cli ssl_client ssl_nocli ssl_noclient ssl_certcache ssl_client_verify",
        "tunnels are never decrypted, and TLS to upstreams is a matter of each upstream (https)",
        "rules about hosts and ports hold for tunnels as well",
    ),
    Group(Effect.LOST, "system plugin dialer filtermaxsize", "other programs are not started", "start them by systemd"),
    Group(Effect.LOST, "fakeresolve", "names are always resolved, or left to upstreams", "it needs no setting"),
    Group(Effect.LOST, "radius authnserver", "no RADIUS server is asked", "an HTTP back end can: auth.backend"),
)
_OTHERS = {name: group for group in _GROUPS for name in group.names.split()}
_UNKNOWN = Group(Effect.LOST, "", "this command is unknown", "check its spelling; if it denies something, add a rule")


def carry_over(state: State, statement: Statement) -> None:
    """Carry over a command, or report why it isn't."""
    convert = TABLE.get(statement.name)
    if convert is not None:
        convert(state, statement)
        return
    group = _OTHERS.get(statement.name, _UNKNOWN)
    state.report.add(group.effect, statement, group.why, group.instead, about=statement.text[:60])
