"""An API to import documents into, and a document with everything in it."""

from __future__ import annotations

from typing import Any

from falcon.testing import Result

from actors.bus.messages.common import WEBHOOKS, Done
from tests.kit.api_stage import Api

PASSPHRASE = "a passphrase for the way"


SEALED = {"X-Passphrase": PASSPHRASE}


SECRETS = ("of a client", "of an account", "of an upstream", "Bearer of-a-hook", "of a person")


HEAD: dict[str, Any] = {"kind": "proxyfleet.config", "version": 1}


CLIENT, ACCOUNT, UPSTREAM, HOOK, PERSON = SECRETS


RICH = {
    "name": "rich",
    "port": 3128,
    "protocol": "http",
    "auth": {"enabled": True, "username": "client", "password": CLIENT},
    "accounts": [
        {"username": "alice", "password": ACCOUNT, "quota": {"bytes": 5, "period": "day"}},
        {"username": "bob", "password": ACCOUNT, "expires_at": "2096-01-01T00:00:00Z"},
    ],
    "upstreams": [
        {"protocol": "https", "host": "p.example", "port": 1, "auth": {"username": "u", "password": UPSTREAM}},
        {"protocol": "socks5", "host": "::1", "port": 2, "weight": 7},
    ],
    "access": {"deny_destinations": ["*.example.com:443"], "mode": "report"},
    "limits": {"bandwidth_in": 4096},
    "settings": {"timeout": 7},
    "tags": ["one", "two"],
    "accept_proxy_protocol": True,
}


HOOKED = {
    "name": "hook",
    "url": "https://hooks.example/",
    "events": ["proxy.*"],
    "headers": {"Authorization": HOOK, "X-Plain": "text"},
}


class Importing:
    """An administrator with a document."""

    def __init__(self, api: Api) -> None:
        self.api = api
        api.fleet.others[WEBHOOKS] = lambda _message: Done()
        self.headers = api.token()

    def export(self, how: str = "omitted", **headers: str) -> Any:
        response = self.api.get("/config/export", {**self.headers, **headers}, query_string=f"secrets={how}")
        assert response.status_code == 200, response.text
        return response.json["data"]

    def post(self, document: Any, query: str = "", **headers: str) -> Result:
        full = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        response = self.api.post("/config/import", document, full, query_string=query)
        self.headers = self.api.token()  # one's own password may be another one now
        return response

    def apply(self, query: str = "", sections: dict[str, Any] | None = None, **more: Any) -> Any:
        """The response to an import of these sections."""
        response = self.post({**HEAD, **(sections or {}), **more}, query)
        assert response.status_code == 200, response.text
        return response.json["data"]

    def fill(self) -> None:
        """Something of everything, made as people make it."""
        for path, body in (("/proxies", RICH), ("/webhooks", HOOKED)):
            assert self.api.post(path, body, self.headers).status_code == 201
        other = {"name": "plain", "port": 1080, "protocol": "socks5", "host": "127.0.0.1"}
        made = self.api.post("/proxies", other, self.headers).json["data"]["proxy"]
        self.api.post(f"/proxies/{made['id']}/stop", headers=self.headers)
        person = {"username": "someuser", "password": PERSON, "role": "operator", "permissions": ["proxy.read"]}
        assert self.api.post("/users", person, self.headers).status_code == 201
        settings = {"proxy": {"default_timeout": 44}, "logging": {"level": "warning"}}
        assert self.api.patch("/settings", settings, self.headers).status_code == 200
        self.api.fleet.events.clear()

    def content(self) -> dict[str, Any]:
        """Everything that is stored, for "nothing has changed"."""
        store = self.api.store
        names = ("proxies", "users", "webhooks", "settings")
        return {name: sorted((each.id, each.revision) for each in store.find(name)) for name in names}
