"""A credential is invalid from the response to its revocation on, also after a kill of everything."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import requests

from tests.kit.fake_provider import CLIENT_ID, CLIENT_SECRET, REDIRECT, FakeProvider
from tests.kit.product import PASSWORD, Product
from tests.kit.spare_product import SpareProduct
from tests.kit.wait import wait_until

pytestmark = pytest.mark.product
LONG = 120.0
_names = itertools.count(1)


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    made = FakeProvider()
    yield made
    made.close()


@pytest.fixture
def product(own_product: SpareProduct, provider: FakeProvider) -> SpareProduct:
    """One that trusts the provider."""
    settings = {"provider": "custom", "discovery_url": provider.discovery_url, "redirect_uri": REDIRECT}
    lines = [f"{name} = {json.dumps(text)}" for name, text in settings.items()]
    client = f'client_id = "{CLIENT_ID}"\nclient_secret = {json.dumps(CLIENT_SECRET, ensure_ascii=False)}'
    own_product.configure("\n".join([own_product.configured, "[auth.oauth2]\nenabled = true", client, *lines, ""]))
    own_product.reload()
    as_data = {"Accept": "application/json"}
    begin = partial(call, own_product, "GET", "/auth/oauth2/authorize", headers=as_data)
    wait_until(lambda: begin().status_code == 200, "the provider is known")
    return own_product


@dataclass
class Credential:
    """`use` it and get the status; `end` it."""

    use: Callable[[], int]
    end: Callable[[], Any]


class Bearer:
    """A sign-in."""

    def __init__(self, product: Product, data: dict[str, Any]) -> None:
        self._product = product
        self.user_id, self.access, self.refresh = data["user"]["id"], data["access_token"], data["refresh_token"]

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.access}"}

    def use(self) -> int:
        return call(self._product, "GET", "/auth/test", headers=self.headers).status_code

    def renew(self) -> int:
        response = call(self._product, "POST", "/auth/refresh", json={"refresh_token": self.refresh})
        if response.status_code == 200:
            self.refresh = response.json()["data"]["refresh_token"]
        return response.status_code

    def log_out(self) -> None:
        assert call(self._product, "POST", "/auth/logout", headers=self.headers).status_code == 200

    def steal(self) -> None:
        """Use a refresh token a second time."""
        used = self.refresh
        assert self.renew() == 200
        assert call(self._product, "POST", "/auth/refresh", json={"refresh_token": used}).status_code == 401


def call(product: Product, method: str, path: str, **more: Any) -> requests.Response:
    """A call with these headers, on a connection of its own."""
    return requests.request(method, f"{product.base_url}/api/v1{path}", timeout=LONG, **more)


def person(product: Product) -> tuple[str, str]:
    """A new administrator: id and name."""
    name = f"person{next(_names)}"
    body = {"username": name, "password": PASSWORD, "role": "administrator"}
    return product.data("POST", "/users", body)["user"]["id"], name


def signed_in(product: Product) -> Bearer:
    _, name = person(product)
    response = call(product, "POST", "/auth/login", json={"username": name, "password": PASSWORD})
    return Bearer(product, response.json()["data"])


def signed_in_elsewhere(product: Product, provider: FakeProvider) -> Bearer:
    number = next(_names)
    provider.claims |= {"sub": f"subject-{number}", "email": f"person{number}@example.com"}
    begun = call(product, "GET", "/auth/oauth2/authorize", headers={"Accept": "application/json"}).json()["data"]
    back = provider.sign_in(begun["authorization_url"])
    return Bearer(product, call(product, "POST", "/auth/oauth2/callback", json=back).json()["data"])


def by_basic(product: Product, name: str) -> Callable[[], int]:
    """Used twice, so that the pair is remembered."""

    def use() -> int:
        first, second = (call(product, "GET", "/auth/test", auth=(name, PASSWORD)).status_code for _ in range(2))
        assert first == second
        return first

    return use


def key_of(product: Product, name: str) -> tuple[str, Callable[[], int]]:
    """The id of a new key, and how it is used."""
    made = call(product, "POST", "/api-keys", json={"name": "k"}, auth=(name, PASSWORD)).json()["data"]
    headers = {"X-API-Key": made["key"]}
    return made["api_key"]["id"], lambda: call(product, "GET", "/auth/test", headers=headers).status_code


def changed(product: Product, user_id: str, **fields: Any) -> Callable[[], Any]:
    return lambda: product.data("PATCH", f"/users/{user_id}", fields)


def deleted(product: Product, user_id: str) -> Callable[[], Any]:
    return lambda: product.data("DELETE", f"/users/{user_id}")


ENDS: dict[str, Callable[[Product, str], Callable[[], Any]]] = {
    "their owner is disabled": lambda product, user_id: changed(product, user_id, status="disabled"),
    "their owner is deleted": deleted,
    "their owner has another password": lambda product, user_id: changed(product, user_id, password="another password"),
}


def credentials(product: Product, provider: FakeProvider) -> dict[str, Credential]:
    """One of each kind for each way to end it."""
    made: dict[str, Credential] = {}
    out, stolen, elsewhere = signed_in(product), signed_in(product), signed_in_elsewhere(product, provider)
    made["a token, by logout"] = Credential(out.use, out.log_out)
    made["a refresh token, by logout"] = Credential(out.renew, lambda: None)
    made["a token, by a refresh token used twice"] = Credential(stolen.use, stolen.steal)
    made["a refresh token used twice"] = Credential(stolen.renew, lambda: None)
    made["a sign-in by OAuth, by logout"] = Credential(elsewhere.use, elsewhere.log_out)
    _, name = person(product)
    key_id, use = key_of(product, name)
    made["a key that is revoked"] = Credential(use, lambda: product.data("DELETE", f"/api-keys/{key_id}"))
    for how, end in ENDS.items():
        token = signed_in(product)
        made[f"tokens, when {how}"] = Credential(token.use, end(product, token.user_id))
        made[f"refresh tokens, when {how}"] = Credential(token.renew, lambda: None)
        user_id, name = person(product)
        made[f"remembered Basic, when {how}"] = Credential(by_basic(product, name), end(product, user_id))
        if "password" not in how:  # a key is no password
            user_id, name = person(product)
            made[f"keys, when {how}"] = Credential(key_of(product, name)[1], end(product, user_id))
        oauth = signed_in_elsewhere(product, provider)
        made[f"a sign-in by OAuth, when {how}"] = Credential(oauth.use, end(product, oauth.user_id))
    return made


def test_what_is_revoked_is_refused_at_once_and_after_a_kill_of_all_processes(
    product: Product, provider: FakeProvider
) -> None:
    made = credentials(product, provider)
    kept = signed_in(product)
    _, kept_key = key_of(product, person(product)[1])
    assert {name: each.use() for name, each in made.items()} == dict.fromkeys(made, 200)
    found = {}
    for name, each in made.items():
        each.end()
        found[name] = each.use()
    assert found == dict.fromkeys(made, 401)
    assert (kept.use(), kept_key()) == (200, 200)
    product.data("POST", "/auth/signing-key/rotate", {"revoke_previous": True})
    assert (kept.use(), kept_key()) == (401, 200)
    product.forget_token()
    later = signed_in(product)
    product.kill_all()
    product.start()
    assert {name: each.use() for name, each in made.items()} == dict.fromkeys(made, 401)
    assert (kept.use(), later.use(), kept_key(), kept.renew(), later.renew()) == (401, 200, 200, 200, 200)
