"""`cache_peer` and what names one."""

from __future__ import annotations

from typing import Any

from api.import_export.convert.report import Effect
from api.import_export.convert.squid.gathered import Gathered, Peer
from api.import_export.convert.squid.lexer import plain
from api.import_export.convert.statements import Statement

_MODES = frozenset({"default", "round-robin", "weighted-round-robin", "carp", "sourcehash", "userhash"})
_CACHES_TEXT = """
    no-query background-ping multicast-responder closest-only htcp multicast-siblings no-netdb-exchange
    no-digest no-delay proxy-only allow-miss no-tproxy digest-url basetime ttl carp-key
    connect-fail-limit forceddomain
"""
_CACHES = frozenset(_CACHES_TEXT.split())
_TLS_WORDS = {"ssl", "tls"}
_TLS = {
    "tls-cafile": "ca_file",
    "sslcafile": "ca_file",
    "ssldomain": "server_name",
    "tls-domain": "server_name",
}
MOST_WEIGHT = 100


def add_peer(gathered: Gathered, statement: Statement) -> None:
    """`cache_peer HOST TYPE PORT ICP-PORT OPTIONS…`."""
    words = [plain(word) for word in statement.words]
    if len(words) < 3 or not words[2].isdecimal() or not 1 <= int(words[2]) <= 65535:
        gathered.report.add(Effect.LOST, statement, "names no host, type and port", "complete the line, or remove it")
        return
    host, kind, port, options = words[0], words[1], int(words[2]), words[4:]
    if kind != "parent":
        why = f"a {kind} is asked for what its cache has, and there is no cache here"
        gathered.report.add(Effect.UNNEEDED, statement, why)
        return
    if any(each.partition("=")[0] == "originserver" for each in options):
        why = "originserver: the peer is a web server behind a reverse proxy"
        gathered.report.add(Effect.LOST, statement, why, "this product is no reverse proxy")
        return
    peer = Peer(statement, host, {"protocol": "http", "host": host.lower(), "port": port}, set())
    for option in options:
        _option(gathered, peer, *option.partition("=")[::2])
    if peer.name in gathered.peers:
        gathered.report.add(Effect.LOST, statement, f"there is another peer {peer.name}", "give it a name= of its own")
        return
    peer.upstream["name"] = peer.name[:100]
    gathered.peers[peer.name] = peer


def _option(gathered: Gathered, peer: Peer, key: str, value: str) -> None:
    upstream = peer.upstream
    if key == "name":
        peer.name = value
    elif key in _MODES:
        peer.modes.add(key)
    elif key == "weight" and value.isdecimal():
        upstream["weight"] = min(max(int(value), 1), MOST_WEIGHT)
    elif key == "login":
        _login(gathered, peer, value)
    elif key in _TLS_WORDS:
        upstream["protocol"] = "https"
    elif key in _TLS:
        upstream.setdefault("tls", {})[_TLS[key]] = value
    elif key in ("sslflags", "tls-flags"):
        _flags(upstream, value)
    elif key not in _CACHES:
        gathered.report.add(
            Effect.LOST, peer.statement, f"the option {key} is not carried over", "see docs/api.md, upstreams"
        )


def _flags(upstream: dict[str, Any], value: str) -> None:
    if "DONT_VERIFY_PEER" in value.split(","):
        upstream.setdefault("tls", {})["verify"] = False


def _login(gathered: Gathered, peer: Peer, value: str) -> None:
    user, colon, password = value.partition(":")
    if not colon or user == "*" or value in ("PASS", "PASSTHRU", "NEGOTIATE"):
        why = f"login={value}: credentials of clients are not passed on to upstreams"
        instead = "give the upstream a user name and a password of its own"
        gathered.report.add(Effect.LOST, peer.statement, why, instead)
        return
    peer.upstream["auth"] = {"username": user, **({"password": password} if password else {})}


def add_access(gathered: Gathered, statement: Statement) -> None:
    """`cache_peer_access NAME allow|deny ACL…`."""
    peer = gathered.peers.get(plain(statement.words[0])) if statement.words else None
    if peer is None:
        name = statement.words[0] if statement.words else ""
        why = f"there is no upstream {name} (siblings and peers that were not carried over have none)"
        gathered.report.add(Effect.UNNEEDED, statement, why)
        return
    peer.access.append(Statement(statement.place, statement.name, statement.words[1:]))
