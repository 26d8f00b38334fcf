"""`proxyfleet convert`: what it writes and reports, and that the product takes its documents."""

from __future__ import annotations

import gzip
import json
import tomllib
from pathlib import Path
from typing import Any

from tests.kit.product import Product
from tests.kit.tables import table
from tests.product.cli.shell import Shell
from tests.unit.api.convert.expectations import EXPECTED, FOLDER

DEFAULT = str(FOLDER / "squid-default.conf")
SAMPLE = str(FOLDER / "3proxy-sample.cfg")


def test_the_document_goes_to_standard_output_and_the_report_beside_it(stranger: Shell) -> None:
    ran = stranger("convert", DEFAULT)
    assert ran.status == 0
    assert tomllib.loads(ran.out)["proxies"][0]["port"] == 3128
    assert "Of no meaning here:" in ran.err
    assert f"{DEFAULT}:23: coredump_dir" in ran.err


def test_programs_get_both_as_json(stranger: Shell) -> None:
    ran = stranger("convert", SAMPLE, "-o", "json")
    assert ran.status == 0
    assert ran.err == ""
    assert len(ran.data["document"]["proxies"]) == 2
    remarks = ran.data["report"]["remarks"]
    assert ran.data["report"]["summary"]["lost"] == sum(each["effect"] == "lost" for each in remarks) > 0
    assert {"effect", "file", "line", "directive", "why", "instead"} == remarks[0].keys()


@table("suffix", ["toml", "json"])
def test_files_are_written_in_the_form_of_their_names(stranger: Shell, tmp_path: Path, suffix: str) -> None:
    to, report = tmp_path / f"fleet.{suffix}", tmp_path / "report.json"
    ran = stranger("convert", SAMPLE, "--to", str(to), "--report", str(report))
    assert (ran.status, ran.err) == (0, "")
    assert "2 proxies, 2 accounts, 2 policies" in ran.out
    read = tomllib.loads if suffix == "toml" else json.loads
    assert read(to.read_text())["kind"] == "proxyfleet.config"
    assert json.loads(report.read_text())["remarks"]
    assert to.stat().st_mode & 0o777 == 0o600


def test_strict_writes_nothing_unless_all_was_carried_over(stranger: Shell, tmp_path: Path) -> None:
    to, report = tmp_path / "fleet.toml", tmp_path / "report"
    ran = stranger("convert", SAMPLE, "--strict", "--to", str(to), "--report", str(report))
    assert ran.status == 1
    assert not to.exists()
    assert "admin" in report.read_text()


@table(("content", "arguments", "words"), [(None, [], "no such file"), ("", [], "--format")])
def test_what_can_not_be_read_ends_with_2(
    stranger: Shell, tmp_path: Path, content: str | None, arguments: list[str], words: str
) -> None:
    file = tmp_path / f"{words}.conf"
    if content is not None:
        file.write_text(content)
    ran = stranger("convert", str(file), *arguments)
    assert ran.status == 2
    assert words in ran.err


def test_files_are_found_below_root(stranger: Shell, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "bad.txt").write_text(".bad.example\n")
    file = tmp_path / "squid.conf"
    file.write_text('acl bad dstdomain -n "/etc/bad.txt"\nhttp_access deny bad\nhttp_port 127.0.0.1:3128\n')
    missing, found = (stranger("convert", str(file), "-o", "json", *more) for more in ((), ("--root", str(tmp_path))))
    assert missing.data["document"]["policies"][0]["rules"][0]["match"] == {}  # refuses all that it might have
    assert missing.data["report"]["summary"]["refuses"] == 1
    assert found.data["document"]["policies"][0]["rules"][0]["match"] == {
        "destinations": ["bad.example", "*.bad.example"]
    }
    assert found.data["report"]["summary"]["refuses"] == 0


LOGGED = """1717401600.123  45 10.0.0.1 TCP_MISS/200 12 GET http://a.example/ - HIER_DIRECT/198.51.100.1 text/html
1717401600.123  45 10.0.0.1 TCP_DENIED/403 12 GET http://bad.example/ - HIER_NONE/- text/html
"""


def test_a_log_is_replayed(stranger: Shell, tmp_path: Path) -> None:
    file, log, zipped = tmp_path / "squid.conf", tmp_path / "access.log", tmp_path / "access.log.1.gz"
    lines = "acl bad dstdomain -n .bad.example\nhttp_access deny bad\nhttp_access allow all\nhttp_port 127.0.0.1:3128\n"
    file.write_text(lines)
    log.write_text(LOGGED)
    zipped.write_bytes(gzip.compress(LOGGED.encode()))
    alike = stranger("convert", str(file), "--compare", str(log), "--compare", str(zipped))
    assert (alike.status, alike.out) == (0, "4 lines: 4 decided alike, 0 in another way, 0 left out\n")
    file.write_text(lines.replace("deny bad", "deny all", 1))
    different = stranger("convert", str(file), "--compare", str(log), "-o", "json")
    assert different.status == 6
    [group] = different.data["comparison"]["groups"]
    assert (group["squid"], group["here"], group["rule"], group["count"]) == (
        "direct",
        "refused",
        "line 2: deny all",
        1,
    )
    missing = stranger("convert", str(file), "--compare", str(tmp_path / "none"))
    assert (missing.status, missing.err.splitlines()[-1]) == (
        2,
        f"proxyfleet: {tmp_path / 'none'}: No such file or directory",
    )
    for damaged in (b"no gzip", gzip.compress(b"")[:10] + b"\xff" * 50):
        zipped.write_bytes(damaged)
        assert stranger("convert", str(file), "--compare", str(zipped)).status == 2


def test_lines_are_accepted_that_the_report_offers(stranger: Shell, tmp_path: Path) -> None:
    file = tmp_path / "squid.conf"
    file.write_text("url_rewrite_program /bin/true\nhttp_access allow all\nhttp_port 127.0.0.1:3128\n")
    closed = stranger("convert", str(file))
    assert "or leave it out: --accept 1" in closed.err
    accepted = stranger("convert", str(file), "--accept", "1", "-o", "json")
    assert [rule["action"]["use"] for rule in accepted.data["document"]["policies"][0]["rules"]] == ["direct"]
    assert accepted.data["report"]["summary"]["accepted"] == 1
    needless = stranger("convert", str(file), "--accept", "2")
    assert (needless.status, "--accept 2: there is nothing to accept" in needless.err) == (2, True)


def usable_here(document: dict[str, Any]) -> dict[str, Any]:
    """The document for this machine: nothing listens, and no name server is internal."""
    for proxy in document["proxies"]:
        proxy["status"] = "inactive"
        proxy.get("dns", {}).pop("servers", None)
    return document


def test_the_product_takes_every_converted_document(product: Product, stranger: Shell) -> None:
    for name, expected in EXPECTED.items():
        document = stranger("convert", str(FOLDER / name), "-o", "json").data["document"]
        if expected.proxies:
            done = product.data("POST", "/config/import?dry_run=true", usable_here(document))
            made = [each["name"] for each in done["changes"] if each["kind"] == "proxy"]
            assert len(made) == expected.proxies, name
            assert {each["action"] for each in done["changes"]} == {"create"}
