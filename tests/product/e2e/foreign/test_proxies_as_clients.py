"""squid and dante as clients: they send all that they are asked for through a proxy of the product."""

from __future__ import annotations

import pytest

from tests.product.e2e.foreign.entrances import MEGABYTES, MakeEntrance
from tests.product.e2e.foreign.programs import Site, dante, needs, run, squid

pytestmark = [pytest.mark.product, needs("curl"), needs("nginx")]

CREDENTIALS = {"enabled": True, "username": "ada", "password": "p-word"}


def fetch(through: str, certificate: str, site: Site) -> list[int]:
    """The lengths of what curl gets by http and by https, in one go."""
    urls = [url for path in ("/hello", "/two-megabytes") for url in (site.url(path), site.tls_url(path))]
    sizes = [part for url in urls for part in ("-o", "/dev/null", url)]
    command = ("curl", "-sS", "-f", "-m", "120", "--noproxy", "", "--cacert", certificate, "-w", "%{size_download}\\n")
    return [int(line) for line in run(*command, "-x", through, *sizes).stdout.split()]


@needs("squid")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_squid_sends_requests_and_tunnels_through_a_proxy_with_its_credentials(
    entrance: MakeEntrance, site: Site, pair: tuple[str, str], scheme: str
) -> None:
    proxy = entrance(scheme, auth=CREDENTIALS)
    # Debian's squid (GnuTLS) takes the session tickets of TLS 1.3 for an error of reading.
    secure = f"tls tls-cafile={pair[0]} tls-options=NORMAL:-VERS-TLS1.3" if scheme == "https" else ""
    peer = f"cache_peer localhost parent {proxy.port} 0 no-query no-digest login=ada:p-word {secure}"
    with squid(*pair, more=f"{peer}\nnever_direct allow all") as relay:
        sizes = fetch(f"http://127.0.0.1:{relay.ports['http']}", pair[0], site)
    assert sizes == [5, 5, len(MEGABYTES), len(MEGABYTES)]
    by_http = {("GET", site.url(path), "ada", 200) for path in ("/hello", "/two-megabytes")}
    tunnel = ("CONNECT", f"127.0.0.1:{site.tls_port}", "ada", 200)

    def reported(records: list[dict[str, object]]) -> set[tuple[object, ...]]:
        return {tuple(record[name] for name in ("method", "target_url", "user", "status_code")) for record in records}

    proxy.records_when(lambda records: reported(records) >= {*by_http, tunnel}, "requests and tunnel")


@needs("danted")
@pytest.mark.parametrize(("scheme", "dialect"), [("socks4", "socks_v4"), ("socks5", "socks_v5"), ("http", "http_v1.0")])
def test_dante_sends_connections_through_a_proxy(
    entrance: MakeEntrance, site: Site, pair: tuple[str, str], scheme: str, dialect: str
) -> None:
    proxy = entrance(scheme)
    via = f"via: 127.0.0.1 port = {proxy.port}\nproxyprotocol: {dialect}\ncommand: connect"
    with dante(f"route {{\nfrom: 0.0.0.0/0 to: 0.0.0.0/0 {via}\n}}") as relay:
        sizes = fetch(f"socks5://127.0.0.1:{relay.ports['socks5']}", pair[0], site)
    assert sizes == [5, 5, len(MEGABYTES), len(MEGABYTES)]
    targets = {record["target_url"] for record in proxy.records(2)}
    assert targets == {f"127.0.0.1:{site.port}", f"127.0.0.1:{site.tls_port}"}
