"""haproxy in front of the product announces its clients by the PROXY protocol."""

from __future__ import annotations

import pytest

from tests.product.e2e.foreign.entrances import MakeEntrance, Record
from tests.product.e2e.foreign.programs import Site, haproxy, needs, run

pytestmark = [pytest.mark.product, needs("curl"), needs("haproxy"), needs("nginx")]

CLIENT = "127.0.0.5"


ANNOUNCE = ("send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options crc32c,unique-id")


@pytest.mark.parametrize("scheme", ["http", "https", "socks4", "socks5"])
def test_the_records_have_the_client_of_the_balancer(entrance: MakeEntrance, site: Site, scheme: str) -> None:
    proxy = entrance(scheme, accept_proxy_protocol=True, access={"allow_clients": [CLIENT]})
    for announce in ANNOUNCE:
        with haproxy(proxy.port, announce) as port:
            options = ("-sS", "-m", "120", "--noproxy", "", "--proxy-cacert", proxy.certificate, "--interface", CLIENT)
            done = run("curl", *options, "-x", f"{scheme}://127.0.0.1:{port}", site.url("/hello"))
            assert done.stdout == "hello"

    def served(records: list[Record]) -> list[Record]:
        return [record for record in records if record["status_code"] == 200]

    records = proxy.records_when(lambda records: len(served(records)) == len(ANNOUNCE), "three pages")
    assert {record["client_ip"] for record in served(records)} == {CLIENT}
