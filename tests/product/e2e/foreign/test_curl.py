"""curl with every scheme of its `-x`, to nginx by http and https, and on IPv6.

Each kind of transfer is tried by a scheme of each family, and each scheme by several kinds.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.product.e2e.foreign.curl_client import curl, options
from tests.product.e2e.foreign.entrances import MEGABYTES, MakeEntrance
from tests.product.e2e.foreign.programs import Site, has_ipv6, needs, squid

pytestmark = [pytest.mark.product, needs("curl"), needs("nginx")]

HTTP = ["http", "https"]
SOCKS = ["socks4", "socks4a", "socks5", "socks5h"]
SCHEMES = HTTP + SOCKS
BY_NAME = ["socks4a", "socks5h"]  # the client leaves the name to the proxy


def authority(url: str) -> str:
    return url.split("/")[2]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_http_and_https_pages_arrive_and_the_records_show_who_resolved_the_name(
    entrance: MakeEntrance, site: Site, scheme: str
) -> None:
    proxy = entrance(scheme)
    plain, secure = (url.replace("127.0.0.1", "localhost") for url in (site.url("/hello"), site.tls_url("/hello")))
    assert curl(proxy, "-4", plain, secure).stdout == "hellohello"
    host = "localhost" if scheme in HTTP + BY_NAME else "127.0.0.1"
    reported = {(record["method"], record["target_url"], record["status_code"]) for record in proxy.records(2)}
    assert reported == {
        ("GET", plain, 200) if scheme in HTTP else ("CONNECT", f"{host}:{site.port}", 200),
        ("CONNECT", f"{host}:{site.tls_port}", 200),
    }


@pytest.mark.parametrize("scheme", HTTP)
def test_proxytunnel_takes_http_through_connect(entrance: MakeEntrance, site: Site, scheme: str) -> None:
    proxy = entrance(scheme)
    url = site.url("/hello")
    assert curl(proxy, "--proxytunnel", url).stdout == "hello"
    (record,) = proxy.records(1)
    assert (record["method"], record["target_url"]) == ("CONNECT", authority(url))


@pytest.mark.parametrize(
    ("scheme", "expect"),
    [
        ("http", "Expect: 100-continue"),
        ("https", "Expect:"),
        ("socks4a", "Expect: 100-continue"),
        ("socks5h", "Expect:"),
    ],
)
def test_uploads_counted_and_chunked_arrive_as_they_are(
    entrance: MakeEntrance, site: Site, scheme: str, expect: str, tmp_path: Path
) -> None:
    proxy = entrance(scheme)
    (tmp_path / "body").write_bytes(MEGABYTES)
    names = [f"{scheme}-{len(expect)}-{number}" for number in range(4)]
    command: list[str] = []
    for name, url, framing in zip(
        names,
        (site.url, site.tls_url, site.url, site.tls_url),
        ("X-Framing: counted", "X-Framing: counted", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        strict=True,
    ):
        one = ("-v", "-f", "-H", expect, "-H", framing, "-T", str(tmp_path / "body"), url(f"/put/{name}"))
        command += ["--next", *options(proxy), *one] if command else one
    reported = curl(proxy, *command).stderr
    assert reported.count("HTTP/1.1 100 Continue") == (4 if "100" in expect else 0)
    assert all((site.files / "put" / name).read_bytes() == MEGABYTES for name in names)


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_five_pages_on_one_connection_with_head_range_and_compression(
    entrance: MakeEntrance, site: Site, scheme: str, tmp_path: Path
) -> None:
    proxy = entrance(scheme)
    transfers = (
        ("-I", "/two-megabytes", "head"),
        ("-r1000-1099", "/two-megabytes", "part"),
        ("-HAccept-Encoding: gzip", "/lines.txt", "zipped"),
        ("-HAccept: */*", "/two-megabytes", "whole"),
        ("-HIf-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT", "/hello", "nothing"),
    )
    command: list[str] = []
    for option, path, output in transfers:
        one = (option, "-w", "%{http_code} %{num_connects}\\n", "-o", str(tmp_path / output), site.url(path))
        command += ["--next", *options(proxy), *one] if command else one
    reported = curl(proxy, *command).stdout.splitlines()
    assert reported == ["200 1", "206 0", "200 0", "200 0", "304 0"]
    assert f"content-length: {len(MEGABYTES)}" in (tmp_path / "head").read_text().lower()
    assert (tmp_path / "part").read_bytes() == MEGABYTES[1000:1100]
    assert gzip.decompress((tmp_path / "zipped").read_bytes()) == b"a line\n" * 10_000
    assert (tmp_path / "whole").read_bytes() == MEGABYTES


@pytest.mark.parametrize("scheme", ["https", "socks4", "socks5"])
def test_credentials_are_wanted_and_checked(entrance: MakeEntrance, site: Site, scheme: str) -> None:
    only_name = scheme.startswith("socks4")
    password = {} if only_name else {"password": "p@ss word"}
    proxy = entrance(scheme, auth={"enabled": True, "username": "ada", **password})
    right, wrong = ("ada:", "eve:") if only_name else ("ada:p@ss word", "ada:guess")
    refused = 22 if scheme in HTTP else 97  # CURLE_HTTP_RETURNED_ERROR with -f, CURLE_PROXY
    for url in (site.url("/hello"), site.tls_url("/hello")):
        assert curl(proxy, "--proxy-user", right, url).stdout == "hello"
    assert curl(proxy, "-f", "--proxy-user", wrong, site.url("/hello"), check=False).returncode == refused
    assert curl(proxy, "-f", site.url("/hello"), check=False).returncode == refused
    assert [(record["status_code"], record["user"]) for record in proxy.records(4)] == [
        (200, "ada"),
        (200, "ada"),
        (407, wrong.partition(":")[0]),
        (407, ""),
    ]


@pytest.mark.parametrize("scheme", ["https", "socks5"])
def test_an_ipv6_listener_takes_clients(entrance: MakeEntrance, site: Site, scheme: str) -> None:
    if not has_ipv6():
        pytest.skip("this machine has no IPv6 loopback")
    proxy = entrance(scheme, host="::1")
    more = ("--proxy-insecure",) if scheme == "https" else ()  # the certificate is for 127.0.0.1
    assert curl(proxy, *more, site.url("/hello"), site.tls_url("/hello")).stdout == "hellohello"
    assert [record["client_ip"] for record in proxy.records(2)] == ["::1", "::1"]


@pytest.mark.parametrize("scheme", ["http", "socks4a", "socks5", "socks5h"])
def test_an_ipv6_target_is_reached(entrance: MakeEntrance, site: Site, scheme: str) -> None:
    """As an address where the protocol can say one; with SOCKS4a it is text in the place of the name."""
    proxy = entrance(scheme)
    url = site.ipv6_url("/hello")
    assert curl(proxy, "-g", url).stdout == "hello"
    (record,) = proxy.records(1)
    assert record["target_url"] == (url if scheme in HTTP else authority(url))


@pytest.mark.parametrize("scheme", ["http", "socks4", "socks5"])
def test_a_target_where_no_one_listens_is_reported_in_the_schemes_own_way(
    entrance: MakeEntrance, site: Site, scheme: str
) -> None:
    proxy = entrance(scheme)
    unused = f"http://127.0.0.1:{proxy.product.free_port()}/"
    done = curl(proxy, "-o", "/dev/null", "-w", "%{http_code}", unused, check=False)
    assert (done.returncode, done.stdout) == ((0, "502") if scheme in HTTP else (97, "000"))
    (record,) = proxy.records(1)
    assert (record["status_code"], record["reason"]) == (502, "connection_refused")


@pytest.mark.parametrize("scheme", ["https", "socks5h"])
def test_twenty_transfers_at_once_arrive_whole(entrance: MakeEntrance, site: Site, scheme: str, tmp_path: Path) -> None:
    urls = [site.url("/two-megabytes"), site.tls_url("/two-megabytes")] * 10
    targets = [part for number, url in enumerate(urls) for part in ("-o", str(tmp_path / str(number)), url)]
    curl(entrance(scheme), "--parallel", "--parallel-immediate", "--parallel-max", "20", *targets)
    assert all((tmp_path / str(number)).read_bytes() == MEGABYTES for number in range(20))


@needs("squid")
@pytest.mark.parametrize("scheme", ["socks4a", "socks5"])
def test_another_proxy_is_reached_through_this_one(
    entrance: MakeEntrance, site: Site, pair: tuple[str, str], scheme: str
) -> None:
    first = entrance(scheme)
    with squid(*pair) as second:
        for kind, port in second.ports.items():
            behind = ("--preproxy", first.url, "-x", f"{kind}://127.0.0.1:{port}")
            assert curl(first, *behind, site.url("/hello"), site.tls_url("/hello")).stdout == "hellohello"
        used = {f"127.0.0.1:{port}" for port in second.ports.values()}
    assert {record["target_url"] for record in first.records(4)} == used
