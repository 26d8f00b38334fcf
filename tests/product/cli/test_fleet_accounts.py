"""Commands on accounts of the fleet, plans and credentials, against a running product."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.cli.remote import account_csv
from tests.kit.http_origins import Origin, serving
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.cli.shell import Shell

pytestmark = pytest.mark.product


@pytest.fixture(autouse=True)
def _no_account_stays(product: Product) -> Iterator[None]:
    yield
    for kind in ("accounts", "plans"):
        for each in product.data("GET", f"/{kind}")[kind]:
            product.data("DELETE", f"/{kind}/{each['id']}")


@pytest.fixture
def origin() -> Iterator[Origin]:
    server = Origin()
    with serving(server):
        yield server


def usernames(product: Product) -> set[str]:
    return {each["username"] for each in product.data("GET", "/accounts")["accounts"]}


def test_an_account_of_the_fleet_has_a_plan_and_is_named_without_a_proxy(shell: Shell, product: Product) -> None:
    shell.good("plans", "create", "basic", "--quota", "5MB", "--period", "month", "--connections", "7")
    shell.good("plans", "update", "basic", "--description", "for a start", "--set", "limits.bandwidth_out=1MB/s")
    (row,) = shell.good("plans", "list").rows
    assert row[:3] == ["basic", "5000000", "month"]
    assert shell.good("plans", "show", "basic").details["limits"] == "bandwidth_out 1000000, connections 7"
    assert shell.good("plans", "show", "basic").details["disclose"] == "yes"
    shell.good("plans", "update", "basic", "--no-disclose")
    assert shell.good("plans", "show", "basic").details["disclose"] == "no"
    made = shell.good(
        "accounts", "create", "eve", "--plan", "basic", "--tag", "a", "--password-stdin", stdin="sesame seed\n"
    )
    assert made.out.startswith("eve is added (acc_")
    (row,) = shell.good("accounts", "list", "--plan", "basic").rows
    assert row[:3] == ["eve", "active", "basic"]
    assert shell.good("accounts", "list", "--tag", "b").rows == []
    shell.good("accounts", "update", "eve", "--disable", "--connections", "3")
    details = shell.good("accounts", "show", "eve").details
    assert (details["enabled"], details["plan"], details["limits"]) == ("no", "basic", "connections 3")
    assert shell("plans", "delete", "basic", "--yes").status == 1
    assert shell("accounts", "show", "mallory").status == 5
    shell.good("accounts", "delete", "eve", "--yes")
    shell.good("plans", "delete", "basic", "--yes")
    assert product.data("GET", "/plans")["plans"] == []


def test_an_account_says_what_it_has_of_its_plan_and_which_proxies_don_t_ask_for_it(
    shell: Shell, product: Product
) -> None:
    shell.good("plans", "create", "basic", "--quota", "5MB", "--period", "month", "--connections", "7")
    proxy = product.proxy(tags=["open"])
    made = shell.good("accounts", "create", "eve", "--plan", "basic", "--proxy-tag", "open", "--without-password")
    warning = f"warning: proxies: '{proxy['name']}' asks for no credentials"
    assert warning in made.err
    shown = shell.good("accounts", "show", "eve")
    assert warning in shown.err
    assert [shown.details[each] for each in ("quota", "period", "limits", "proxies")] == [*["as plan"] * 3, "tags open"]
    shell.good("accounts", "update", "eve", "--quota", "0", "--set", "proxies.all=true")
    (row,) = shell.good("accounts", "list").rows
    assert (row[3], row[6]) == ("all", "-")
    product.data("DELETE", f"/proxies/{proxy['id']}")


def test_an_account_of_one_proxy_has_no_options_of_the_fleet(shell: Shell) -> None:
    refused = shell("accounts", "update", "office", "eve", "--plan", "basic")
    assert (refused.status, "--plan is for accounts of the fleet" in refused.err) == (2, True)


def test_an_account_that_no_proxy_is_for_says_so(shell: Shell) -> None:
    made = shell.good("accounts", "create", "eve", "--proxy-tag", "nowhere", "--without-password")
    assert "warning: proxies: there is no proxy with these ids or tags" in made.err
    assert "there is no proxy" not in shell.good("accounts", "update", "eve", "--set", "proxies.all=true").err


def test_explain_takes_a_credential_by_its_id_only(shell: Shell) -> None:
    refused = shell("proxies", "explain", "office", "http://example.com/", "--credential", "run 81")
    assert (refused.status, "must be an id, crd_" in refused.err) == (2, True)


def test_client_addresses_are_limited_by_plans_accounts_and_credentials(shell: Shell) -> None:
    shell.good("plans", "create", "home", "--clients", "2", "--clients-window", "30m")
    assert shell.good("plans", "show", "home").details["limits"] == "clients 2, clients_window 1800"
    shell.good("accounts", "create", "eve", "--without-password", "--plan", "home")
    assert shell.good("accounts", "show", "eve").details["limits"] == "as plan"
    shell.good("accounts", "update", "eve", "--clients", "1")
    assert shell.good("accounts", "show", "eve").details["limits"] == "clients 1"
    shell.good("credentials", "mint", "eve", "--ttl", "1h", "--name", "one", "--clients", "1", "--clients-window", "60")
    assert shell.good("credentials", "show", "eve", "one").details["clients"] == "1"
    wrong = shell("plans", "update", "home", "--clients-window", "soon")
    assert (wrong.status, "--clients-window 'soon'" in wrong.err) == (2, True)
    shell.good("accounts", "delete", "eve", "--yes")
    shell.good("plans", "delete", "home", "--yes")


def test_a_minted_secret_opens_a_proxy_and_revoked_it_does_not(
    shell: Shell, stranger: Shell, product: Product, origin: Origin
) -> None:
    proxy = product.proxy(auth={"enabled": True})
    shell.good("accounts", "create", "ci", "--without-password", "--proxy", proxy["name"])
    account = product.data("GET", "/accounts")["accounts"][0]["id"]
    key = shell.good("keys", "create", "runner", "--account", "ci", "--permission", "proxy.write").out.strip()
    minted = stranger.good("credentials", "mint", account, "--ttl", "15m", "--name", "job 1", "--key", key)
    secret = minted.out.strip()
    assert (minted.out, minted.err) == (f"{secret}\n", ""), "alone, for a script"

    def status(password: str) -> int:
        through = {"http": f"http://ci:{password}@127.0.0.1:{proxy['port']}"}
        anew = {"Connection": "close"}  # one that is kept may end with the credential, just when it is used again
        return int(product.session.get(origin.url("/hello"), headers=anew, proxies=through, timeout=10).status_code)

    assert status(secret) == 200
    assert status(secret[:-1] + ("a" if secret[-1] != "a" else "b")) == 407
    (row,) = shell.good("credentials", "list", "ci").rows
    assert row[1:3] == ["job 1", secret[:11]]
    assert shell.good("credentials", "show", "ci", row[0]).details["name"] == "job 1"
    assert stranger("accounts", "list", "--key", key).status == 4
    assert shell("credentials", "revoke", "ci", "job 1").status == 2, "there is no terminal to ask at"
    revoked = stranger.good("credentials", "revoke", account, "job 1", "--yes", "--key", key)
    assert "job 1 is revoked." in revoked.out + revoked.err
    wait_until(lambda: status(secret) == 407, "it is refused")
    assert shell("credentials", "mint", "ci", "--ttl", "soon").status == 2
    assert "Give one of" in shell("credentials", "mint", "ci").err
    assert shell("credentials", "mint", "ci", "--ttl", "1h", "--expires", "2h").status == 2
    refused = shell("credentials", "mint", "ci", "--ttl", "2y")
    assert (refused.status, "--ttl '2y': must be from 1s to 400d" in refused.err) == (2, True)
    shell.good("keys", "revoke", "runner", "--yes")
    product.data("DELETE", f"/proxies/{proxy['id']}")


def test_a_file_is_imported_whole_and_what_was_exported_changes_nothing(
    shell: Shell, product: Product, tmp_path: Path
) -> None:
    file, copy = tmp_path / "accounts.csv", tmp_path / "copy.csv"
    file.write_text("username,password,tags,metadata.note\na,secret word,x;y,'=1+1\nb,,,\n")
    assert shell.good("accounts", "import", str(file), "--dry-run").out.endswith(
        "2 accounts would be added, 0 would be changed.\n"
    )
    assert usernames(product) == set()
    assert shell.good("accounts", "import", str(file)).out.endswith("2 accounts are added, 0 are changed.\n")
    (a, b) = product.data("GET", "/accounts")["accounts"]
    assert (a["tags"], a["metadata"], b["username"]) == (["x", "y"], {"note": "=1+1"}, "b")
    shell.good("accounts", "export", str(copy))
    exported = copy.read_text()
    assert ",'=1+1" in exported
    assert "secret word" not in exported
    again = shell.good("accounts", "import", str(copy))
    assert again.out.endswith("0 accounts are added, 0 are changed.\n")
    assert product.data("GET", "/accounts")["accounts"] == [a, b]
    copy.write_text(exported.replace("x;y", "z"))
    assert shell.good("accounts", "import", str(copy)).out.endswith("0 accounts are added, 1 are changed.\n")
    product.data("PATCH", f"/accounts/{a['id']}", {"tags": ["x", "y"]})
    assert shell.good("accounts", "export").out.splitlines()[1:] == exported.splitlines()[1:]


def test_all_wrong_lines_are_named_and_nothing_is_stored(shell: Shell, product: Product, tmp_path: Path) -> None:
    file = tmp_path / "accounts.csv"

    def refused(*lines: str, status: int) -> str:
        file.write_text("\n".join(("username,plan,metadata.note", *lines)) + "\n")
        ran = shell("accounts", "import", str(file))
        assert ran.status == status, ran.err
        assert usernames(product) == set()
        return ran.err

    unknown = "plan: there is no plan 'none'"
    err = refused("a,,", '"b",,"two\nlines"', "c,none,", "d,,", "e,none,", status=1)
    assert (f"{file}:5: {unknown}" in err, f"{file}:7: {unknown}" in err) == (True, True)
    err = refused("a,,", "b", "c,,x,y", status=2)
    assert (f"{file}:3: has 1 cells" in err, f"{file}:4: has 4 cells" in err) == (True, True)
    assert f"{file}:5: username: " in refused("b,,", "a,,", "c,,", "b,,", status=1)
    assert "No such file" in shell("accounts", "import", str(tmp_path / "none")).err
    assert shell("accounts", "import", str(tmp_path / "none")).status == 2
    file.write_text("username,password,password_hash\na,b,c\n")
    assert (
        "must be left out where a password is given" in shell("accounts", "import", str(file), "--weak-passwords").err
    )
    file.write_text("username,password\na,1\nb,battery staples\nlong-name,Long-Name\n")
    weak = shell("accounts", "import", str(file))
    assert (weak.status, usernames(product)) == (2, set())
    assert f"{file}:2: password: must have 8 characters at least; or --weak-passwords" in weak.err
    assert f"{file}:4: password: must not be the user name" in weak.err
    assert shell.good("accounts", "import", str(file), "--weak-passwords").out.endswith(
        "3 accounts are added, 0 are changed.\n"
    )


def test_many_passwords_are_hashed_only_when_the_rest_of_the_file_is_right(
    shell: Shell, product: Product, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_csv, "MANY_PASSWORDS", 2)
    file = tmp_path / "accounts.csv"
    file.write_text("username,password,plan\na,one of two,none\nb,two of two,\n")
    refused = shell("accounts", "import", str(file))
    assert (refused.status, "Hashing" in refused.err, f"{file}:2: plan" in refused.err) == (1, False, True)
    file.write_text("username,password,plan\na,one of two,\nb,two of two,\n")
    assert "Hashing 2 passwords" in shell.good("accounts", "import", str(file)).err
    assert usernames(product) == {"a", "b"}


def test_without_a_password_and_with_one_is_refused(shell: Shell, product: Product) -> None:
    for more in (("--set", "password=x"), ("--password-stdin",)):
        refused = shell("accounts", "create", "eve", "--without-password", *more, stdin="sesame seed\n")
        assert (refused.status, "don't go together" in refused.err) == (2, True)
    assert usernames(product) == set()


def test_usage_is_shown_by_interval_and_group_and_written_as_csv(
    shell: Shell, product: Product, origin: Origin
) -> None:
    proxy = product.proxy(auth={"enabled": True})
    shell.good("accounts", "create", "eve", "--password-stdin", "--tag", "a", stdin="sesame seed\n")
    through = {"http": f"http://eve:sesame%20seed@127.0.0.1:{proxy['port']}"}
    assert product.session.get(origin.url("/hello"), proxies=through, timeout=10).status_code == 200

    def used(*more: str) -> list[dict[str, str]]:
        return [each for each in shell.good("usage", "-o", "json", *more).data["usage"] if each["username"] == "eve"]

    wait_until(lambda: used() != [], "the usage is reported")
    rows = used("--interval", "hour", "--group-by", "proxy, account", "--from", "2h")  # two, amid which an hour begins
    assert ({row["proxy"] for row in rows}, sum(int(row["requests"]) for row in rows)) == ({proxy["id"]}, 1)
    titles, *lines = (line.split("\t") for line in shell.good("usage", "--group-by", "account").out.splitlines())
    assert titles[:3] == ["FROM", "ACCOUNT", "USER"]
    assert "eve" in [line[2] for line in lines]
    written = shell.good("usage", "--csv", "--group-by", "tag").out.splitlines()
    assert written[0] == "from,to,tag,bytes_in,bytes_out,requests,connection_seconds,refusals"
    assert shell.good("usage", "--to", "2020-01-02", "--from", "2020-01-01").rows == []
    for wrong in (("--group-by", "account,nonsense"), ("--from", "soon"), ("--csv", "-o", "json")):
        assert shell("usage", *wrong).status == 2, wrong
    assert "--interval" in shell("usage", "--from", "60d", "--interval", "hour").err
    product.data("DELETE", f"/proxies/{proxy['id']}")


def test_an_account_of_one_proxy_is_listed_and_shown_and_left_out_of_exports(shell: Shell, product: Product) -> None:
    proxy = product.proxy(accounts=[{"username": "inl", "password": "battery staple"}])
    shell.good("accounts", "create", "eve", "--without-password")
    shell.good("accounts", "create", "max", "--without-password", "--proxy", proxy["name"])
    listed = {row[0]: row[3] for row in shell.good("accounts", "list").rows}
    assert listed == {"eve": "all", "inl": f"{proxy['name']} alone", "max": f"names {proxy['name']}"}
    assert shell.good("accounts", "show", "inl").details["proxies"] == f"{proxy['name']} alone"
    shell.good("accounts", "delete", "max", "--yes")
    assert shell.good("accounts", "show", "inl", "-o", "json").data["account"]["inline"] is True
    assert "inl" not in shell.good("accounts", "export").out
    for command in (("accounts", "update", "inl", "--disable"), ("credentials", "mint", "inl", "--ttl", "1h")):
        refused = shell(*command)
        assert (refused.status, f"of the proxy {proxy['name']} alone" in refused.err) == (5, True), refused.err
    product.data("DELETE", f"/proxies/{proxy['id']}")
