"""`proxy`, `socks` and `auto` with their options, as proxies."""

from __future__ import annotations

from typing import Any

from api.import_export.convert.report import Effect
from api.import_export.convert.statements import Statement, is_address
from api.import_export.convert.threeproxy.state import Service, State

PROTOCOLS = {"proxy": ("http", 3128), "socks": ("socks5", 1080), "auto": ("mixed", 8080)}
"""Protocol and usual port."""
_PREFER = {"4": "ipv4", "46": "ipv4", "6": "ipv6", "64": "ipv6"}


def start(state: State, statement: Statement) -> None:
    """A proxy with the state so far."""
    protocol, port = PROTOCOLS[statement.name]
    proxy: dict[str, Any] = {"name": "", "host": state.internal or "0.0.0.0", "port": port, "protocol": protocol}  # noqa: S104
    if state.external:
        proxy["bind_address"] = state.external if len(state.external) > 1 else state.external[0]
    if state.maxconn is not None:
        proxy["settings"] = {"max_connections": state.maxconn}
    if state.dns:
        proxy["dns"] = dict(state.dns)
    if protocol == "http":
        proxy["headers"] = {"forwarded": "rfc7239"}
    for word in statement.words:
        _option(state, statement, proxy, word)
    _tls(state, statement, proxy)
    if statement.name == "socks":
        why = "SOCKS4 is refused at a socks5 proxy"
        state.report.add(Effect.DIFFERS, statement, why, "make its protocol mixed, if there are such clients")
    proxy["name"] = state.draft.proxy_name(f"3proxy {statement.name} {proxy['port']}")
    state.services.append(Service(statement, statement.name, proxy, state.auth, list(state.entries)))


def _option(state: State, statement: Statement, proxy: dict[str, Any], word: str) -> None:
    flag, value = word[1:2], word[2:]
    if not word.startswith("-"):
        state.report.add(Effect.LOST, statement, f"{word} is no option", "remove it")
    elif flag == "p" and value.isdecimal() and 1 <= int(value) <= 65535:
        proxy["port"] = int(value)
    elif flag == "i" and is_address(value):
        proxy["host"] = value
    elif flag == "e" and is_address(value):
        proxy["bind_address"] = value
    elif flag == "a":
        _anonymous(proxy, value)
    elif word[1:] in _PREFER:
        proxy.setdefault("dns", {})["prefer"] = _PREFER[word[1:]]
        why = "the family is preferred, and the other one used where a name has no address of it"
        if word in ("-4", "-6"):
            state.report.add(Effect.DIFFERS, statement, f"{word}: {why}")
    elif flag == "H":
        _proxy_header(state, statement, proxy)
    elif flag not in ("n", "l", "s", "g", "o", "U", "C"):
        state.report.add(Effect.LOST, statement, f"the option {word} is not carried over", "see the fields of a proxy")


def _anonymous(proxy: dict[str, Any], mode: str) -> None:
    if "headers" in proxy:
        proxy["headers"] = {"forwarded": "x-forwarded-for" if mode == "2" else "off"}


def _proxy_header(state: State, statement: Statement, proxy: dict[str, Any]) -> None:
    proxy |= {"accept_proxy_protocol": True, "status": "inactive"}
    why = "-H: a PROXY header is accepted from every client, which could claim any address; the proxy is inactive"
    instead = "have a firewall let only the balancer in, then start the proxy"
    state.report.add(Effect.REFUSES, statement, why, instead)


def _tls(state: State, statement: Statement, proxy: dict[str, Any]) -> None:
    if not state.serves_tls:
        return
    if statement.name != "proxy":
        why = "TLS around SOCKS is on mixed proxies only; no TLS is set, and the proxy is inactive"
        state.report.add(Effect.REFUSES, statement, why, "make it a mixed proxy with tls, then start it")
        proxy["status"] = "inactive"
        return
    proxy["protocol"] = "https"
    tls: dict[str, str] = dict(state.tls)
    if "cert_file" in tls:
        tls.setdefault("key_file", tls["cert_file"])
    else:
        tls.pop("key_file", None)  # of a certificate that is missing: the product's own is used
    if "client_ca" in tls:
        tls["client_auth"] = "require"
    if tls:
        proxy["tls"] = tls
