"""The directives of squid.conf: a row each, with the function that carries it over."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address

from api.import_export.convert.report import Effect
from api.import_export.convert.squid import bandwidth, header_fields, listeners, peers, sources
from api.import_export.convert.squid.gathered import ACCESS, Gathered
from api.import_export.convert.squid.lexer import FILE, plain
from api.import_export.convert.squid.others import OTHERS, UNKNOWN
from api.import_export.convert.statements import Statement
from config.model.dns import SERVERS_MAX
from config.net.dns_servers import TTL_MAX

Converter = Callable[[Gathered, Statement], None]

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_FILTER = "it decides which requests are allowed, and no program can be asked here"
_FILTER_INSTEAD = "carry its lists over as lists and rules of the policy"


def _acl(gathered: Gathered, statement: Statement) -> None:
    gathered.acls.add(statement)


def _list(gathered: Gathered, statement: Statement) -> None:
    gathered.lists.setdefault(statement.name, []).append(statement)


def _renamed(name: str) -> Converter:
    def convert(gathered: Gathered, statement: Statement) -> None:
        gathered.lists.setdefault(name, []).append(Statement(statement.place, name, statement.words))

    return convert


def _switch(gathered: Gathered, statement: Statement) -> None:
    gathered.switches[statement.name] = plain((statement.words or ("",))[0])


def _name_servers(gathered: Gathered, statement: Statement) -> None:
    servers = gathered.fields.setdefault("dns", {}).setdefault("servers", [])
    for word in map(plain, statement.words):
        try:
            ip_address(word)
        except ValueError:
            gathered.report.add(Effect.LOST, statement, f"{word} is no address", "write the address of the name server")
            continue
        if len(servers) < SERVERS_MAX and word not in servers:
            servers.append(word)


def _ttl(field: str) -> Converter:
    def convert(gathered: Gathered, statement: Statement) -> None:
        number, unit = (*statement.words, "", "")[:2]
        seconds = _UNITS.get((unit or "second").removesuffix("s"), 0)
        if not number.isdecimal() or not seconds:
            gathered.report.add(Effect.LOST, statement, "is no time", f"set dns.{field} of the proxies, in seconds")
            return
        gathered.fields.setdefault("dns", {})[field] = min(int(number) * seconds, TTL_MAX)

    return convert


def _connections(gathered: Gathered, statement: Statement) -> None:
    word = plain((statement.words or ("",))[0])
    if word.isdecimal():
        gathered.fields.setdefault("limits", {})["connections_per_client"] = int(word)


def _auth(gathered: Gathered, statement: Statement) -> None:
    """`auth_param SCHEME PARAMETER …`."""
    scheme, parameter, *rest = (*map(plain, statement.words), "", "")
    if parameter == "program":
        gathered.schemes.add(scheme)
        _program(gathered, statement, scheme, [each for each in rest if each])
    elif parameter == "casesensitive" and rest[:1] == ["off"]:
        gathered.report.add(Effect.DIFFERS, statement, "user names are compared with regard to case")
    else:
        why = "a proxy here has its own way of asking for credentials"
        gathered.report.add(Effect.UNNEEDED, statement, why, about=f"auth_param {scheme} {parameter}")


def _program(gathered: Gathered, statement: Statement, scheme: str, command: list[str]) -> None:
    program = command[0].rpartition("/")[2] if command else ""
    if scheme == "basic" and program in ("basic_ncsa_auth", "ncsa_auth") and len(command) > 1:
        gathered.password_files.append((statement, command[-1]))
        return
    why = f"{scheme} by {program or 'nothing'}: the program can't be asked, so all who need a password are refused"
    instead = "import the accounts (proxyfleet accounts import), or have an HTTP back end check them: auth.backend"
    if scheme != "basic":
        instead = f"clients use Basic here, at best inside TLS (https proxy); {instead}"
    gathered.report.add(Effect.REFUSES, statement, why, instead)


def _rewriter(gathered: Gathered, statement: Statement) -> None:
    if statement.words and plain(statement.words[0]) != "none":
        gathered.block(statement, _FILTER, _FILTER_INSTEAD)


def _adaptation(gathered: Gathered, statement: Statement) -> None:
    if "allow" in statement.words[:2]:
        instead = "use the service as an upstream, if it is a proxy, too, and delete the rule"
        gathered.block(statement, "contents are not sent to other services, such as virus scanners", instead)


def _forwarded_clients(gathered: Gathered, statement: Statement) -> None:
    if statement.words[:1] == ("allow",):
        why = "access lists are about addresses in X-Forwarded-For, which a proxy here never believes"
        instead = "have the proxy in front send PROXY headers (accept_proxy_protocol), and delete the rule"
        gathered.block(statement, why, instead)


def _proxy_header_access(gathered: Gathered, statement: Statement) -> None:
    why = "a proxy here accepts PROXY headers from all who can reach its port"
    gathered.report.add(Effect.LOST, statement, why, "have a firewall let only the balancer in")


TABLE: dict[str, Converter] = {
    "acl": _acl,
    **dict.fromkeys((*ACCESS, "always_direct", "never_direct"), _list),
    "http_access2": _renamed("adapted_http_access"),
    "http_port": listeners.add_port,
    "https_port": listeners.add_port,
    "cache_peer": peers.add_peer,
    "cache_peer_access": peers.add_access,
    **dict.fromkeys(("prefer_direct", "nonhierarchical_direct", "via", "forwarded_for"), _switch),
    **dict.fromkeys(("delay_class", "delay_parameters", "delay_access"), bandwidth.add_statement),
    "tcp_outgoing_address": sources.add_source,
    "dns_nameservers": _name_servers,
    "positive_dns_ttl": _ttl("max_ttl"),
    "negative_dns_ttl": lambda gathered, statement: gathered.report.add(
        Effect.UNNEEDED, statement, "negative responses are kept as long as their zone says"
    ),
    "client_ip_max_connections": _connections,
    "auth_param": _auth,
    "request_header_access": header_fields.deny,
    "request_header_replace": header_fields.replace,
    "request_header_add": header_fields.add,
    **dict.fromkeys(("url_rewrite_program", "redirect_program", "location_rewrite_program"), _rewriter),
    **dict.fromkeys(("url_rewrite_access", "redirector_access"), lambda _gathered, _statement: None),
    **dict.fromkeys(("adaptation_access", "icap_access"), _adaptation),
    "follow_x_forwarded_for": _forwarded_clients,
    "proxy_protocol_access": _proxy_header_access,
}
"""By the name of the directive."""


def carry_over(gathered: Gathered, statement: Statement) -> None:
    """Carry over a statement, or report why it isn't."""
    convert = TABLE.get(statement.name)
    if convert is not None:
        convert(gathered, statement)
        return
    group = OTHERS.get(statement.name, UNKNOWN)
    about = statement.name if FILE in statement.text else statement.text[:60]
    gathered.report.add(group.effect, statement, group.why, group.instead, about=about)
