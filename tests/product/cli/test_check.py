"""`proxyfleet check-config`: certificates, ports and upstreams besides the file itself."""

from __future__ import annotations

import datetime
import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from api.store import open_store
from config.files.paths import DataDir
from tests.kit.certificates import make_pair
from tests.kit.ports import free_port
from tests.kit.product import Product
from tests.product.cli.shell import Shell
from tests.product.cli.sites import Site


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home", PROXYFLEET_DATA_DIR=str(tmp_path / "data"))


def pair(folder: Path, days: float) -> str:
    """Settings with a certificate that ends in so many days."""
    cert_file, key_file = make_pair(folder, left=datetime.timedelta(days=days))
    return f'[server.tls]\ncert_file = "{cert_file}"\nkey_file = "{key_file}"\n'


@pytest.mark.parametrize(
    ("days", "status", "words"),
    [
        (-1, 1, "expired at"),
        (10, 0, "note: server.tls.cert_file: "),
        (100, 0, "Checked: data_dir; server.tls.cert_file; descriptors."),
    ],
)
def test_a_certificate_is_judged_by_its_end(shell: Shell, tmp_path: Path, days: int, status: int, words: str) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(pair(tmp_path, days))
    checked = shell("check-config", "--config", str(file))
    assert (checked.status, words in checked.out + checked.err) == (status, True)


def test_files_that_are_no_pair_are_reported_by_field(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(pair(tmp_path, 100))
    other = tmp_path / "other"
    other.mkdir()
    pair(other, 100)
    (tmp_path / "key.pem").write_bytes((other / "key.pem").read_bytes())
    checked = shell("check-config", "--config", str(file))
    words = f"server.tls.key_file: {tmp_path / 'key.pem'}: is not the key of the certificate"
    assert (checked.status, words in checked.err) == (1, True)


def test_every_file_that_is_missing_is_reported_with_the_line_that_names_it(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text('[server]\nport = 8080\n[server.tls]\ncert_file = "/no/cert"\nkey_file = "/no/key"\n')
    checked = shell("check-config", "--config", str(file))
    assert checked.status == 1
    assert f"{file}:4: server.tls.cert_file: /no/cert: No such file" in checked.err
    assert f"{file}:5: server.tls.key_file: /no/key: No such file" in checked.err


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("key.pem", b"-----BEGIN ENCRYPTED PRIVATE KEY-----", "key_file: {file}: is encrypted"),
        ("key.pem", b"x", "key_file: {file}: has no private key in PEM"),
        ("cert.pem", b"x", "cert_file: {file}: has no certificate in PEM"),
    ],
)
def test_files_that_are_no_certificate_and_key_say_which_is_wrong(
    shell: Shell, tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(pair(tmp_path, 100))
    (tmp_path / name).write_bytes(content)
    checked = shell("check-config", "--config", str(file))
    assert (checked.status, words.format(file=tmp_path / name) in checked.err) == (1, True), checked.err


def test_a_certificate_of_tomorrow_is_not_good(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(pair(tmp_path, 401))
    checked = shell("check-config", "--config", str(file))
    assert (checked.status, "is not valid before" in checked.err) == (1, True)


def test_the_first_password_is_judged_while_there_is_no_one(shell: Shell, tmp_path: Path) -> None:
    checked = shell("check-config", PROXYFLEET_ADMIN_PASSWORD="short")
    assert checked.status == 1
    assert "PROXYFLEET_ADMIN_PASSWORD: admin_password: the password must have 8 to 128 characters" in checked.err
    (tmp_path / "data").mkdir()
    with closing(open_store(DataDir(tmp_path / "data"))) as store:
        store.put("users", {"id": "usr_1"})
    assert shell("check-config", PROXYFLEET_ADMIN_PASSWORD="short").status == 0


def test_data_that_cannot_be_written_are_found_before_the_start(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)  # as for root on a read-only disk
    checked = shell("check-config")
    assert (checked.status, f"data_dir: {tmp_path / 'data'}: can't be written" in checked.err) == (1, True)


def test_a_port_that_is_taken_is_found_by_probe_alone(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = {"PROXYFLEET_SERVER__PORT": str(other.getsockname()[1])}
        assert shell("check-config", **taken).status == 0
        probed = shell("check-config", "--probe", **taken)
    assert (probed.status, "is already in use" in probed.err) == (1, True)


@pytest.mark.product
def test_upstreams_of_stored_proxies_are_probed_while_the_product_runs(product: Product) -> None:
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        there, gone = upstream.getsockname()[1], product.free_port()
        upstreams = [{"protocol": "http", "host": "127.0.0.1", "port": port} for port in (there, gone)]
        proxy = product.proxy(upstreams=upstreams, upstream_check={"enabled": False})
        places = {"PROXYFLEET_DATA_DIR": str(product.data_dir), "PROXYFLEET_SERVER__PORT": str(product.port)}
        running = Shell(product.directory / "home", None, **places)("check-config", "--probe")
    product.data("DELETE", f"/proxies/{proxy['id']}")
    assert (running.status, f"127.0.0.1:{gone} can't be reached" in running.err) == (1, True)
    assert f"127.0.0.1:{there}" not in running.err
    assert "in use" not in running.err  # by the product


def test_ports_of_stored_proxies_are_probed_while_the_product_is_stopped(site: Site) -> None:
    store = open_store(site.data)
    port = next(each.body["port"] for each in store.find("proxies") if each.body["name"] == "chained")
    store.close()
    with socket.create_server(("127.0.0.1", port)):
        stopped = site.shell("check-config", "--probe", PROXYFLEET_SERVER__PORT=str(free_port()))
    assert f"proxy chained: port: port {port} on 127.0.0.1 is already in use" in stopped.err
