"""git clones from nginx, by http and https, through a protocol of each family."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.product.e2e.foreign.entrances import MakeEntrance
from tests.product.e2e.foreign.programs import Site, needs, run
from tests.product.e2e.repositories import make_repository

pytestmark = [pytest.mark.product, needs("git"), needs("nginx")]


@pytest.fixture(scope="module")
def commit(site: Site, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of the repository `/project.git`."""
    return make_repository(tmp_path_factory.mktemp("work"), site.files / "project.git")


@pytest.mark.parametrize("scheme", ["https", "socks5h"])
def test_a_clone_is_whole(entrance: MakeEntrance, site: Site, commit: str, scheme: str, tmp_path: Path) -> None:
    proxy = entrance(scheme)
    settings = {"http.proxy": proxy.url, "http.proxySSLCAInfo": proxy.certificate}
    given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    for number, url in enumerate((site.url("/project.git"), site.tls_url("/project.git"))):
        folder = tmp_path / str(number)
        run("env", f"GIT_SSL_CAINFO={proxy.certificate}", "git", *given, "clone", "-q", url, str(folder))
        assert run("git", "-C", str(folder), "rev-parse", "HEAD").stdout.strip() == commit
        assert run("git", "-C", str(folder), "fsck", "--strict").returncode == 0
    records = proxy.records_when(lambda found: len(found) > 1, "the clones")
    assert {record["status_code"] for record in records} == {200}
