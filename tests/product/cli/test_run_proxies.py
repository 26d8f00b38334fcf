"""`proxyfleet run`: which proxy the job gets, by each protocol, and with a secret that it is given."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.cli.client import ApiClient
from api.cli.errors import CommandError, Status
from api.cli.remote import run as remote_run
from tests.kit.certificates import make_pair
from tests.kit.curl import needs_curl
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.cli.jobs import ELSEWHERE, Packages, packages_in
from tests.product.cli.shell import Shell
from tests.product.e2e.foreign.programs import needs
from tests.product.e2e.repositories import make_repository

pytestmark = [pytest.mark.product, needs_curl]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Packages]:
    with packages_in(tmp_path / "site") as running:
        yield running


@pytest.fixture
def account(product: Product) -> Iterator[str]:
    made = product.data("POST", "/accounts", {"username": "worker"})["account"]["id"]
    yield made
    product.api("DELETE", f"/accounts/{made}")


@needs("git")
@needs("npm")
@pytest.mark.parametrize("protocol", ["https", "socks5", "socks4"])
def test_curl_git_pip_and_npm_find_their_way_by_each_protocol(
    shell: Shell, product: Product, account: str, site: Packages, tmp_path: Path, protocol: str
) -> None:
    cert, key = make_pair(tmp_path)
    tls = {"tls": {"cert_file": cert, "key_file": key}} if protocol == "https" else {}
    proxy = product.proxy(protocol=protocol, auth={"enabled": True}, **tls)
    make_repository(tmp_path / "work", site.folder / "project.git")
    site.add_wheel()
    site.add_npm_package()
    pip = f"{sys.executable} -m pip download -q --disable-pip-version-check --no-cache-dir --no-deps"
    npm = f"npm install --silent --no-audit --no-fund --registry {site.url} --cache {tmp_path}/npm"
    lines = (
        f"curl -sS -m 60 {site.url}/hello",
        f"git clone -q {site.url}/project.git {tmp_path}/clone",
        f"{pip} --index-url {site.url}/simple --trusted-host {ELSEWHERE} -d {tmp_path}/got tiny-thing",
        f"{npm} --prefix {tmp_path} tiny-thing",
    )
    trust = ("--proxy-ca", cert) if protocol == "https" else ()
    run = ("run", "--account", account, "--proxy", proxy["name"], "--quiet", *trust, "--", "sh", "-ec")
    ran = shell.process(*run, "\n".join(lines))
    assert (ran.status, ran.out) == (0, "hello\n"), ran.err
    path = f"/logs?proxy_id={proxy['id']}&user=worker"
    wait_until(lambda: product.data("GET", path)["total"] >= len(lines), "each of them came through the proxy")
    assert (tmp_path / "clone" / ".git").is_dir()
    assert (tmp_path / "node_modules" / "tiny-thing").is_dir()
    product.api("DELETE", f"/proxies/{proxy['id']}")


def test_a_certificate_of_no_public_authority_is_said_before_the_job_fails(
    shell: Shell, product: Product, account: str, site: Packages, tmp_path: Path
) -> None:
    cert, key = make_pair(tmp_path)
    proxy = product.proxy(protocol="https", auth={"enabled": True}, tls={"cert_file": cert, "key_file": key})
    run = ("run", "--account", account, "--proxy", proxy["name"], "--quiet", "--", "curl", "-sS", f"{site.url}/hello")
    ran = shell.process(*run)
    assert ran.status != 0
    assert f"the certificate of {proxy['name']} is not of a public authority: give --proxy-ca FILE" in ran.err
    assert "its certificate is not trusted" in ran.err
    product.api("DELETE", f"/proxies/{proxy['id']}")


def test_without_a_name_it_is_the_first_proxy_that_speaks_http(shell: Shell, product: Product, account: str) -> None:
    names = {"socks": "socks5", "open": "http", "first": "mixed", "second": "http"}
    made = {
        name: product.proxy(name=name, protocol=protocol, auth={"enabled": name != "open"}, tags=["choice"])
        for name, protocol in names.items()
    }
    product.data("PATCH", f"/accounts/{account}", {"proxies": {"tags": ["choice"]}})
    seen = shell.process("run", "--account", "worker", "--quiet", "--", "printenv", "http_proxy").out.strip()
    assert seen.startswith("http://worker:pfc_")
    assert seen.endswith(f"@127.0.0.1:{made['first']['port']}")
    unwanted = shell("run", "--account", "worker", "--proxy", "open", "--", "true")
    assert (unwanted.status, "No credentials are wanted at open" in unwanted.err) == (2, True), unwanted.err
    plain = shell.process("run", "--proxy", "open", "--quiet", "--", "printenv", "http_proxy").out.strip()
    assert plain == f"http://127.0.0.1:{made['open']['port']}"
    wanted = shell("run", "--proxy", "first", "--", "true")
    assert (wanted.status, "first wants credentials" in wanted.err, "--account" in wanted.err) == (2, True, True)
    url = "http://proxy.example:3128"
    elsewhere = shell.process("run", "--account", "worker", "--proxy", url, "--quiet", "--", "printenv", "all_proxy")
    assert elsewhere.out.strip().endswith("@proxy.example:3128")
    for each in made.values():
        product.api("DELETE", f"/proxies/{each['id']}")


def test_a_secret_of_a_file_is_used_without_the_api_and_not_revoked(
    stranger: Shell, product: Product, account: str, site: Packages, tmp_path: Path
) -> None:
    proxy = product.proxy(auth={"enabled": True})
    secret = product.data("POST", f"/accounts/{account}/credentials", {"ttl": 600})["secret"]
    file = tmp_path / "secret"
    file.write_text(f"worker:{secret}\n")
    url = f"http://127.0.0.1:{proxy['port']}"
    run = ("run", "--url", "http://127.0.0.1:1", "--credential", str(file), "--proxy", url, "--")
    for _ in range(2):
        ran = stranger.process(*run, "curl", "-sS", f"{site.url}/hello")
        assert (ran.out, "known only for a credential that run makes" in ran.err) == ("hello\n", True), ran.err
    assert stranger("run", "--quiet", *run[1:], "true").err == ""
    file.write_text("worker:\n")
    empty = stranger(*run, "true")
    assert (empty.status, "holds no secret" in empty.err) == (2, True)
    product.api("DELETE", f"/proxies/{proxy['id']}")


def test_a_credential_that_can_not_be_revoked_is_said_with_its_end(
    shell: Shell, product: Product, account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = product.proxy(auth={"enabled": True})

    def unreachable(self: ApiClient, path: str, **query: Any) -> Any:
        raise CommandError("The API is away", status=Status.UNREACHABLE)

    monkeypatch.setattr(ApiClient, "delete", unreachable)
    ran = shell("run", "--account", account, "--proxy", proxy["name"], "--quiet", "--", "sh", "-c", "exit 3")
    (left,) = product.data("GET", f"/accounts/{account}/credentials")["credentials"]
    said = f"proxyfleet: {left['id']} could not be revoked; it lapses at {left['expires_at']}: The API is away\n"
    assert (ran.status, ran.err) == (3, said)
    product.api("DELETE", f"/proxies/{proxy['id']}")


def test_a_job_that_outlives_its_credential_is_said(shell: Shell, product: Product, account: str) -> None:
    proxy = product.proxy(auth={"enabled": True})
    run = ("run", "--account", account, "--proxy", proxy["name"], "--ttl", "1s", "--quiet", "--")
    assert "before the command ended: give a longer --ttl" in shell(*run, "sleep", "1.2").err
    assert shell(*run[:-4], "--quiet", "--", "true").err == ""
    product.api("DELETE", f"/proxies/{proxy['id']}")


def test_where_refusals_may_not_be_read_one_line_says_so(
    shell: Shell, product: Product, account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_run, "RECORDED_WITHIN", 0.0)
    proxy = product.proxy(auth={"enabled": True})
    writes = shell.good("keys", "create", "writes", "--permission", "proxy.write", "--permission", "proxy.read")
    ran = shell("run", "--account", "worker", "--proxy", proxy["name"], "--key", writes.out.strip(), "--", "true")
    assert (ran.status, len(ran.err.splitlines())) == (0, 1)
    assert "is not known: The permission metrics.read is required" in ran.err
    shell.good("keys", "revoke", "writes", "--yes")
    product.api("DELETE", f"/proxies/{proxy['id']}")


def test_an_account_whose_proxies_are_stopped_is_named_with_them(shell: Shell, product: Product, account: str) -> None:
    proxy = product.proxy(name="stopped", auth={"enabled": True}, tags=["halted"])
    product.data("PATCH", f"/accounts/{account}", {"proxies": {"tags": ["halted"]}})
    product.data("POST", f"/proxies/{proxy['id']}/stop")
    ran = shell("run", "--account", "worker", "--", "true")
    assert (ran.status, "The account worker may use no active proxy" in ran.err) == (5, True), ran.err
    assert "proxyfleet proxies start stopped" in ran.err
    product.api("DELETE", f"/proxies/{proxy['id']}")
