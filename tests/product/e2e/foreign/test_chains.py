"""Upstreams: proxies of every protocol behind squid, behind dante, and behind one another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.wait import wait_until
from tests.product.e2e.foreign.curl_client import curl, options
from tests.product.e2e.foreign.entrances import MEGABYTES, Entrance, MakeEntrance, Record
from tests.product.e2e.foreign.programs import Relay, Site, dante, needs, squid
from tests.product.e2e.foreign.websocket_client import MESSAGES, talk_after_upgrade, talk_in_a_tunnel

pytestmark = [pytest.mark.product, needs("curl"), needs("nginx")]

OWN_PAIRS = [("https", "https"), ("socks5", "socks4")]
FOREIGN_PAIRS = [("http", "https"), ("https", "socks4"), ("socks4", "socks5"), ("socks5", "http")]
"""Every protocol once below and once above; the chain of four has other pairs of ours."""
USER, PASSWORD = "ada", "p-word"


@pytest.fixture(scope="module")
def foreign(pair: tuple[str, str]) -> Iterator[dict[str, Relay]]:
    """An upstream for each protocol; squid wants credentials."""
    with squid(*pair, USER, PASSWORD) as by_http, dante() as by_socks:
        yield {"http": by_http, "https": by_http, "socks4": by_socks, "socks5": by_socks}


def upstream(protocol: str, port: int, certificate: str, auth: bool) -> dict[str, Any]:
    """An entry of `upstreams`."""
    entry: dict[str, Any] = {"protocol": protocol, "host": "127.0.0.1", "port": port}
    if protocol == "https":
        entry["tls"] = {"ca_file": certificate}
    if auth:
        entry["auth"] = {"username": USER} if protocol == "socks4" else {"username": USER, "password": PASSWORD}
    return entry


def check_all_ways(child: Entrance, site: Site, folder: Path) -> None:
    """Pages and uploads by http and https arrive."""
    (folder / "body").write_bytes(MEGABYTES)
    names = [child.detail["id"], f"{child.detail['id']}-tls"]
    command = ["-f", site.url("/hello"), site.tls_url("/hello")]
    for url, name in zip((site.url, site.tls_url), names, strict=True):
        command += ["--next", *options(child), "-f", "-T", str(folder / "body"), url(f"/put/{name}")]
    assert curl(child, *command).stdout == "hellohello"
    assert all((site.files / "put" / name).read_bytes() == MEGABYTES for name in names)


@pytest.mark.parametrize(("below", "above"), OWN_PAIRS)
def test_a_proxy_behind_another_of_ours(
    entrance: MakeEntrance, site: Site, below: str, above: str, tmp_path: Path
) -> None:
    credentials = {"enabled": True, "username": USER, **({} if above == "socks4" else {"password": PASSWORD})}
    upper = entrance(above, auth=credentials)
    lower = entrance(below, upstreams=[upstream(above, upper.port, upper.certificate, auth=True)])
    check_all_ways(lower, site, tmp_path)
    lower.product.data("DELETE", f"/proxies/{lower.detail['id']}")  # ends the connections that it keeps to origins
    both = {f"127.0.0.1:{site.port}", f"127.0.0.1:{site.tls_port}"}
    reported = upper.records_when(lambda records: hosts(records) == both, "both origins")
    asked = [record for record in reported if hosts([record])]  # the child may have ended amid its last check
    assert {(record["user"], record["status_code"] // 100) for record in asked} == {(USER, 2)}


def hosts(records: list[Record]) -> set[str]:
    """Whom the records name as targets, beside the checks of a child that shows its credentials."""
    return {record["target_url"].removeprefix("http://").partition("/")[0] for record in records} - {"check.invalid:80"}


@needs("squid")
@needs("danted")
@pytest.mark.parametrize(("below", "above"), FOREIGN_PAIRS)
def test_a_proxy_behind_squid_and_dante(
    entrance: MakeEntrance,
    site: Site,
    foreign: dict[str, Relay],
    pair: tuple[str, str],
    below: str,
    above: str,
    tmp_path: Path,
) -> None:
    relay = foreign[above]
    before = relay.log.read_text()
    port = relay.ports[above]
    with_credentials = above.startswith("http")
    proxy = entrance(below, upstreams=[upstream(above, port, pair[0], with_credentials)])
    check_all_ways(proxy, site, tmp_path)
    names = (f"127.0.0.1:{site.tls_port}", f"127.0.0.1.{site.tls_port}")  # as squid and as dante writes it
    wait_until(lambda: any(name in relay.log.read_text()[len(before) :] for name in names), f"the log of {above}")


@needs("squid")
def test_all_four_protocols_one_behind_the_other_and_squid_at_the_end(
    entrance: MakeEntrance, site: Site, foreign: dict[str, Relay], pair: tuple[str, str], tmp_path: Path
) -> None:
    before = upstream("http", foreign["http"].ports["http"], pair[0], auth=True)
    for protocol in ("socks4", "https", "socks5", "http"):
        proxy = entrance(protocol, upstreams=[before])
        before = upstream(protocol, proxy.port, pair[0], auth=False)
    check_all_ways(proxy, site, tmp_path)


@pytest.mark.parametrize("above", ["https", "socks5"])
def test_a_websocket_through_two_proxies(
    entrance: MakeEntrance, echoes: dict[str, str], pair: tuple[str, str], above: str
) -> None:
    upper = entrance(above)
    lower = entrance("http", upstreams=[upstream(above, upper.port, pair[0], auth=False)])
    talk_after_upgrade(lower, echoes["ws"])
    talk_in_a_tunnel(lower, echoes["wss"], MESSAGES)


@needs("squid")
@needs("danted")
def test_when_squid_is_gone_dante_takes_over_and_no_one_learns_of_it(
    entrance: MakeEntrance, site: Site, foreign: dict[str, Relay], pair: tuple[str, str]
) -> None:
    second = upstream("socks5", foreign["socks5"].ports["socks5"], pair[0], auth=False)
    with squid(*pair) as first:
        upstreams = [upstream("http", first.ports["http"], pair[0], auth=False), second]
        proxy = entrance("http", upstreams=upstreams, upstream_policy="failover")
        assert curl(proxy, site.url("/hello"), site.tls_url("/hello")).stdout == "hellohello"
        wait_until(lambda: f"CONNECT 127.0.0.1:{site.tls_port}" in first.log.read_text(), "squid had its part")
    for _ in range(3):
        assert curl(proxy, "-f", site.url("/hello"), site.tls_url("/hello")).stdout == "hellohello"
