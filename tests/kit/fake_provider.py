"""An identity provider on loopback that does what a test configures, also what no honest one would do."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from config.settings.groups import OAuth2
from tests.kit.api_stage import Api

CLIENT_ID = "proxyfleet at home"
CLIENT_SECRET = "s3cret%2Bwith+odd:characters"
REDIRECT = "https://fleet.example/signed-in"

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_jwk(key: Any, algorithm: str, kid: str) -> dict[str, Any]:
    made = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": kid, "use": "sig", "alg": algorithm}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """The client sees that there is no response; here it would be noise among the results."""


class FakeProvider:
    """Signs one person in, who is `claims`. `alter` is what it does to an ID token's claims before it signs them."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.claims: dict[str, Any] = {"sub": "248289761001", "email": "jane@example.com", "email_verified": True}
        self.userinfo: dict[str, Any] | None = None
        self.github_emails: list[Any] = []
        self.alter: Callable[[dict[str, Any]], dict[str, Any]] = dict
        self.sign: Callable[[dict[str, Any]], str] = self.signed
        self.keys = [public_jwk(RSA_KEY, "RS256", "k1")]
        self.responses: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.metadata: dict[str, Any] = {}
        self.asked: list[str] = []
        self.token_requests: list[dict[str, str]] = []
        self.authorizations: list[str | None] = []
        self.pause = threading.Event()
        self.pause.set()
        self._codes: dict[str, dict[str, str]] = {}
        self._server = _Server(("127.0.0.1", 0), self._handler())
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self.pause.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def settings(self, **more: Any) -> OAuth2:
        """What a client of this provider is configured with; by discovery unless there are addresses."""
        found = {} if more.keys() & {"discovery_url", "authorize_url"} else {"discovery_url": self.discovery_url}
        plain = {"enabled": True, "provider": "custom", "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
        return OAuth2.model_validate({**plain, "redirect_uri": REDIRECT, **found, **more})

    def explicit(self, *names: str) -> dict[str, str]:
        """Explicit addresses: `authorize_url`, `token_url` and so on."""
        return {f"{name}_url": f"{self.url}/{name}" for name in names}

    @property
    def discovery_url(self) -> str:
        return f"{self.url}/.well-known/openid-configuration"

    # --- the browser's part ---

    def sign_in(self, url: str) -> dict[str, str]:
        """What comes back to the front end when the person agrees: code and state."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert query["response_type"] == "code"
        assert query["client_id"] == CLIENT_ID
        assert query["redirect_uri"] == REDIRECT
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(12)
        self._codes[code] = query
        return {"code": code, "state": query["state"]}

    # --- tokens ---

    def id_claims(self, nonce: str | None) -> dict[str, Any]:
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT_ID, "iat": now, "exp": now + 300, **self.claims}
        return self.alter(claims if nonce is None else {**claims, "nonce": nonce})

    @staticmethod
    def signed(claims: dict[str, Any]) -> str:
        return jwt.encode(claims, RSA_KEY, "RS256", headers={"kid": "k1"})

    def _token(self, body: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.token_requests.append(body)
        asked = self._codes.pop(body.get("code", ""), None)
        if asked is None or not _proves(body.get("code_verifier", ""), asked["code_challenge"]):
            return 400, {"error": "invalid_grant"}
        tokens: dict[str, Any] = {"access_token": "at-1", "token_type": "Bearer", "expires_in": 300}
        if "openid" in asked.get("scope", ""):
            tokens["id_token"] = self.sign(self.id_claims(asked.get("nonce")))
        return 200, tokens

    # --- HTTP ---

    def _response(
        self, path: str, form: dict[str, str], authorization: str | None
    ) -> tuple[int, dict[str, str], bytes]:
        if path in self.responses:
            return self.responses[path]
        if path == "/token":
            self.authorizations.append(authorization)
            assert _client(form, authorization) == (CLIENT_ID, CLIENT_SECRET)
            return _json(*self._token(form))
        if path in ("/userinfo", "/userinfo/emails"):
            assert authorization == "Bearer at-1"
            return _json(200, self.github_emails if path.endswith("emails") else self.userinfo)
        if path == "/jwks":
            return _json(200, {"keys": self.keys})
        if path == "/.well-known/openid-configuration":
            return _json(200, {**self._metadata(), **self.metadata})
        return _json(404, {})

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks",
            "userinfo_endpoint": f"{self.url}/userinfo",
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._respond({})

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self._respond({name: values[0] for name, values in parse_qs(content).items()})

            def _respond(self, form: dict[str, str]) -> None:
                path = urlsplit(self.path).path
                provider.asked.append(path)
                provider.pause.wait(120)
                status, headers, body = provider._response(path, form, self.headers["Authorization"])
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """No log."""

        return Handler


def _client(form: dict[str, str], authorization: str | None) -> tuple[str, str]:
    """As RFC 6749 section 2.3.1 has it: form-encoded, then Basic; or in the body."""
    if authorization is None:
        return form["client_id"], form["client_secret"]
    identifier, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
    return unquote_plus(identifier), unquote_plus(secret)


def _proves(verifier: str, challenge: str) -> bool:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == challenge


def _json(status: int, body: Any) -> tuple[int, dict[str, str], bytes]:
    return status, {"Content-Type": "application/json"}, json.dumps(body).encode()


def other_rsa_key(bits: int = 2048) -> Any:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def curve_key() -> Any:
    return ec.generate_private_key(ec.SECP256R1())


# --- the front end's part ---

JSON = {"Accept": "application/json"}
Make = Callable[..., Api]
"""Makes an API that trusts the provider, with settings of one's own."""


def begin(api: Api) -> dict[str, Any]:
    response = api.get("/auth/oauth2/authorize", JSON)
    assert response.status_code == 200, response.text
    data: dict[str, Any] = response.json["data"]
    return data


def finish(api: Api, back: dict[str, str], **headers: str) -> Any:
    return api.post("/auth/oauth2/callback", back, headers)


def sign_in(api: Api, provider: FakeProvider) -> Any:
    return finish(api, provider.sign_in(begin(api)["authorization_url"]))
