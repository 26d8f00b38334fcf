"""A fleet at a machine whose product is stopped, with DSNs from standard input; and a backup that goes into a fleet."""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path

import psycopg

from actors.cluster.identity import NodeIdentity, identity_of
from api.store import open_store
from config.files.secret_box import secret_box_of
from tests.kit.postgresql import PASSWORD, database, needs_postgresql
from tests.kit.spare_product import SpareProduct
from tests.product.cli.shell import Shell, signed_in
from tests.product.cli.sites import Site

EMPTY = "the first line of standard input is empty"


def identity(site: Site) -> NodeIdentity:
    found = identity_of(site.data, secret_box_of(site.data))
    assert found is not None
    return found


def init(site: Site, dsn: str) -> None:
    given = ("--name", "fra1", "--address", "192.0.2.1", "--shared-role")
    made = site.shell("cluster", "init", "--dsn", "-", *given, stdin=f"{dsn}\nmore\n")
    assert made.status == 0, made.err
    assert PASSWORD not in made.out + made.err


@needs_postgresql
def test_a_dsn_is_read_from_the_first_line_of_standard_input_and_printed_nowhere(site: Site) -> None:
    with database() as dsn:
        for words in (("init", "--dsn", "-"), ("init", "--move", "-", "--force"), ("migrate", "--dsn", "-")):
            for stdin in ("", "\n", "  \n"):
                refused = site.shell("cluster", *words, stdin=stdin)
                assert (refused.status, f"{words[1]}: {EMPTY}" in refused.err) == (2, True), (words, refused.err)
        direct = "postgresql://pf:sesame@127.0.0.1:1/x"
        noted = site.shell("cluster", "init", "--dsn", "-", "--listen-dsn", direct, stdin="")
        assert "the list of processes has had this password" in noted.err
        assert "sesame" not in noted.out + noted.err
        assert not site.data.node.exists()
        init(site, dsn)
        assert identity(site).name == "fra1"
        planned = site.shell("cluster", "migrate", "--dsn", "-", "--dry-run", "-o", "json", stdin=f"{dsn}\n")
        assert (planned.status, planned.data["migrations"]) == (0, []), planned.err
        wrong = dsn.replace(PASSWORD, "another-one")
        refused = site.shell("cluster", "migrate", "--dsn", "-", stdin=f"{wrong}\n")
        assert refused.status == 1
        assert "another-one" not in refused.out + refused.err


def test_force_without_a_move_is_refused(site: Site) -> None:
    refused = site.shell("cluster", "init", "--dsn", "-", "--force", stdin="postgresql://pf@127.0.0.1:1/x\n")
    assert (refused.status, "--force is for --move alone" in refused.err) == (2, True), refused.err


@needs_postgresql
def test_a_stopped_node_follows_another_database_by_force_when_the_present_one_is_gone(site: Site) -> None:
    with database() as other:
        refused = site.shell("cluster", "init", "--move", "-", "--force", stdin=f"{other}\n")
        assert (refused.status, "is not a node of a fleet" in refused.err) == (1, True), refused.err
        with database() as dsn:
            init(site, dsn)
            whole = ["pg_dump", "--schema=proxyfleet", "--no-owner", "--no-privileges", "--dbname", dsn]
            text = subprocess.run(whole, capture_output=True, check=True).stdout
            subprocess.run(["psql", "-q", "--dbname", other], input=text, capture_output=True, check=True)
        refused = site.shell("cluster", "init", "--move", "-", stdin=f"{other}\n")
        assert (refused.status, "--force" in refused.err) == (1, True), refused.err
        before = identity(site)
        done = site.shell("cluster", "init", "--move", "-", "--force", "-o", "json", stdin=f"{other}\n")
        assert done.status == 0, done.err
        assert PASSWORD not in done.out + done.err
        now = identity(site)
        assert (now.id, now.fleet, now.dsn == before.dsn) == (before.id, before.fleet, False)
        with psycopg.connect(now.dsn) as connection:
            assert connection.execute("SELECT id FROM proxyfleet.fleet").fetchone() == (now.fleet,)
        status = site.shell("cluster", "status", "-o", "json")
        assert status.status == 0, (status.out, status.err)


def test_a_backup_goes_into_what_runs_with_its_secrets_and_deletes_nothing(
    own_product: SpareProduct, site: Site, tmp_path: Path
) -> None:
    product = own_product
    with closing(open_store(site.data)) as store:  # nothing is sent from a test
        store.delete("webhooks", store.find("webhooks")[0].id)
    file, where = site.backup(), {"PROXYFLEET_DATA_DIR": str(product.data_dir)}
    shell = signed_in(product, tmp_path / "home")
    kept = product.data("POST", "/lists", {"name": "kept", "kind": "domains", "entries": ["a.example"]})["list"]
    here = Shell(tmp_path / "home", product.base_url, **where)
    words = ("restore", str(file), "--to-fleet", "--passphrase-file", str(site.secret))
    refused = here(*words, "--force")
    assert (refused.status, "--force is for a restore without --to-fleet" in refused.err) == (2, True)
    planned = here.good(*words, "--dry-run", "-o", "json").data
    assert {(each["kind"], each["name"]) for each in planned["changes"] if each["kind"] == "proxy"} == {
        ("proxy", "chained"),
        ("proxy", "plain"),
    }
    assert not any(each["action"] == "delete" for each in planned["changes"])
    assert shell.good("proxies", "list", "-o", "json").data["proxies"] == []
    here.good(*words, "--yes")
    product.forget_token()  # the administrator has the password of the archive
    names = {each["name"] for each in product.data("GET", "/proxies")["proxies"]}
    assert names == {"chained", "plain"}
    assert product.data("GET", f"/lists/{kept['id']}")["list"]["name"] == "kept"
    again = signed_in(product, tmp_path / "again").good(*words, "--dry-run", "-o", "json", **where).data
    assert [each["fields"] for each in again["changes"] if each["action"] != "unchanged"] == []
