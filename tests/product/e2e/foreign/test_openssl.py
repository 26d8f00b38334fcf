"""An https proxy as openssl's own client sees it: versions, ALPN, ciphers."""

from __future__ import annotations

from subprocess import CompletedProcess

import pytest

from tests.product.e2e.foreign.entrances import Entrance, MakeEntrance
from tests.product.e2e.foreign.programs import Site, needs, run

pytestmark = [pytest.mark.product, needs("openssl"), needs("nginx")]


def s_client(proxy: Entrance, *arguments: str, send: bytes = b"", check: bool = True) -> CompletedProcess[str]:
    where = ("-connect", f"127.0.0.1:{proxy.port}", "-verify_return_error", "-CAfile", proxy.certificate)
    names = ("-verify_ip", "127.0.0.1", "-servername", "localhost")
    return run("openssl", "s_client", *where, *names, *arguments, stdin=send, check=check)


@pytest.mark.parametrize(("option", "version"), [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")])
def test_a_request_is_answered_in_this_version(entrance: MakeEntrance, site: Site, option: str, version: str) -> None:
    proxy = entrance("https")
    request = f"GET {site.url('/hello')} HTTP/1.1\r\nHost: {site.url('').split('/')[2]}\r\nConnection: close\r\n\r\n"
    done = s_client(proxy, option, "-ign_eof", "-alpn", "h2,http/1.1", send=request.encode())
    assert f"New, {version}, Cipher is " in done.stdout
    assert "ALPN protocol: http/1.1" in done.stdout
    assert "Verify return code: 0 (ok)" in done.stdout
    assert "\r\n\r\nhello" in done.stdout
    (record,) = proxy.records(1)
    assert (record["status_code"], record["target_url"]) == (200, site.url("/hello"))


@pytest.mark.parametrize("option", ["-tls1", "-tls1_1"])
def test_older_versions_are_refused_with_the_alert_for_it(entrance: MakeEntrance, option: str) -> None:
    done = s_client(entrance("https"), option, "-cipher", "ALL:@SECLEVEL=0", check=False)
    assert done.returncode != 0
    assert "alert protocol version" in done.stderr, done.stderr


def test_without_alpn_the_handshake_goes_on(entrance: MakeEntrance) -> None:
    assert "No ALPN negotiated" in s_client(entrance("https")).stdout


def test_http_2_alone_is_not_spoken(entrance: MakeEntrance) -> None:
    """A server without a protocol in common may end the handshake or go on without ALPN (RFC 7301 section 3.2)."""
    done = s_client(entrance("https"), "-alpn", "h2", check=False)
    assert "ALPN protocol: h2" not in done.stdout
    assert "No ALPN negotiated" in done.stdout or "alert no application protocol" in done.stderr


@pytest.mark.parametrize("option", ["-tls1_2", "-tls1_3"])
def test_the_cipher_has_forward_secrecy_and_is_authenticated(entrance: MakeEntrance, option: str) -> None:
    done = s_client(entrance("https"), option)
    cipher = next(line for line in done.stdout.splitlines() if "Cipher is " in line).split()[-1]
    assert cipher.startswith(("ECDHE-", "TLS_"))
    assert "GCM" in cipher or "CHACHA20" in cipher
    assert "Compression: NONE" in done.stdout


def test_a_client_without_a_cipher_in_common_is_refused_and_the_next_is_served(
    entrance: MakeEntrance, site: Site
) -> None:
    proxy = entrance("https")
    done = s_client(proxy, "-tls1_2", "-cipher", "NULL:@SECLEVEL=0", check=False)
    assert "alert handshake failure" in done.stderr, done.stderr
    assert "Verify return code: 0 (ok)" in s_client(proxy).stdout
