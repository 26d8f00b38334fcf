"""`http_port` and `https_port`, as proxies."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from api.import_export.convert.report import Effect
from api.import_export.convert.squid.acls import Listener
from api.import_export.convert.squid.gathered import Gathered, Port
from api.import_export.convert.squid.lexer import plain
from api.import_export.convert.statements import Statement

_OTHER_WAYS = {
    "intercept": "takes connections that the network redirects, which needs no client settings",
    "transparent": "takes connections that the network redirects, which needs no client settings",
    "tproxy": "takes connections that the network redirects, with the client's own address",
    "accel": "is a reverse proxy in front of web servers",
    "vhost": "is a reverse proxy in front of web servers",
}
_IGNORED_TEXT = """
    connection-auth disable-pmtu-discovery ignore-cc no-vhost act-as-origin allow-direct tcpkeepalive
    options cipher tls-dh dhparams generate-host-certificates dynamic_cert_mem_cache_size sslcontext
    tls-min-version version worker-queues protocol defaultsite vport
"""
_IGNORED = frozenset(_IGNORED_TEXT.split())
_TLS = {
    "tls-cert": "cert_file",
    "cert": "cert_file",
    "tls-key": "key_file",
    "key": "key_file",
    "clientca": "client_ca",
    "tls-clientca": "client_ca",
    "crlfile": "client_crl",
}


def add_port(gathered: Gathered, statement: Statement) -> None:
    """A proxy for one line, unless clients can't be served in that way here."""
    if not statement.words:
        gathered.report.add(Effect.LOST, statement, "names no port", "remove the line")
        return
    address, *options = (plain(word) for word in statement.words)
    unfit = next((each for each in options if each.partition("=")[0] in _OTHER_WAYS), None)
    if unfit is not None:
        why = f"{unfit} {_OTHER_WAYS[unfit.partition('=')[0]]}; no proxy is made for it"
        gathered.report.add(
            Effect.LOST, statement, why, "have clients name the proxy (PAC file, settings), or keep squid"
        )
        return
    try:
        host, port = _address(address)
    except ValueError as error:
        gathered.report.add(Effect.LOST, statement, str(error), "name an address and a port")
        return
    _add(gathered, statement, host, port, options)


def _add(gathered: Gathered, statement: Statement, host: str, port: int, options: list[str]) -> None:
    protocol = "https" if statement.name == "https_port" else "http"
    proxy: dict[str, Any] = {"name": "", "host": host, "port": port, "protocol": protocol}
    if host == "0.0.0.0" and address_is_missing(statement):  # noqa: S104 - as the line says
        why = "squid listens at all addresses of both families, the proxy at those of IPv4"
        gathered.report.add(Effect.DIFFERS, statement, why, 'set "host": "::" if clients come by IPv6')
    name = f"{port}"
    for option in options:
        key, _, value = option.partition("=")
        if key == "name":
            name = value
        else:
            _option(gathered, statement, proxy, key, value)
    proxy["name"] = gathered.draft.proxy_name(f"squid {name}")
    if protocol == "https":
        _finish_tls(gathered, statement, proxy)
    else:
        proxy.pop("tls", None)  # of ssl-bump
    gathered.ports.append(Port(statement, proxy, Listener(port, name if name != str(port) else address_of(statement))))


def address_is_missing(statement: Statement) -> bool:
    """Whether the line names a port alone."""
    return statement.words[0].isdecimal()


def address_of(statement: Statement) -> str:
    """How squid calls a port without a name."""
    return statement.words[0]


def _address(text: str) -> tuple[str, int]:
    """`3128`, `192.0.2.1:3128`, `[2001:db8::1]:3128`, `localhost:3128`."""
    host, colon, port = text.rpartition(":")
    if not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise ValueError(f"{text} has no port")
    if not colon:
        return "0.0.0.0", int(port)  # noqa: S104 - as squid does
    if host == "localhost":
        return "127.0.0.1", int(port)
    try:
        return str(ip_address(host.strip("[]"))), int(port)
    except ValueError:
        raise ValueError(f"{host} is no address") from None


def _option(gathered: Gathered, statement: Statement, proxy: dict[str, Any], key: str, value: str) -> None:
    special = _OPTIONS.get(key)
    if special is not None:
        special(gathered, statement, proxy)
    elif key in _TLS and not value.startswith("/"):
        proxy["status"] = "inactive"
        instead = f"set tls.{_TLS[key]} of the proxy, and start it"
        why = f"{key} names no file by its whole path; the proxy is inactive"
        gathered.report.add(Effect.REFUSES, statement, why, instead)
    elif key in _TLS:
        proxy.setdefault("tls", {})[_TLS[key]] = value
    elif key not in _IGNORED:
        gathered.report.add(
            Effect.LOST, statement, f"the option {key} is not carried over", "see the fields of a proxy"
        )


def _proxy_header(gathered: Gathered, statement: Statement, proxy: dict[str, Any]) -> None:
    proxy["accept_proxy_protocol"] = True
    proxy["status"] = "inactive"
    why = "a PROXY header is accepted from every client, which could claim any address; the proxy is inactive"
    instead = "have a firewall let only the balancer in, or set access.allow_clients, then start the proxy"
    gathered.report.add(Effect.REFUSES, statement, why, instead)


def _bumped(gathered: Gathered, statement: Statement, _proxy: dict[str, Any]) -> None:
    why = "ssl-bump: tunnels are never decrypted, so rules about what is inside of them do not hold"
    gathered.report.add(Effect.LOST, statement, why, "rules about hosts and ports hold for tunnels as well")


_OPTIONS: dict[str, Callable[[Gathered, Statement, dict[str, Any]], None]] = {
    "require-proxy-header": _proxy_header,
    "ssl-bump": _bumped,
}


def _finish_tls(gathered: Gathered, statement: Statement, proxy: dict[str, Any]) -> None:
    tls = proxy.get("tls", {})
    if "cert_file" in tls:
        tls.setdefault("key_file", tls["cert_file"])
    else:
        tls.pop("key_file", None)
        why = "names no certificate: that of the product (server.tls) is used"
        gathered.report.add(Effect.DIFFERS, statement, why, "set tls.cert_file and tls.key_file of the proxy")
    if "client_ca" in tls:
        tls["client_auth"] = "require"
    elif "client_crl" in tls:
        del tls["client_crl"]
    if not tls:
        proxy.pop("tls", None)
