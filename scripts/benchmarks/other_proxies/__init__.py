"""The runners of the proxies that the product is measured beside. The sdist leaves this folder out."""

from __future__ import annotations

from benchmarks.other_proxies.compiled import Dante, Haproxy, Microsocks, Squid, Stunnel, Tinyproxy
from benchmarks.other_proxies.from_pypi import Mitmproxy, Pproxy, ProxyPy

__all__ = ["Dante", "Haproxy", "Microsocks", "Mitmproxy", "Pproxy", "ProxyPy", "Squid", "Stunnel", "Tinyproxy"]
