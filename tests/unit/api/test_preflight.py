"""What keeps a program from taking the place of another: found before anything is touched."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from actors.supervision.processes.actor_specs import ActorClasses
from api.operator.start import WouldNotStart, check_start
from config.files.paths import DataDir
from config.settings.loading import load


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    made = DataDir(tmp_path / "data")
    made.path.mkdir()
    return made


def test_a_good_installation_and_a_good_directory_would_start_and_nothing_is_written(data: DataDir) -> None:
    check_start(load(), data)
    assert list(data.path.rglob("*")) == []


def test_where_there_is_no_data_directory_yet_it_would_start(tmp_path: Path) -> None:
    check_start(load(), DataDir(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_data_of_a_newer_release_are_refused(data: DataDir) -> None:
    (data.path / "format").write_text('{"format": 999, "version": "9.9.9"}\n')
    with pytest.raises(WouldNotStart, match=r"9\.9\.9"):
        check_start(load(), data)


def test_a_damaged_file_of_the_store_is_named(data: DataDir) -> None:
    data.fleet.write_text("this is no store")
    with pytest.raises(WouldNotStart, match=r"fleet\.sqlite"):
        check_start(load(), data)


def test_a_certificate_that_is_gone_is_named_by_its_key(data: DataDir, tmp_path: Path) -> None:
    tls = {"enabled": True, "cert_file": tmp_path / "cert.pem", "key_file": tmp_path / "key.pem"}
    with pytest.raises(WouldNotStart, match=r"server\.tls\.cert_file"):
        check_start(load(None, {"server": {"tls": tls}}), data)


@pytest.mark.parametrize("entry", ["actors.nowhere:Actor", "actors.process:Nothing"])
def test_an_actor_that_can_not_be_loaded_is_named(data: DataDir, entry: str) -> None:
    with pytest.raises(WouldNotStart, match=entry):
        check_start(load(), data, ActorClasses(webhooks=entry))


def test_a_directory_that_cannot_be_written_is_named(data: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)  # as for root on a read-only disk
    with pytest.raises(WouldNotStart, match="can't be written"):
        check_start(load(), data)


def test_a_full_disk_is_named_since_the_api_would_not_start_on_it(
    data: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.operator.start.LEAST_SPACE", shutil.disk_usage(data.path).total)
    with pytest.raises(WouldNotStart, match="the disk is full"):
        check_start(load(), data)
