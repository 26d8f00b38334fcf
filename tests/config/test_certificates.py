"""Files with certificates that somebody named: what must not be read at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from config.certificates import LARGEST, CertificateError, server_context
from config.fields import InvalidProxy
from config.sealing import Seal
from config.upstreams import UpstreamInput, replace_parents


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


def test_neither_is_it_as_authorities_of_a_parent(unreadable: Path, tmp_path: Path) -> None:
    tls = {"ca_file": str(unreadable)}
    parent = UpstreamInput.model_validate({"protocol": "https", "host": "p.example", "port": 1, "tls": tls})
    with pytest.raises(InvalidProxy) as refused:
        replace_parents([], [parent], Seal(tmp_path / "keys" / "secrets.key"))
    assert refused.value.field == "upstreams[0].tls.ca_file"
