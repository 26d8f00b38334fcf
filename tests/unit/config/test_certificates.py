"""Files with certificates that a request names: what must not be read at all."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from config.files.certificates import LARGEST, CertificateError, server_context
from config.files.secret_box import SecretBox
from config.model.fields import InvalidProxy
from config.model.proxies import ProxyTls, blank_record
from config.model.proxy_parts import check_certificate
from config.model.shared_objects.upstreams import ProxyUpstream, UpstreamInput, replace_upstreams
from config.settings.settings import ServerTls
from tests.kit.certificates import make_pair


@pytest.fixture(params=["device", "pipe", "directory", "empty", "kernel", "large", "missing"])
def unreadable(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A path that reading would not end at, or that has no certificate for sure."""
    path = tmp_path / "file"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "directory":
        path.mkdir()
    elif request.param in ("empty", "large"):
        path.touch()
        os.truncate(path, 0 if request.param == "empty" else LARGEST + 1)
    return {"device": Path("/dev/zero"), "kernel": Path("/proc/self/status")}.get(request.param, path)


def test_what_is_no_file_of_a_sane_size_is_refused_by_its_field_and_not_read(unreadable: Path) -> None:
    with pytest.raises(CertificateError) as refused:
        server_context(unreadable, unreadable)
    assert refused.value.field == "cert_file"
    assert str(unreadable) in refused.value.error


def test_neither_is_it_as_authorities_of_an_upstream(
    unreadable: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = {"ca_file": str(unreadable)}
    upstream = UpstreamInput.model_validate({"protocol": "https", "host": "p.example", "port": 1, "tls": tls})
    with pytest.raises(InvalidProxy) as refused:
        replace_upstreams([], [upstream], SecretBox(tmp_path / "keys" / "secrets.key"), ProxyUpstream)
    assert refused.value.field == "upstreams[0].tls.ca_file"
    assert (str(unreadable) in refused.value.error, str(unreadable) in caplog.text) == (False, True)


@pytest.mark.parametrize("field", ["cert_file", "key_file"])
def test_callers_hear_the_same_of_every_file_and_the_log_has_the_cause(
    tmp_path: Path, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    good, other = (
        dict(zip(("cert_file", "key_file"), make_pair(folder(tmp_path, each)), strict=True)) for each in "ab"
    )
    text = tmp_path / "text"
    text.write_text("secret words")
    garbled = tmp_path / "garbled"
    garbled.write_text(Path(good[field]).read_text().replace("\n", "\nAAAA", 3))
    wrong = [str(text), str(garbled), str(tmp_path), str(tmp_path / "none"), "/dev/zero"]
    if field == "key_file":
        wrong.append(other[field])
    refusals = {refusal_of({**good, field: each}) for each in wrong}
    assert len(refusals) == 1
    assert refusals.pop()[0] == f"tls.{field}"
    assert "No such file" in caplog.text


def test_which_file_is_blamed_tells_nothing_of_the_other(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no certificate")
    absent = str(tmp_path / "none")
    fields = {refusal_of({"cert_file": each, "key_file": absent})[0] for each in (str(text), absent, str(tmp_path))}
    assert fields == {"tls.cert_file"}


def test_an_encrypted_key_is_refused_without_a_try_since_it_says_itself_how_much_work_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = map(Path, make_pair(tmp_path))
    encrypted = load_pem_private_key(key.read_bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"sesame")
    )
    legacy = key.read_bytes().replace(b"KEY-----\n", b"KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: DES-CBC,0011\n\n", 1)
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", lambda *_given, **_more: pytest.fail("it was tried"))
    for content in (encrypted, legacy):
        key.write_bytes(content)
        with pytest.raises(CertificateError, match="is encrypted") as refused:
            server_context(cert, key)
        assert refused.value.field == "key_file"


def folder(parent: Path, name: str) -> Path:
    made = parent / name
    made.mkdir()
    return made


def refusal_of(tls: dict[str, str]) -> tuple[str, str]:
    record = blank_record("prx_1", "p", "127.0.0.1", 1, "https", 0.0, 30)
    with pytest.raises(InvalidProxy) as refused:
        check_certificate(record.model_copy(update={"tls": ProxyTls(**tls)}), ServerTls())
    return refused.value.field, refused.value.error
