"""Which programs take part in which measure: ours first, then the peers that speak the same protocol."""

from __future__ import annotations

from typing import Any

from benchmarks.peers import self_signed
from benchmarks.processes import Missing
from benchmarks.rounds import Bench, Entrant


def _runners() -> Any:
    """The classes that run other proxies. Raises `Missing` in an sdist, which leaves them out."""
    try:
        from benchmarks import other_proxies
    except ImportError as error:
        raise Missing("the runners of other proxies are in the repository alone, not in the sdist") from error
    return other_proxies


def squid(bench: Bench) -> Entrant:
    """The peer by which most is judged."""
    return Entrant("squid", lambda: _runners().Squid(bench.own("squid")))


def tinyproxy(bench: Bench) -> Entrant:
    """The small one."""
    return Entrant("tinyproxy", lambda: _runners().Tinyproxy(bench.own("tinyproxy")))


def haproxy(bench: Bench, mode: str, splice: bool = False) -> Entrant:
    """The relay, `http` or `tcp`, in front of the origin."""
    name = f"haproxy-{mode}{'-splice' if splice else ''}"
    return Entrant(name, lambda: _runners().Haproxy(bench.own("haproxy"), mode, bench.origin.port, splice))


def from_pypi(bench: Bench) -> list[Entrant]:
    """The peers in Python, for HTTP."""
    return [
        Entrant("proxy.py", lambda: _runners().ProxyPy(bench.own("proxy.py"), bench.peers_dir)),
        Entrant("pproxy", lambda: _runners().Pproxy(bench.own("pproxy"), bench.peers_dir)),
        Entrant("mitmproxy", lambda: _runners().Mitmproxy(bench.own("mitmproxy"), bench.peers_dir)),
    ]


def http(bench: Bench) -> list[Entrant]:
    """All that forward requests and open tunnels by CONNECT."""
    return [*bench.ours(), squid(bench), tinyproxy(bench), *from_pypi(bench)]


def socks5(bench: Bench) -> list[Entrant]:
    """All that speak SOCKS5."""
    return [
        *bench.ours("socks5"),
        Entrant("dante", lambda: _runners().Dante(bench.own("dante"))),
        Entrant("microsocks", lambda: _runners().Microsocks(bench.own("microsocks"))),
        Entrant("pproxy", lambda: _runners().Pproxy(bench.own("pproxy"), bench.peers_dir, "socks5")),
        Entrant("mitmproxy", lambda: _runners().Mitmproxy(bench.own("mitmproxy"), bench.peers_dir, "socks5")),
    ]


def tls_http(bench: Bench) -> list[Entrant]:
    """Our `https` listener, and haproxy that reads requests within TLS with the same certificate."""
    target = bench.origin.port

    def haproxy() -> Any:
        return _runners().Haproxy(bench.own("haproxy"), "http", target, certificate=self_signed(bench.folder))

    return [*bench.ours("https"), Entrant("haproxy-tls", haproxy)]


def tls(bench: Bench) -> list[Entrant]:
    """Our `https` listener, and relays that speak TLS to clients with the same certificate."""
    target = bench.origin.port
    return [
        *bench.ours("https"),
        Entrant("stunnel", lambda: _runners().Stunnel(bench.own("stunnel"), target, self_signed(bench.folder))),
        Entrant(
            "haproxy-tls",
            lambda: _runners().Haproxy(bench.own("haproxy"), "tcp", target, certificate=self_signed(bench.folder)),
        ),
    ]
