"""Signing in at a certified OpenID provider (npm's oidc-provider), with a browser's part played by `requests`."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
import requests

from tests.kit.folders import ROOT
from tests.kit.product import Product
from tests.kit.spare_product import SpareProduct
from tests.kit.wait import wait_until

CACHE = ROOT / ".cache" / "oidc-provider"
SCRIPT = Path(__file__).parent / "oidc" / "provider.js"
SECRET = "a secret with +, %, & and :, which has to be form-encoded"
REDIRECT = "https://fleet.example/signed-in"
STEPS = 20
OLDEST_NODE = 20

pytestmark = [
    pytest.mark.product,
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.skipif(shutil.which("npm") is None and not CACHE.exists(), reason="npm is not installed"),
]


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    """The address of a running provider."""
    version = subprocess.check_output(["node", "--version"], text=True)
    if int(version.lstrip("v").partition(".")[0]) < OLDEST_NODE:
        pytest.skip(f"node {OLDEST_NODE} is needed; this is {version.strip()}")
    installed = subprocess.run([str(SCRIPT.with_name("install"))], capture_output=True, text=True)
    if installed.returncode != 0:
        pytest.skip(f"the provider can't be installed: {installed.stderr}")
    command = ["node", str(SCRIPT), str(CACHE)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        with process:  # it ends with its standard input
            assert process.stdout is not None
            said = process.stdout.readline()
            errors.seek(0)
            assert said.startswith("http://"), f"the provider did not start: {said}{errors.read()}"
            yield said.strip()


@pytest.fixture
def fleet(own_product: SpareProduct, issuer: str) -> SpareProduct:
    """A product that trusts it, as the client `basic`; other clients come by the configuration file."""
    reconfigure(own_product, configuration(issuer, "basic"))
    return own_product


def configuration(issuer: str, client: str, **more: Any) -> str:
    settings = {
        "enabled": True,
        "provider": "custom",
        "discovery_url": f"{issuer}/.well-known/openid-configuration",
        "client_id": client,
        "client_secret": "" if client == "public" else SECRET,
        "redirect_uri": REDIRECT,
        **more,
    }
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in settings.items()]
    mapping = '[auth.oauth2.role_mapping]\n"groups=fleet" = "operator"\n'
    return "\n".join(["[auth.oauth2]", *lines, mapping])


def reconfigure(fleet: SpareProduct, text: str) -> None:
    """The file is read again, and the API has taken it over."""
    fleet.configure(text)
    fleet.reload()
    client = re.search(r'client_id = "(\w+)"', text)
    assert client is not None
    wait_until(lambda: f"client_id={client[1]}&" in authorize(fleet).text, "the API has the new settings")


def authorize(fleet: Product) -> requests.Response:
    url = f"{fleet.base_url}/api/v1/auth/oauth2/authorize"
    return requests.get(url, headers={"Accept": "application/json"}, timeout=30)


def begin(fleet: Product) -> dict[str, Any]:
    response = authorize(fleet)
    assert response.status_code == 200, response.text
    data: dict[str, Any] = response.json()["data"]
    return data


def finish(fleet: Product, back: dict[str, str], **more: Any) -> requests.Response:
    return requests.post(f"{fleet.base_url}/api/v1/auth/oauth2/callback", json=back, timeout=30, **more)


def walk(browser: requests.Session, url: str, person: str) -> dict[str, str]:
    """Follow redirects and fill in the forms until the provider sends the browser to the front end."""
    response = browser.get(url, allow_redirects=False, timeout=30)
    for _ in range(STEPS):
        if response.is_redirect:
            url = urljoin(response.url, response.headers["Location"])
            if url.startswith(REDIRECT):
                return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
            response = browser.get(url, allow_redirects=False, timeout=30)
        else:
            assert response.status_code == 200, response.text
            response = submit(browser, response, person)
    raise AssertionError("the provider has sent the browser round in circles")


def submit(browser: requests.Session, page: requests.Response, person: str) -> requests.Response:
    """Send the one form of a page, with the name and a password where they are asked for."""
    action = re.search(r'<form[^>]* action="([^"]+)"', page.text)
    prompt = re.search(r'name="prompt" value="(\w+)"', page.text)
    assert action is not None, page.text
    assert prompt is not None, page.text
    fields = {"prompt": prompt[1]} | ({"login": person, "password": "any"} if prompt[1] == "login" else {})
    return browser.post(urljoin(page.url, html.unescape(action[1])), data=fields, allow_redirects=False, timeout=30)


def sign_in(fleet: Product, person: str) -> requests.Response:
    return finish(fleet, walk(requests.Session(), begin(fleet)["authorization_url"], person))


@pytest.mark.parametrize("client", ["basic", "post", "public", "es256"])
def test_someone_signs_in_with_every_kind_of_client(fleet: SpareProduct, issuer: str, client: str) -> None:
    more = {"token_auth_method": "client_secret_post"} if client == "post" else {}
    if client != "basic":
        reconfigure(fleet, configuration(issuer, client, **more))
    response = sign_in(fleet, f"jane-{client}")
    assert response.status_code == 200, response.text
    data = response.json()["data"]
    assert (data["user"]["email"], data["user"]["role"]) == (f"jane-{client}@example.com", "user")
    bearer = {"Authorization": f"Bearer {data['access_token']}"}
    who = requests.get(f"{fleet.base_url}/api/v1/auth/test", headers=bearer, timeout=30)
    assert who.json()["data"]["user_id"] == data["user"]["id"]


def test_a_browser_goes_all_the_way_with_its_cookies(fleet: SpareProduct, issuer: str) -> None:
    browser = requests.Session()
    url = f"{fleet.base_url}/api/v1/auth/oauth2/authorize?provider=custom"
    start = browser.get(url, allow_redirects=False, timeout=30)
    assert start.status_code == 302
    cookie = start.headers["Set-Cookie"].partition(";")[0]
    back = walk(browser, start.headers["Location"], "browsing")
    assert back["iss"] == issuer
    response = finish(fleet, back, headers={"Origin": "https://fleet.example", "Cookie": cookie})
    assert response.status_code == 200, response.text


def test_a_claim_of_the_userinfo_endpoint_names_the_role_and_stays_at_the_second_sign_in(fleet: Product) -> None:
    first, second = (sign_in(fleet, "operator-olga").json()["data"]["user"] for _ in range(2))
    assert first["role"] == "operator"
    assert second["id"] == first["id"]


def test_a_code_in_another_sign_in_is_refused_by_the_provider(fleet: Product) -> None:
    """PKCE: the verifier is not the one that the code was asked for with."""
    stolen = walk(requests.Session(), begin(fleet)["authorization_url"], "victim")
    refused = finish(fleet, {**stolen, "state": begin(fleet)["state"]})
    assert (refused.status_code, refused.json()["error"]["details"]["field"]) == (400, "code")


def test_an_id_token_signed_with_the_client_secret_is_refused(fleet: SpareProduct, issuer: str) -> None:
    reconfigure(fleet, configuration(issuer, "hs256"))
    response = sign_in(fleet, "mallory")
    assert response.status_code == 401
    assert "algorithm" in response.json()["error"]["message"]


def test_a_wrong_client_secret_is_a_502_and_not_in_the_log(fleet: SpareProduct, issuer: str) -> None:
    reconfigure(fleet, configuration(issuer, "ps256", client_secret="planted-wrong-secret"))
    response = sign_in(fleet, "unknown")
    assert (response.status_code, response.json()["error"]["code"]) == (502, "EXTERNAL_SERVICE_ERROR")
    assert "invalid_client" in fleet.log
    assert "planted-wrong-secret" not in fleet.log
    assert SECRET not in fleet.log
