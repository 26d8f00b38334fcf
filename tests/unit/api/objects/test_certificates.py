"""Certificates that are made or uploaded for proxies: usable at once, and their keys in no response and no log."""

from __future__ import annotations

import errno
import logging
import os
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from config.files import pairs
from config.files.certificates import server_context
from tests.kit.api_stage import Api, error_of
from tests.kit.certificates import make_ended_pair, make_pair
from tests.kit.tables import table

HTTPS = {"name": "tls", "port": 3443, "protocol": "https"}


def created(api: Api, **body: Any) -> dict[str, Any]:
    response = api.post("/certificates", body, api.token())
    assert response.status_code == 201, response.text
    found: dict[str, Any] = response.json["data"]["certificate"]
    return found


def texts(paths: tuple[str, str]) -> dict[str, str]:
    """The body that uploads these files."""
    return dict(zip(("certificate", "private_key"), (Path(each).read_text() for each in paths), strict=True))


def test_a_certificate_that_signs_itself_serves_a_proxy_and_is_trusted_for_its_names_by_who_has_it(api: Api) -> None:
    made = created(api, names=["Proxy.Example", "127.0.0.1"])
    assert (made["names"], made["self_signed"]) == (["proxy.example", "127.0.0.1"], True)
    files = {name: made[name] for name in ("cert_file", "key_file")}
    assert {stat.S_IMODE(Path(each).stat().st_mode) for each in files.values()} == {0o600}
    assert api.post("/proxies", {**HTTPS, "tls": files}, api.token()).status_code == 201
    assert subject_of_handshake(made, "proxy.example") == (("commonName", "proxy.example"),)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"other\.example"):
        subject_of_handshake(made, "other.example")


def subject_of_handshake(made: dict[str, Any], name: str) -> Any:
    """What a client that trusts the certificate alone reads of it."""
    serves = server_context(Path(made["cert_file"]), Path(made["key_file"]))
    trusts = ssl.create_default_context(cafile=made["cert_file"])
    to_server, to_client = (ssl.MemoryBIO() for _ in range(2))
    server = serves.wrap_bio(to_server, to_client, server_side=True)
    client = trusts.wrap_bio(to_client, to_server, server_hostname=name)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return client.getpeercert()["subject"][0]  # type: ignore[index]


def test_an_uploaded_pair_is_stored_once_and_its_key_comes_back_nowhere(
    api: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = texts(make_pair(tmp_path, hosts=["office.example"]))
    first, second = created(api, **body), created(api, **body)
    assert first == second
    assert first["names"] == ["office.example", "127.0.0.1"]
    assert len(list(api.data.keys.glob("tls-*"))) == 2
    secret = body["private_key"].splitlines()[1]
    assert secret in Path(first["key_file"]).read_text()
    audit = api.get("/audit", api.token()).text
    assert "createCertificate" in audit
    assert not [each for each in (caplog.text, audit, str(first)) if secret in each]


@table(
    ("names", "fields"),
    [
        (("first", "second"), {"private_key": "is not the key of the certificate"}),
        (("ended", "ended"), {"certificate": "ended at"}),
    ],
)
def test_a_pair_that_no_server_can_use_is_refused_at_its_field_and_not_kept(
    api: Api, tmp_path: Path, names: tuple[str, str], fields: dict[str, str]
) -> None:
    for each in ("first", "second", "ended"):
        (tmp_path / each).mkdir(exist_ok=True)
        make_ended_pair(tmp_path / each) if each == "ended" else make_pair(tmp_path / each)
    body = texts((str(tmp_path / names[0] / "cert.pem"), str(tmp_path / names[1] / "key.pem")))
    refused(api, body, fields)
    assert list(api.data.keys.glob("tls-*")) == []


@table(
    ("body", "fields"),
    [
        ({}, {"names": "must be given"}),
        ({"names": []}, {"names": ""}),
        ({"names": ["a b"]}, {"names[0]": "host name"}),
        ({"certificate": "x"}, {"private_key": "is required"}),
        ({"names": ["a.example"], "private_key": "x"}, {"private_key": "not allowed"}),
        ({"certificate": "x", "private_key": "y"}, {"certificate": "PEM"}),
        ({"certificate": "é", "private_key": "y"}, {"certificate": "ASCII"}),
    ],
)
def test_what_is_no_certificate_is_refused_at_its_field(api: Api, body: dict[str, Any], fields: dict[str, str]) -> None:
    refused(api, body, fields)


def refused(api: Api, body: dict[str, Any], fields: dict[str, str]) -> None:
    status, code, details = error_of(api.post("/certificates", body, api.token()))
    found = {each["field"]: each["error"] for each in details.get("errors", [details])}
    assert (status, code, found.keys()) == (400, "INVALID_REQUEST", fields.keys())
    assert [name for name, text in fields.items() if text not in found[name]] == []


def test_where_there_is_no_room_pairs_that_nothing_names_go(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, left, upstream = (created(api, names=[f"{each}.example"]) for each in ("kept", "left", "upstream"))
    files = {name: kept[name] for name in ("cert_file", "key_file")}
    assert api.post("/proxies", {**HTTPS, "tls": files}, api.token()).status_code == 201
    chained = {"protocol": "https", "host": "up.example", "port": 1, "tls": {"ca_file": upstream["cert_file"]}}
    body = {"name": "chained", "port": 3444, "protocol": "http", "upstreams": [chained]}
    assert api.post("/proxies", body, api.token()).status_code == 201
    for each in api.data.keys.glob("tls-*"):
        os.utime(each, (1, 1))
    fresh = created(api, names=["fresh.example"])
    size = sum(each.stat().st_size for each in api.data.keys.glob("tls-*"))
    monkeypatch.setattr(pairs, "ROOM", size + 100)
    created(api, names=["new.example"])
    there = [Path(each["key_file"]).exists() for each in (kept, left, upstream, fresh)]
    assert there == [True, False, True, True], "one that was just made is about to be named"
    monkeypatch.setattr(pairs, "ROOM", 100)
    assert error_of(api.post("/certificates", {"names": ["more.example"]}, api.token()))[0] == 400
    assert all(Path(each).exists() for each in files.values())


def test_a_stored_pair_that_was_damaged_is_stored_again(api: Api, tmp_path: Path) -> None:
    body = texts(make_pair(tmp_path))
    files = [Path(created(api, **body)[name]) for name in ("cert_file", "key_file")]
    whole = [each.read_text() for each in files]
    files[1].write_text("")
    files[0].unlink()
    files[0].symlink_to(tmp_path / "cert.pem")
    assert created(api, **body)["cert_file"] == str(files[0])
    assert [each.read_text() for each in files] == whole
    assert not files[0].is_symlink()


def test_names_of_an_unknown_kind_are_left_out(api: Api, tmp_path: Path) -> None:
    private, now = generate_private_key(SECP256R1()), datetime.now(UTC)
    name, edi_party_name = x509.Name([]), b"\x30\x07\xa5\x05\xa1\x03\x0c\x01a"
    builder = x509.CertificateBuilder(name, name, private.public_key(), 1, now, now + timedelta(days=1))
    extension = x509.UnrecognizedExtension(x509.ExtensionOID.SUBJECT_ALTERNATIVE_NAME, edi_party_name)
    made = builder.add_extension(extension, critical=False).sign(private, SHA256())
    key = private.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    found = created(api, certificate=made.public_bytes(Encoding.PEM).decode(), private_key=key.decode())
    assert found["names"] == []


def test_on_a_full_disk_nothing_is_left_and_the_response_says_that_nothing_was_changed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, _content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(pairs, "write_synced", full)
    response = api.post("/certificates", {"names": ["a.example"]}, api.token())
    assert (response.status_code, "nothing was changed" in response.text) == (500, True), response.text
    assert [*api.data.keys.glob("tls-*")] == []
