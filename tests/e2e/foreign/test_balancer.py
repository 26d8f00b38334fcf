"""haproxy in front of the product announces its clients by the PROXY protocol."""

from __future__ import annotations

import pytest

from tests.e2e.foreign.conftest import MakeEntrance
from tests.e2e.foreign.programs import Site, haproxy, needs, run

pytestmark = [pytest.mark.product, needs("curl"), needs("haproxy"), needs("nginx"), needs("openssl")]

CLIENT = "127.0.0.5"


@pytest.mark.parametrize("announce", ["send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options crc32c,unique-id"])
@pytest.mark.parametrize("scheme", ["http", "https", "socks4", "socks5"])
def test_the_record_has_the_client_of_the_balancer(
    entrance: MakeEntrance, site: Site, scheme: str, announce: str
) -> None:
    proxy = entrance(scheme, accept_proxy_protocol=True, access={"allow_clients": [CLIENT]})
    with haproxy(proxy.port, announce) as port:
        client = (
            "curl",
            "-sS",
            "-m",
            "20",
            "--noproxy",
            "",
            "--proxy-cacert",
            proxy.certificate,
            "--interface",
            CLIENT,
        )
        done = run(*client, "-x", f"{scheme}://127.0.0.1:{port}", site.url("/hello"))
        assert done.stdout == "hello"
    records = proxy.records_when(lambda found: any(record["status_code"] == 200 for record in found), "the page")
    assert [record["client_ip"] for record in records if record["status_code"] == 200] == [CLIENT]
