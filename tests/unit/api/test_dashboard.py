"""The dashboard is served: files with their headers, and nothing that is not a file of it."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest
from falcon.testing import Result

from api.api_settings import ApiSettings
from api.http.representation import preferred
from api.ui.page import all_files, files_in
from config.settings.settings import RateLimiting, Security
from tests.kit.api_stage import Api, error_of
from tests.kit.tables import table

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types svelte-trusted-html"
)
SCRIPT = next(path for path in all_files() if re.fullmatch(r"assets/first-[\w-]+\.js", path))


def fetch(api: Api, path: str, headers: dict[str, str] | None = None, method: str = "GET", **more: Any) -> Result:
    return api.client.simulate_request(method, path, headers=headers, **more)


def test_the_page_has_its_policy_and_is_checked_at_each_use(api: Api) -> None:
    result = fetch(api, "/ui/")
    assert (result.status_code, result.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert result.headers["Content-Security-Policy"] == POLICY
    assert result.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert result.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert result.headers["Referrer-Policy"] == "no-referrer"
    assert result.headers["X-Content-Type-Options"] == "nosniff"
    assert result.headers["Cache-Control"] == "no-cache"
    again = fetch(api, "/ui/", {"If-None-Match": f'"other", W/{result.headers["ETag"]}'})
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", result.headers["ETag"])
    assert fetch(api, "/ui/", {"If-None-Match": '"other"'}).status_code == 200


def test_every_file_that_the_page_names_is_there_for_ever(api: Api) -> None:
    named = re.findall(r'(?:src|href)="([^"]+)"', fetch(api, "/ui/").text)
    assert len(named) >= 3
    for path in named:
        result = fetch(api, path)
        assert (result.status_code, result.headers["Cache-Control"]) == (200, "public, max-age=31536000, immutable")


def test_scripts_are_compressed_where_the_browser_accepts_it(api: Api) -> None:
    path = f"/ui/{SCRIPT}"
    plain = fetch(api, path)
    assert "Content-Encoding" not in plain.headers
    assert plain.headers["Content-Type"] == "text/javascript; charset=utf-8"
    packed = fetch(api, path, {"Accept-Encoding": "gzip, deflate"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.content) == plain.content
    assert len(packed.content) < len(plain.content)
    assert {each.headers["Vary"] for each in (plain, packed)} == {"Accept-Encoding"}
    assert packed.headers["ETag"] != plain.headers["ETag"]
    known = fetch(api, path, {"Accept-Encoding": "gzip", "If-None-Match": packed.headers["ETag"]})
    assert (known.status_code, known.content) == (304, b"")


def test_forms_beside_a_file_are_its_encodings_and_no_files_of_their_own(tmp_path: Path) -> None:
    for name, content in (("index.html", b"page"), ("index.html.gz", b"1"), ("index.html.br", b"2"), ("a.js", b"3")):
        (tmp_path / name).write_bytes(content)
    found = files_in(tmp_path)
    assert found.keys() == {"index.html", "a.js"}
    page, script = found["index.html"], found["a.js"]
    assert (page.encodings, page.content) == (("br", "gzip"), {"br": b"2", "gzip": b"1", "identity": b"page"})
    assert len(set(page.etags.values())) == 3
    assert (script.encodings, script.content) == ((), {"identity": b"3"})


def test_the_page_weighs_little() -> None:
    """Bytes with gzip: of the first screen, and of all of them."""
    sizes = {path: len(file.content.get("gzip", file.content["identity"])) for path, file in all_files().items()}
    named = re.findall(rb'(?:src|href)="/ui/([^"]+)"', all_files()["index.html"].content["identity"])
    first = [sizes[path] for path in ("index.html", *(name.decode() for name in named))]
    assert len(first) >= 4
    assert sum(first) <= 150_000
    assert sum(sizes.values()) <= 300_000


@table(
    ("accept", "encoding"),
    [
        (None, "identity"),
        ("", "identity"),
        ("gzip", "gzip"),
        ("br;q=0.5, gzip;q=0.8", "gzip"),
        ("br;q=0, gzip;q=0", "identity"),
        ("*", "br"),
        ("*;q=0", "identity"),
        ("*, br;q=0", "gzip"),
        ("GZIP", "gzip"),
        ("gzip;q=2, br;q=x", "identity"),
        ("identity", "identity"),
    ],
)
def test_an_encoding_is_the_best_of_those_that_are_accepted(accept: str | None, encoding: str) -> None:
    assert preferred(accept, ("br", "gzip")) == encoding


@table("path", ["/ui/proxies", "/ui/proxies/prx_1/log", "/ui/sign-in", "/ui/assets/", "/ui/%2e%2e/"])
def test_the_address_of_a_screen_is_the_page(api: Api, path: str) -> None:
    result = fetch(api, path)
    assert (result.status_code, result.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert result.headers["ETag"] == fetch(api, "/ui/").headers["ETag"]


@table(
    "path",
    [
        "/ui/assets/missing.js",
        "/ui/favicon.ico",
        "/ui/../pyproject.toml",
        "/ui/%2e%2e/files.py",
        "/ui/assets/..%2f..%2ffiles.py",
        "/ui//etc/hosts.txt",
        f"/ui/{SCRIPT}.gz",
        "/ui/assets/\x00.js",
    ],
)
def test_what_is_no_file_of_the_page_is_404(api: Api, path: str) -> None:
    result = fetch(api, path)
    assert error_of(result)[:2] == (404, "NOT_FOUND")


@pytest.mark.parametrize("path", ["/uix", "/ui.js", "/UI/"])
def test_other_paths_are_not_of_the_dashboard(api: Api, path: str) -> None:
    assert fetch(api, path).status_code == 404


def test_head_has_the_headers_alone(api: Api) -> None:
    whole, head = fetch(api, "/ui/"), fetch(api, "/ui/", method="HEAD")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["ETag"] == whole.headers["ETag"]
    assert head.headers["Content-Length"] == str(len(whole.content))


def test_without_the_slash_it_redirects(api: Api) -> None:
    result = fetch(api, "/ui")
    assert (result.status_code, result.headers["Location"]) == (308, "/ui/")


@table("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_is_read_only(api: Api, method: str) -> None:
    result = fetch(api, "/ui/", method=method)
    assert (result.status_code, result.headers["Allow"]) == (405, "GET, HEAD")


def test_files_do_not_count_against_the_rate_of_an_address() -> None:
    api = Api(ApiSettings(security=Security(rate_limiting=RateLimiting(requests_per_minute=3))))
    assert {fetch(api, "/ui/").status_code for _ in range(10)} == {200}
    api.close()


def test_a_client_that_may_not_reach_the_api_gets_no_page() -> None:
    api = Api(ApiSettings(security=Security(ip_whitelist=("192.0.2.0/24",))))
    assert fetch(api, "/ui/").status_code == 403
    api.close()
