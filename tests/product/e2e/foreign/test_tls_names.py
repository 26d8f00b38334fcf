"""The escape from a list of hosts, tried with curl: a second site on the address of the first one.

nginx serves `allowed.example` and `secret.example` at one address, as a CDN does. The client may reach the first; it
requests a tunnel to that, and names the second in the TLS handshake.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.certificates import make_pair
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.e2e.foreign.entrances import Entrance, MakeEntrance
from tests.product.e2e.foreign.programs import needs, two_sites

pytestmark = [pytest.mark.product, needs("curl"), needs("nginx")]

ALLOWED, SECRET = "allowed.example", "secret.example"
HOSTS = {"hosts": {name: ["127.0.0.1"] for name in (ALLOWED, SECRET)}}


@dataclass(frozen=True)
class Cdn:
    """Both sites: where they listen, their certificate, and the log of what they were asked."""

    port: int
    certificate: str
    log: Path

    @property
    def served(self) -> list[str]:
        """The sites that responded to requests."""
        return [line.split()[0] for line in self.log.read_text().splitlines()]


@pytest.fixture(scope="module")
def cdn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cdn]:
    cert, key = make_pair(tmp_path_factory.mktemp("cdn"), hosts=(ALLOWED, SECRET))
    with two_sites(cert, key, ALLOWED, SECRET) as (port, log):
        yield Cdn(port, cert, log)


def fetch(proxy: Entrance, cdn: Cdn, named: str, requested: str, *options: str) -> subprocess.CompletedProcess[str]:
    """curl asks for a page of `named` through a tunnel that it requests to `requested`."""
    through = ("--connect-to", f"{named}:{cdn.port}:{requested}:{cdn.port}")
    where = ("-x", proxy.url, "--proxy-cacert", proxy.certificate, "--cacert", cdn.certificate)
    command = ["curl", "-sS", "-m", "60", "--noproxy", "", *where, *through, *options, f"https://{named}:{cdn.port}/"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("scheme", ["https", "socks5h"])
def test_a_second_site_at_an_allowed_address_is_out_of_reach(entrance: MakeEntrance, cdn: Cdn, scheme: str) -> None:
    allowing = {"allow_destinations": [f"{ALLOWED}:{cdn.port}"]}
    proxy = entrance(scheme, dns=HOSTS, access=allowing, tls_ports=[cdn.port])
    before = len(cdn.served)
    assert fetch(proxy, cdn, ALLOWED, ALLOWED).stdout == f"this is {ALLOWED}\n"
    wait_until(lambda: len(cdn.served) > before, "the server logs it, after its response")
    escaped = fetch(proxy, cdn, SECRET, ALLOWED)
    assert (escaped.returncode, escaped.stdout) == (35, ""), escaped.stderr
    assert "unrecognized name" in escaped.stderr
    assert cdn.served[before:] == [ALLOWED]
    good, bad = proxy.records(2)
    assert (good["tls_name"], good["reason"], good["tls_version"]) == (ALLOWED, "", "1.3")
    assert (bad["tls_name"], bad["reason"], bad["bytes_in"] > 0) == (SECRET, "tls_name_denied", True)
    assert bad["detail"] == f"mismatch: the handshake names {SECRET}, and {ALLOWED} was requested"
    assert bad["rule"] == f"access.allow_destinations[0] {ALLOWED}:{cdn.port}"


def test_an_account_of_a_plan_is_held_to_its_list_of_names(product: Product, entrance: MakeEntrance, cdn: Cdn) -> None:
    product.data("POST", "/lists", {"name": "cdn-hosts", "kind": "domains", "entries": [ALLOWED]})
    plan = {"name": "cdn-only", "allow_destinations": ["list:cdn-hosts"]}
    product.data("POST", "/plans", plan)
    account = {"username": "cdn-job", "password": "a-word-of-12", "plan": "cdn-only"}
    identifier = product.data("POST", "/accounts", account)["account"]["id"]
    try:
        proxy = entrance("http", dns=HOSTS, tls_ports=[cdn.port], auth={"enabled": True})
        signed_in = ("-U", "cdn-job:a-word-of-12")
        wait_until(lambda: fetch(proxy, cdn, ALLOWED, ALLOWED, *signed_in).returncode == 0, "the account is known")
        assert fetch(proxy, cdn, SECRET, ALLOWED, *signed_in).returncode == 35
        denied = "tls_name_denied"
        records = proxy.records_when(lambda found: any(each["reason"] == denied for each in found), "the refusal")
        refused = next(each for each in records if each["reason"] == denied)
        assert refused["rule"].startswith("account.allow_destinations[0] list:cdn-hosts")
    finally:
        product.api("DELETE", f"/accounts/{identifier}")
        product.api("DELETE", "/plans/cdn-only")
        product.api("DELETE", "/lists/cdn-hosts")
