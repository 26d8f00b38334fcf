"""Signing in by the command line: what is kept, how it is renewed, and what is never printed."""

from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.kit.product import PASSWORD, Product
from tests.kit.secured_product import SecuredProduct
from tests.kit.tables import table
from tests.product.cli.shell import Shell, shell_of

pytestmark = pytest.mark.product


@pytest.fixture
def shell(product: Product, tmp_path: Path) -> Shell:
    """With a sign-in of its own, which is renewed and ended here."""
    return shell_of(product, tmp_path / "home")


def test_login_keeps_tokens_in_a_private_file_and_no_password(stranger: Shell, product: Product) -> None:
    assert stranger.good("login", "--password-stdin", stdin=f"{PASSWORD}\n").out == (
        f"Signed in at {product.base_url} as admin (administrator).\n"
    )
    assert stat.S_IMODE(stranger.credentials.stat().st_mode) == 0o600
    assert stat.S_IMODE(stranger.credentials.parent.stat().st_mode) == 0o700
    assert PASSWORD not in stranger.credentials.read_text()
    assert stranger.good("whoami").details["username"] == "admin"


def test_after_a_login_the_address_is_known(product: Product, tmp_path: Path) -> None:
    nowhere = Shell(tmp_path)
    nowhere.good("login", "--url", product.base_url, "--password-stdin", stdin=f"{PASSWORD}\n")
    assert nowhere.good("whoami").details["api"] == product.base_url


def test_a_wrong_password_ends_with_4_and_nothing_is_kept(stranger: Shell) -> None:
    refused = stranger("login", "--password-stdin", stdin="wrong\n")
    assert (refused.status, "password is wrong" in refused.err) == (4, True)
    assert not stranger.credentials.exists()


def test_without_a_login_every_command_says_how_to_sign_in(stranger: Shell) -> None:
    for arguments in (["proxies", "list"], ["whoami"], ["logs"]):
        refused = stranger(*arguments)
        assert (refused.status, "proxyfleet login" in refused.err) == (4, True)


def test_logout_ends_the_sign_in_here_and_there(shell: Shell, product: Product) -> None:
    (kept,) = json.loads(shell.credentials.read_text())["servers"].values()
    shell.good("logout")
    assert shell("whoami").status == 4
    headers = {"Authorization": f"Bearer {kept['access_token']}"}
    assert product.session.get(f"{product.base_url}/api/v1/auth/test", headers=headers, timeout=10).status_code == 401
    assert "No one was signed in" in shell.good("logout").out


def age(shell: Shell) -> str:
    """The kept access token counts as over; the refresh token that goes with it."""
    kept = json.loads(shell.credentials.read_text())
    (tokens,) = kept["servers"].values()
    tokens["expires_at"] = 0
    shell.credentials.write_text(json.dumps(kept))
    return str(tokens["refresh_token"])


def test_a_token_that_is_over_is_renewed_and_the_next_refresh_token_is_kept(shell: Shell) -> None:
    first = age(shell)
    shell.good("whoami")
    second = age(shell)
    assert first != second
    shell.good("whoami")


def test_a_token_that_the_api_takes_for_expired_is_renewed(shell: Shell) -> None:
    kept = json.loads(shell.credentials.read_text())
    (tokens,) = kept["servers"].values()
    tokens["access_token"] = tokens["access_token"][:-4] + "AAAA"
    shell.credentials.write_text(json.dumps(kept))
    shell.good("proxies", "list")


def test_processes_that_renew_at_the_same_time_use_the_refresh_token_once(shell: Shell) -> None:
    age(shell)
    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(lambda _: shell.process("whoami"), range(4)))
    assert [one.status for one in ended] == [0] * 4, [one.err for one in ended]


def test_a_sign_in_that_ended_elsewhere_is_forgotten(shell: Shell, product: Product) -> None:
    other = shell_of(product, shell.home / "other")
    other.good("users", "create", "dora", "--role", "user", "--password-stdin", stdin="doras password\n")
    shell.good("login", "-u", "dora", "--password-stdin", stdin="doras password\n")
    other.good("users", "delete", "dora", "--yes")
    age(shell)
    over = shell("whoami")
    assert (over.status, "The sign-in is over" in over.err, "proxyfleet login" in over.err) == (4, True, True)
    assert json.loads(shell.credentials.read_text())["servers"] == {}


def test_a_damaged_file_is_named_with_the_way_out(shell: Shell) -> None:
    shell.credentials.write_text("{")
    broken = shell("whoami")
    assert (broken.status, str(shell.credentials) in broken.err, "sign in again" in broken.err) == (1, True, True)


@table(
    "url",
    [
        *("127.0.0.1:8080", "ftp://host", "http://admin:secret@127.0.0.1:8080", "http://"),
        *("http://[::1", "http://127.0.0.1:99999", "http://127.0.0.1:x", "http://127.0.0.1:0"),
    ],
)
def test_a_bad_url_is_a_matter_of_usage(stranger: Shell, url: str) -> None:
    refused = stranger("whoami", "--url", url)
    assert (refused.status, "--url" in refused.err) == (2, True)


def test_someone_else_who_answers_there_is_not_taken_for_the_api(stranger: Shell, product: Product) -> None:
    proxy = product.proxy()
    other = stranger("whoami", "--url", f"http://127.0.0.1:{proxy['port']}")
    assert (other.status, "is not the management API" in other.err) == (3, True)
    product.data("DELETE", f"/proxies/{proxy['id']}")


def test_no_one_there_ends_with_3_and_says_how_to_start(stranger: Shell, product: Product) -> None:
    gone = stranger("whoami", "--url", f"http://127.0.0.1:{product.free_port()}")
    assert (gone.status, "Connection refused" in gone.err, "proxyfleet serve" in gone.err) == (3, True, True)


def test_an_address_without_its_scheme_is_shown_with_it(stranger: Shell) -> None:
    assert "Such as http://10.0.0.1:9000" in stranger("whoami", "--url", "10.0.0.1:9000").err


def test_the_way_to_this_machine_leads_through_no_proxy_of_the_environment(shell: Shell, product: Product) -> None:
    unused = f"http://127.0.0.1:{product.free_port()}"
    every = dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"), unused)
    assert shell.good("whoami", **every).details["username"] == "admin"


def test_the_way_elsewhere_leads_through_the_proxy_of_the_environment_which_is_named_when_it_fails(
    stranger: Shell, product: Product
) -> None:
    unused = f"http://127.0.0.1:{product.free_port()}"
    failed = stranger("whoami", "--url", "http://proxyfleet.example", http_proxy=unused)
    assert (failed.status, "proxy that the environment names" in failed.err, "no_proxy" in failed.err) == (
        3,
        True,
        True,
    )


def test_tls_where_there_is_none_and_none_where_there_is_are_distinguished_from_a_bad_certificate(
    stranger: Shell, proxy: dict[str, Any], secured: SecuredProduct
) -> None:
    url = f"127.0.0.1:{proxy['port']}"  # rejects a handshake at once, the API only when it has waited for a request
    plain = stranger("whoami", "--url", f"https://{url}")
    assert (plain.status, f"--url http://{url}" in plain.err, "trusted" in plain.err) == (3, True, False)
    ran = stranger("whoami", "--url", secured.base_url.replace("https", "http"))
    assert (ran.status, f"--url {secured.base_url}" in ran.err) == (3, True)


@pytest.mark.parametrize(("content", "said"), [(None, "No such file"), ("no certificate", "no certificate in PEM")])
def test_a_bad_file_of_an_authority_is_a_matter_of_usage(
    stranger: Shell, tmp_path: Path, content: str | None, said: str
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    refused = stranger("whoami", "--ca-file", str(file))
    assert (refused.status, f"--ca-file: {file}" in refused.err, said in refused.err) == (2, True, True)


def test_a_password_is_never_an_argument() -> None:
    """Others on the machine see arguments."""
    from tests.product.cli.commands import all_commands, options_of

    for name, command in all_commands():
        for option in options_of(command):
            if "password" in option.name:
                assert option.is_flag, f"{name} {option.name} takes a password as its value"


def test_a_certificate_is_trusted_when_its_authority_is_named(secured: SecuredProduct, tmp_path: Path) -> None:
    cert = str(secured.cert)
    stranger = Shell(tmp_path / "home", secured.base_url)
    refused = stranger("login", "--password-stdin", stdin=f"{PASSWORD}\n")
    assert (refused.status, "not trusted" in refused.err, "--ca-file" in refused.err) == (3, True, True)
    stranger.good("login", "--password-stdin", "--ca-file", cert, stdin=f"{PASSWORD}\n")
    assert stranger.good("whoami", PROXYFLEET_CA_FILE=cert).details["username"] == "admin"
    assert stranger.good("whoami").details["username"] == "admin"  # it is kept with the login
    kept = json.loads(stranger.credentials.read_text())
    for tokens in kept["servers"].values():
        tokens["expires_at"] = 0
    stranger.credentials.write_text(json.dumps(kept))
    for _ in range(2):  # also with the next tokens
        stranger.good("whoami")
    stranger.good("logout")


def test_a_key_wins_over_a_login(shell: Shell) -> None:
    key = shell.good("keys", "create", "k", "--permission", "metrics.read").out.strip()
    assert shell.good("whoami", "--key", key).details["permissions"] == "metrics.read"
    wrong = shell("whoami", "--key", "pf_" + "0" * 40)
    assert (wrong.status, "PROXYFLEET_API_KEY was used, not a login" in wrong.err) == (4, True), wrong.err
    assert "proxyfleet login" not in wrong.err
    shell.good("keys", "revoke", "k", "--yes")


def test_with_a_key_the_address_of_the_last_login_is_offered_where_the_default_is_unreachable(
    shell: Shell, product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.cli.commands.DEFAULT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr("api.cli.client.DEFAULT_URL", "http://127.0.0.1:1")
    del shell.env["PROXYFLEET_URL"]
    lost = shell("proxies", "list", "--key", "pf_" + "0" * 40)
    assert (lost.status, f"--url {product.base_url}" in lost.err) == (3, True), lost.err


@pytest.mark.parametrize(("username", "named"), [("admin", True), ("eve", False)])
def test_a_wrong_password_names_where_the_first_one_is(stranger: Shell, username: str, named: bool) -> None:
    refused = stranger("login", "-u", username, "--password-stdin", stdin="nonsense\n")
    assert (refused.status, "initial-admin-password" in refused.err) == (4, named), refused.err
    assert f"reset-password {username}" in refused.err
