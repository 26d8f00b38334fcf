"""Secrets from systemd: which key they stand for, and what they are weaker and stronger than."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.files.paths import DataDir
from config.files.secret_box import SecretBoxError, secret_box_of
from config.settings.loading import load
from config.settings.settings import ConfigError


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    return tmp_path


def test_credentials_stand_for_keys_of_the_configuration(credentials: Path) -> None:
    (credentials / "admin-password").write_text("from a credential\n")
    (credentials / "prometheus-token").write_text("0123456789abcdef")
    settings = load()
    assert settings.admin_password is not None
    assert settings.admin_password.get_secret_value() == "from a credential"
    assert settings.metrics.prometheus_token is not None
    assert settings.metrics.publish == "tcp://127.0.0.1:5556"


def test_the_environment_is_stronger_and_the_file_weaker(
    credentials: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (credentials / "admin-password").write_text("from a credential")
    (credentials / "prometheus-token").write_text("from a credential")
    monkeypatch.setenv("PROXYFLEET_ADMIN_PASSWORD", "from the environment")
    file = tmp_path / "config.toml"
    file.write_text('[metrics]\npublish = ""\nprometheus_token = "written in a file"\n')
    settings = load(file)
    assert settings.admin_password is not None
    assert settings.admin_password.get_secret_value() == "from the environment"
    assert settings.metrics.prometheus_token is not None
    assert settings.metrics.prometheus_token.get_secret_value() == "from a credential"
    assert settings.metrics.publish == ""


@pytest.mark.parametrize("text", ["", "\n", None])
def test_a_credential_that_is_empty_or_missing_is_not_given(credentials: Path, text: str | None) -> None:
    if text is not None:
        (credentials / "admin-password").write_text(text)
    assert load().admin_password is None


def test_a_credential_that_is_no_text_is_refused_by_its_name(credentials: Path) -> None:
    (credentials / "admin-password").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="the credential admin-password can't be read"):
        load()


def test_a_bad_value_in_a_credential_is_named_by_its_key_and_not_shown(credentials: Path) -> None:
    (credentials / "prometheus-token").write_text("too short")
    with pytest.raises(ConfigError, match=r"metrics\.prometheus_token") as refused:
        load()
    assert "too short" not in str(refused.value)


def test_the_key_of_sealed_secrets_is_the_credential_and_none_is_made(credentials: Path, tmp_path: Path) -> None:
    (credentials / "secrets-key").write_text("5a" * 32 + "\n")
    data = DataDir(tmp_path / "data")
    seal = secret_box_of(data)
    seal.ensure()
    assert not (data.keys / "secrets.key").exists()
    sealed = seal.seal("a secret", "a purpose")
    (credentials / "secrets-key").write_text("a5" * 32 + "\n")
    with pytest.raises(SecretBoxError, match="another key"):
        secret_box_of(data).open(sealed, "a purpose")


def test_without_that_credential_the_key_is_a_file_of_the_data_directory(credentials: Path, tmp_path: Path) -> None:
    (credentials / "secrets-key").write_text("\n")
    data = DataDir(tmp_path / "data")
    secret_box_of(data).ensure()
    assert (data.keys / "secrets.key").exists()
