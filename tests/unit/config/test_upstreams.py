"""Upstreams as people write them: what is refused and by which field, and what an update keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from config.files.secret_box import SecretBox
from config.model.fields import InvalidProxy
from config.model.shared_objects.upstreams import PURPOSE, ProxyUpstream, Upstreams, refuse_itself, replace_upstreams
from config.net.names import Ports
from tests.kit.tables import table

UPSTREAM = {"protocol": "http", "host": "upstream.example", "port": 3128}
READER: TypeAdapter[Any] = TypeAdapter(Upstreams)


@pytest.fixture
def seal(tmp_path: Path) -> SecretBox:
    return SecretBox(tmp_path / "keys" / "secrets.key")


def stored(seal: SecretBox, *entries: dict[str, Any], before: list[ProxyUpstream] | None = None) -> list[ProxyUpstream]:
    return replace_upstreams(before or [], READER.validate_python(list(entries)), seal, ProxyUpstream)


def field_of(error: ValidationError) -> str:
    return ".".join(str(part) for part in error.errors()[0]["loc"])


@table(
    ("changes", "field"),
    [
        ({"port": 0}, "0.port"),
        ({"port": "3128"}, "0.port"),
        ({"port": 65536}, "0.port"),
        ({"protocol": "ftp"}, "0.protocol"),
        ({"host": ""}, "0.host"),
        ({"host": "127.1"}, "0.host"),
        ({"host": "a b"}, "0.host"),
        ({"host": "http://upstream.example"}, "0.host"),
        ({"weight": 0}, "0.weight"),
        ({"weight": 101}, "0.weight"),
        ({"auth": {}}, "0.auth.username"),
        ({"auth": {"username": "a:b"}}, "0.auth.username"),
        ({"auth": {"username": "a", "password": ""}}, "0.auth.password"),
        ({"auth": {"username": "a", "password": None}}, "0.auth.password"),
        ({"auth": {"username": "a\n"}}, "0.auth.username"),
        ({"tls": {"ca_file": "relative.pem"}}, "0.tls.ca_file"),
        ({"tls": {"verify": "no"}}, "0.tls.verify"),
        ({"proxy_protocol": "v3"}, "0.proxy_protocol"),
        ({"colour": "red"}, "0.colour"),
        ({"name": None}, "0.name"),
    ],
)
def test_a_bad_field_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        READER.validate_python([{**UPSTREAM, **changes}])
    assert field_of(refused.value) == field


@pytest.mark.parametrize(
    ("entries", "field"),
    [
        ([{"protocol": "socks4", "auth": {"username": "a", "password": "b"}}], "upstreams[0].auth.password"),
        ([{"protocol": "socks5", "auth": {"username": "é" * 128}}], "upstreams[0].auth.username"),
        ([{"protocol": "socks5", "auth": {"username": "a", "password": "é" * 128}}], "upstreams[0].auth.password"),
        ([{}, {"tls": {"verify": False}}], "upstreams[1].tls"),
        ([{}, {"port": 1}, {}], "upstreams[2]"),
        ([{"name": "a"}, {"name": "a", "port": 1}], "upstreams[0].name"),
        ([{"protocol": "https", "tls": {"ca_file": "/nowhere/ca.pem"}}], "upstreams[0].tls.ca_file"),
    ],
)
def test_what_does_not_go_together_is_named(seal: SecretBox, entries: list[dict[str, Any]], field: str) -> None:
    with pytest.raises(InvalidProxy) as refused:
        stored(seal, *({**UPSTREAM, **entry} for entry in entries))
    assert refused.value.field == field


def test_a_list_is_as_long_as_those_that_are_sold_and_no_longer() -> None:
    many = [{**UPSTREAM, "port": port} for port in range(1, 10_001)]
    assert len(READER.validate_python(many)) == 10_000
    with pytest.raises(ValidationError):
        READER.validate_python([*many, UPSTREAM])


def test_a_password_is_sealed_kept_by_an_entry_without_one_and_gone_with_another_user(seal: SecretBox) -> None:
    first = stored(seal, {**UPSTREAM, "auth": {"username": "u", "password": "pass-phrase"}})
    assert "pass-phrase" not in first[0].model_dump_json()
    assert "pass-phrase" not in repr(first)
    kept = stored(seal, {**UPSTREAM, "weight": 7, "auth": {"username": "u"}}, before=first)
    assert kept[0].password is not None
    assert seal.open(kept[0].password, PURPOSE) == "pass-phrase"
    assert stored(seal, {**UPSTREAM, "auth": {"username": "v"}}, before=first)[0].password is None
    assert stored(seal, UPSTREAM, before=first)[0].password is None


def test_what_is_shown_can_be_sent_again_and_changes_nothing(seal: SecretBox) -> None:
    auth = {"username": "u", "password": "pass-phrase"}
    first = stored(
        seal,
        {**UPSTREAM, "auth": auth},
        {**UPSTREAM, "protocol": "https", "tls": {"verify": False, "server_name": "p.example"}},
        {**UPSTREAM, "protocol": "socks5", "proxy_protocol": "v2", "weight": 9, "name": "third"},
    )
    assert "pass-phrase" not in str([each.view() for each in first])
    assert stored(seal, *(each.view() for each in first), before=first) == first


def test_upstreams_without_a_name_are_called_by_protocol_and_address_and_distinguished(seal: SecretBox) -> None:
    users = [{**UPSTREAM, "auth": {"username": user}} for user in ("a", "b")]
    names = [each.name for each in stored(seal, *users, {**UPSTREAM, "host": "2001:db8::1"})]
    assert names == ["http://upstream.example:3128", "http://upstream.example:3128 (2)", "http://[2001:db8::1]:3128"]


@pytest.mark.parametrize(("own", "host"), [("192.0.2.1", "192.0.2.1"), ("0.0.0.0", "127.0.0.1"), ("::", "localhost")])
def test_a_proxy_is_not_its_own_upstream(seal: SecretBox, own: str, host: str) -> None:
    with pytest.raises(InvalidProxy) as refused:
        refuse_itself(stored(seal, {**UPSTREAM, "host": host}), own, Ports.of(3128))
    assert refused.value.field == "upstreams[0].port"
    refuse_itself(stored(seal, {**UPSTREAM, "host": host}), own, Ports.of(3129))
