"""Any configuration, exported with its secrets and imported elsewhere, is the same configuration there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config import passwords
from tests.kit.api_stage import PASSWORD, Api
from tests.unit.api.importing import HEAD, PASSPHRASE, SEALED, Importing

NAMES = st.text("abcdefgh-", min_size=1, max_size=6).filter(lambda name: name.strip("-") != "")
SECRET = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=12)
NETWORKS = st.lists(st.sampled_from(["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32"]), max_size=2, unique=True)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


ACCOUNT = st.fixed_dictionaries(
    {"username": NAMES, "password": SECRET},
    optional={
        "enabled": st.booleans(),
        "limits": some(bandwidth_in=st.integers(1024, 9999), connections=st.integers(0, 9)),
        "quota": some(bytes=st.integers(0, 10**12), period=st.sampled_from(["day", "total"])),
        "expires_at": st.sampled_from([None, "2020-01-01T00:00:00Z", "2090-01-01T00:00:00Z"]),
        "allow_clients": NETWORKS,
    },
)
UPSTREAM = st.fixed_dictionaries(
    {
        "protocol": st.sampled_from(["http", "https", "socks5"]),
        "host": NAMES.map(lambda name: f"x{name}x.example"),
        "port": st.integers(1, 65535),
    },
    optional={
        "auth": st.fixed_dictionaries({"username": NAMES}, optional={"password": SECRET}),
        "weight": st.integers(1, 100),
        "proxy_protocol": st.sampled_from(["v1", "v2"]),
    },
)
PROXY = some(
    status=st.sampled_from(["active", "inactive"]),
    auth=st.fixed_dictionaries({"enabled": st.booleans(), "username": st.just("Client"), "password": SECRET}),
    settings=some(timeout=st.integers(1, 3600), keep_alive=st.booleans(), max_connections=st.integers(1, 100)),
    access=some(allow_clients=NETWORKS, deny_clients=NETWORKS, mode=st.sampled_from(["enforce", "report"])),
    limits=some(bandwidth_out=st.integers(1024, 9999), requests_per_minute=st.integers(0, 99)),
    accounts=st.lists(ACCOUNT, max_size=3, unique_by=lambda each: each["username"]),
    upstreams=st.lists(
        UPSTREAM,
        max_size=3,
        unique_by=lambda each: (each["protocol"], each["host"], each["port"], each.get("auth", {}).get("username")),
    ),
    upstream_policy=st.sampled_from(["failover", "sticky"]),
    upstream_check=some(enabled=st.booleans(), interval=st.floats(1, 3600)),
    tags=st.lists(NAMES, max_size=2),
    accept_proxy_protocol=st.booleans(),
    headers=some(via=st.sampled_from(["pseudonym", "on", "off"])),
)
USER = some(
    email=st.none() | NAMES.map(lambda name: f"x{name}x@example.com"),
    role=st.sampled_from(["administrator", "operator", "user", "auditor"]),
    permissions=st.none() | st.lists(st.sampled_from(["proxy.read", "admin"]), max_size=2, unique=True),
    status=st.sampled_from(["active", "disabled"]),
    email_claimed=st.booleans(),
    oauth=st.none() | NAMES.map(lambda name: {"provider": "custom", "issuer": "https://id.example", "subject": name}),
)
WEBHOOK = st.fixed_dictionaries(
    {
        "url": NAMES.map(lambda name: f"https://hooks.example/{name}"),
        "events": st.lists(st.sampled_from(["*", "proxy.up"]), min_size=1, max_size=2, unique=True),
    },
    optional={"enabled": st.booleans(), "headers": st.dictionaries(NAMES.map(lambda name: f"X{name}X"), SECRET)},
)
SETTINGS = some(
    proxy=some(default_timeout=st.integers(1, 3600)), logging=some(level=st.sampled_from(["info", "error"]))
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    proxies = draw(st.dictionaries(NAMES, PROXY, max_size=3))
    people = draw(st.dictionaries(NAMES, USER, max_size=2))
    hooks = draw(st.dictionaries(NAMES, WEBHOOK, max_size=2))
    listed = [
        {"protocol": "http", "port": 1000 + number, "name": name, **fields}
        for number, (name, fields) in enumerate(proxies.items())
    ]
    return {
        **HEAD,
        "proxies": listed,
        "users": [{"username": "admin"}, *({"username": n, "password": PASSWORD, **u} for n, u in people.items())],
        "webhooks": [{"name": name, **hook} for name, hook in hooks.items()],
        "settings": draw(SETTINGS),
    }


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[Importing, Importing]]:
    """Two installations; each example is imported over what the one before it has left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords.hash_password, "__defaults__", (4,))
        first, second = Api(), Api()
        yield Importing(first), Importing(second)
        first.close()
        second.close()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(document=documents())
def test_export_and_import_elsewhere_is_the_same_configuration(
    two: tuple[Importing, Importing], document: dict[str, Any]
) -> None:
    here, there = two
    first = here.post(document, "prune=true")
    assert first.status_code == 200, first.text
    assert here.post(document, "prune=true").json["data"]["changed"] is False
    sealed = here.export("encrypted", **SEALED)
    response = there.post(sealed, "prune=true", X_Passphrase=PASSPHRASE)
    assert response.status_code == 200, response.text
    assert there.export() == here.export()
    assert there.post(sealed, "prune=true", X_Passphrase=PASSPHRASE).json["data"]["changed"] is False
    assert there.post(there.export(), "prune=true").json["data"]["changed"] is False
