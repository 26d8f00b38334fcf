"""HTTP libraries of Python; each protocol by two of them (urllib3 is what requests connects with)."""

from __future__ import annotations

import asyncio
import http.client
import ssl
import urllib.request
from collections.abc import Callable

import aiohttp
import aiohttp_socks
import httpx
import pytest
import requests
import socks
import urllib3

from tests.product.e2e.foreign.entrances import MEGABYTES, Entrance, MakeEntrance, Record
from tests.product.e2e.foreign.programs import Site, needs

pytestmark = [
    pytest.mark.product,
    needs("nginx"),
    # requests checks no certificate, not even the proxy's, while the URL is an http one
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

SECONDS = 30
Transfer = tuple[str, str, bytes | None]
"""Method, URL, body."""


def trusting(entrance: Entrance) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=entrance.certificate)


def by_requests(entrance: Entrance, transfers: list[Transfer]) -> list[bytes]:
    with requests.Session() as session:
        session.trust_env = False
        session.verify = entrance.certificate
        session.proxies = {"http": entrance.url, "https": entrance.url}
        return [session.request(method, url, data=body, timeout=SECONDS).content for method, url, body in transfers]


def by_httpx(entrance: Entrance, transfers: list[Transfer]) -> list[bytes]:
    context = trusting(entrance)
    within = {"ssl_context": context} if entrance.scheme == "https" else {}
    proxy = httpx.Proxy(entrance.url, **within)
    with httpx.Client(proxy=proxy, verify=context, timeout=SECONDS, trust_env=False) as client:
        return [client.request(method, url, content=body).content for method, url, body in transfers]


def by_aiohttp(entrance: Entrance, transfers: list[Transfer]) -> list[bytes]:
    async def fetch() -> list[bytes]:
        proxy, connector = entrance.url, None
        if entrance.scheme.startswith("socks"):
            proxy, connector = None, aiohttp_socks.ProxyConnector.from_url(entrance.url)
        timeout = aiohttp.ClientTimeout(SECONDS)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            bodies = []
            for method, url, body in transfers:
                request = session.request(method, url, data=body, proxy=proxy, ssl=trusting(entrance))
                async with request as response:
                    bodies.append(await response.read())
            return bodies

    return asyncio.run(fetch())


def by_urllib(entrance: Entrance, transfers: list[Transfer]) -> list[bytes]:
    proxies = urllib.request.ProxyHandler({"http": entrance.url, "https": entrance.url})
    opener = urllib.request.build_opener(proxies, urllib.request.HTTPSHandler(context=trusting(entrance)))
    bodies = []
    for method, url, body in transfers:
        with opener.open(urllib.request.Request(url, body, method=method), timeout=SECONDS) as response:
            bodies.append(response.read())
    return bodies


def by_pysocks(entrance: Entrance, transfers: list[Transfer]) -> list[bytes]:
    """http.client over a socket of PySocks, a new one for each transfer."""
    kind = {"http": socks.HTTP, "socks4": socks.SOCKS4, "socks5": socks.SOCKS5}[entrance.detail["protocol"]]
    by_name = entrance.scheme in ("http", "socks4a", "socks5h")
    bodies = []
    for method, url, body in transfers:
        parts = urllib3.util.parse_url(url)
        proxy = {"proxy_type": kind, "proxy_addr": "127.0.0.1", "proxy_port": entrance.port, "proxy_rdns": by_name}
        sock = socks.create_connection((parts.host, parts.port), SECONDS, **proxy)
        if parts.scheme == "https":
            sock = trusting(entrance).wrap_socket(sock, server_hostname=parts.host)
        connection = http.client.HTTPConnection(parts.host, parts.port)
        connection.sock = sock
        connection.request(method, parts.request_uri, body)
        bodies.append(connection.getresponse().read())
        connection.close()
    return bodies


SPEAKS: dict[Callable[[Entrance, list[Transfer]], list[bytes]], list[str]] = {
    by_requests: ["https", "socks4a", "socks5h"],
    by_httpx: ["http", "https"],
    by_aiohttp: ["https", "socks4", "socks5"],
    by_urllib: ["http"],
    by_pysocks: ["socks4a"],
}


@pytest.mark.parametrize(
    ("library", "scheme"),
    [(library, scheme) for library, schemes in SPEAKS.items() for scheme in schemes],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_pages_and_uploads_by_http_and_https_pass_and_are_recorded(
    entrance: MakeEntrance, site: Site, library: Callable[[Entrance, list[Transfer]], list[bytes]], scheme: str
) -> None:
    proxy = entrance(scheme)
    name = f"/put/{library.__name__}-{scheme}"
    transfers: list[Transfer] = [
        ("GET", site.url("/hello"), None),
        ("GET", site.tls_url("/two-megabytes"), None),
        ("PUT", site.url(name), MEGABYTES),
        ("PUT", site.tls_url(f"{name}-tls"), MEGABYTES),
        ("GET", site.url("/lines.txt"), None),
    ]
    bodies = library(proxy, transfers)
    assert bodies == [b"hello", MEGABYTES, b"", b"", b"a line\n" * 10_000]
    assert (site.folder / f"files{name}").read_bytes() == MEGABYTES
    assert (site.folder / f"files{name}-tls").read_bytes() == MEGABYTES
    secure = f"127.0.0.1:{site.tls_port}"

    def in_all(records: list[Record]) -> bool:
        return sum(record["bytes_in"] for record in records if record["target_url"] == secure) > len(MEGABYTES)

    records = proxy.records_when(in_all, "the upload within TLS")
    assert {record["status_code"] // 100 for record in records} == {2}
