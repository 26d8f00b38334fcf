"""Clients of Python: hello.py KIND URL PROXY [OPTION]"""

from __future__ import annotations

import asyncio
import importlib.metadata
import socket
import ssl
import sys
import urllib.request
from importlib import import_module
from typing import Any

KIND, URL, PROXY, *OPTIONS = sys.argv[1:]


def clients() -> dict[str, Any]:
    """What each kind does."""
    return {
        "ssl": of_ssl,
        "urllib": lambda _: urllib.request.urlopen(URL),
        "version": lambda _: print(importlib.metadata.version(URL)),
        "aiohttp": lambda _: asyncio.run(of_aiohttp()),
        "curl_cffi": lambda module: module.get(URL, proxy=PROXY, verify=False, impersonate=OPTIONS[0]),
        "httpx": lambda module: module.Client(http2=True, proxy=PROXY, verify=False).get(URL),
        "primp": lambda module: module.Client(proxy=PROXY, verify=False, impersonate=OPTIONS[0]).get(URL),
        "requests": lambda module: module.get(URL, proxies={"https": PROXY}, verify=False),
        "rnet": lambda module: module.BlockingClient(
            impersonate=getattr(module.Impersonate, OPTIONS[0]), proxies=[module.Proxy.all(PROXY)], verify=False
        ).get(URL),
    }


def of_ssl(_: Any) -> None:
    """As OPTIONS say: the highest version, and protocols."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.maximum_version = getattr(ssl.TLSVersion, OPTIONS[0])
    context.minimum_version = min(context.maximum_version, ssl.TLSVersion.TLSv1_2)
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    if OPTIONS[1:]:
        context.set_alpn_protocols(OPTIONS[1:])
    port = int(PROXY.rpartition(":")[2])
    context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname=URL or None)


async def of_aiohttp() -> None:
    """A request through the proxy."""
    async with import_module("aiohttp").ClientSession() as session:
        await session.get(URL, proxy=PROXY, ssl=False)


if __name__ == "__main__":
    module = None if KIND in ("ssl", "urllib", "version") else import_module(KIND)
    clients()[KIND](module)  # it ends in an error: what it connects to responds with nothing
