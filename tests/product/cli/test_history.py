"""`proxyfleet history` and `rollback`: what was changed, and back to the state of a revision."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests.kit.ports import free_port
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.cli.shell import Shell

pytestmark = pytest.mark.product


def newest(product: Product) -> int:
    number: int = product.data("GET", "/revisions?limit=1")["revisions"][0]["revision"]
    return number


def serves(port: int) -> bool:
    """Whether a proxy that reaches nothing responds there."""
    command = [
        "curl",
        "-s",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "-x",
        f"http://127.0.0.1:{port}",
        "http://127.0.0.1:9/",
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=180).stdout not in ("", "000")


def test_a_change_is_found_read_and_undone(shell: Shell, product: Product, proxy: dict[str, Any]) -> None:
    base = newest(product)
    shell.good("proxies", "update", proxy["name"], "--set", 'tags=["x"]')
    shell.good("proxies", "delete", proxy["name"], "--yes")
    assert "by default from the first on" in " ".join(shell.good("history", "--help").out.split())
    rows = shell.good("history", "-n", "2").rows
    assert [row[0] for row in rows] == [str(base + 2), str(base + 1)]
    assert rows[1][2:] == ["admin", "127.0.0.1", f"~ proxy {proxy['name']}", "tags"]
    assert shell.good("history", "--object", proxy["name"]).rows == shell.good("history", "--object", proxy["id"]).rows
    one = shell.good("history", str(base + 1)).out
    assert one.startswith(f"revision\t{base + 1}\n")
    assert f"~ proxy {proxy['name']}\n    tags: " in one
    compared = shell.good("history", f"{base}...{base + 2}").out
    assert f"- proxy {proxy['name']}" in compared
    tried = shell.good("rollback", str(base), "--dry-run").out
    assert f"+ proxy {proxy['name']}\n" in tried
    assert tried.endswith("1 would be created; 0 unchanged.\n")
    assert shell("rollback", str(base)).status == 2  # there is no terminal to ask at
    assert newest(product) == base + 2
    done = shell.good("rollback", str(base), "--yes")
    assert done.out.endswith(f"1 created; 0 unchanged. This is revision {base + 3}.\n")
    assert product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["tags"] == proxy["tags"]
    wait_until(lambda: serves(proxy["port"]), "the restored proxy serves")
    assert shell.good("rollback", str(base), "--yes").out.startswith("Nothing to change")


def test_one_object_comes_back_by_its_name(shell: Shell, product: Product, proxy: dict[str, Any]) -> None:
    other = product.proxy()
    base = newest(product)
    for each in (proxy, other):
        product.api("PATCH", f"/proxies/{each['id']}", {"description": "changed"})
    done = shell.good("rollback", str(base), "--object", other["name"], "--yes", "-o", "json").data
    assert (done["restored"], done["revision"], done["summary"]["update"]) == (base, base + 3, 1)
    found = [product.data("GET", f"/proxies/{each['id']}")["proxy"]["description"] for each in (proxy, other)]
    assert found == ["changed", other["description"]]
    product.api("DELETE", f"/proxies/{other['id']}")


def test_one_revision_is_undone_and_what_was_changed_again_is_named(
    shell: Shell, product: Product, proxy: dict[str, Any]
) -> None:
    base = newest(product)
    shell.good("proxies", "update", proxy["name"], "--set", 'tags=["x"]', "--set", "description=one")
    shell.good("proxies", "update", proxy["name"], "--set", "description=two")
    refused = shell("rollback", "--only", str(base + 1), "--yes")
    assert refused.status != 0
    assert f"proxies.{proxy['id']}.description" in refused.err
    assert f"by revision {base + 2} (admin); undo that first, or change it by hand" in refused.err
    assert newest(product) == base + 2
    shell.good("rollback", "--only", str(base + 2), "--object", proxy["name"], "--yes")
    tried = shell.good("rollback", "--only", str(base + 1), "--dry-run").out
    assert f"~ proxy {proxy['name']}\n" in tried
    shell.good("rollback", str(base + 1), "--only", "--yes")
    assert product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["tags"] == proxy["tags"]
    assert [row[-1] for row in shell.good("history", "-n", "2").rows] == [f"undoes {base + 1}", f"undoes {base + 2}"]
    assert f"undoes\t{base + 1}\n" in shell.good("history", str(base + 4)).out
    assert shell.good("rollback", "--only", str(base + 1), "--yes").out.startswith("Nothing to change")


def test_a_revision_of_many_objects_has_their_number(shell: Shell, product: Product) -> None:
    product.api("POST", "/accounts/batch", {"create": [{"username": f"many{number}"} for number in range(30)]})
    made = newest(product)
    assert shell.good("history", "-n", "1").rows[0][4] == "+ 30 accounts"
    shell.good("rollback", "--only", str(made), "--yes")
    assert shell.good("history", "-n", "1").rows[0][4:] == ["- 30 accounts", f"undoes {made}"]


def test_any_kind_of_object_is_named_by_its_id_too(shell: Shell, product: Product) -> None:
    made = product.data("POST", "/policies", {"name": "by-id", "rules": []})["policy"]["id"]
    assert shell.good("history", "--object", made).rows == shell.good("history", "--object", "by-id").rows != []
    shell.good("rollback", "--only", str(newest(product)), "--object", made, "--yes")
    assert product.api("GET", f"/policies/{made}").status_code == 404


def test_what_is_no_revision_is_an_error_that_says_so(shell: Shell, product: Product) -> None:
    assert shell("history", "twelve").status == 2
    assert shell("history", str(newest(product) + 1)).status == 5
    assert shell("rollback", str(newest(product) + 1), "--yes").status == 5
    assert shell("rollback", "1", "--object", "absent", "--yes").status == 5
    assert shell.good("history", "--kind", "plan", "--username", "absent").rows == []


def test_the_history_goes_on_when_the_api_is_killed(shell: Shell, product: Product, proxy: dict[str, Any]) -> None:
    base = newest(product)
    moved = free_port()
    product.api("POST", f"/proxies/{proxy['id']}/stop")
    product.api("PATCH", f"/proxies/{proxy['id']}", {"port": moved})
    killed = product.actor("api")
    killed.kill()
    killed.wait(60)
    product.wait_healthy()
    assert newest(product) == base + 2
    shell.good("rollback", str(base), "--yes")
    restored = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]
    assert (restored["port"], restored["status"]) == (proxy["port"], "active")
