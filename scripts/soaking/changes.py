"""Changes through the management API, one after the other, each recorded with its result; and the state at the end."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import requests

from soaking.installation import Installation
from soaking.ledger import GONE, Ledger
from tests.kit.ports import free_port
from tests.kit.product import PASSWORD

ACTIVE_PROXIES = 4
"""Of those that come and go; the others are stopped."""
THINGS = 25
PAUSE = 0.2
PATIENCE = 40.0
"""Longer than any process hangs: a change without a response is not done after that."""

REFUSALS = frozenset({401, 500, 502, 503, 504, 507})
"""Statuses that a fault may lead to. 401: the token's session could not be read or was never stored."""


@dataclass(frozen=True, slots=True)
class Called:
    """One call: its status, or what broke."""

    what: str
    status: int | str
    begin: float
    end: float
    detail: str = ""


class Changes:
    """In a thread of its own, from `start` to `stop`."""

    def __init__(self, product: Installation, ledger: Ledger, seed: int) -> None:
        self.calls: list[Called] = []
        self.ids: dict[tuple[str, str], str] = {}
        self._product, self._ledger, self._dice = product, ledger, random.Random(seed)
        self._names = (f"soak-{number}" for number in itertools.count())
        self._session = requests.Session()
        self._session.trust_env, self._session.verify = False, False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="changes")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no more, and wait for the one under way."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE + 10)

    def _run(self) -> None:
        kinds = (self._proxy, self._proxy, self._proxy, self._user, self._key, self._webhook, self._settings)
        while not self._stopping.wait(PAUSE):
            self._dice.choice(kinds)()

    # --- what is changed ---

    def _proxy(self) -> None:
        def made() -> dict[str, Any]:
            return {"port": free_port(), "protocol": "http", "tags": ["first"]}

        def change(_name: str) -> tuple[dict[str, Any], Any]:
            tag = f"t{self._dice.randrange(10**9)}"
            return {"tags": [tag]}, tag

        self._one_of("proxies", made, "first", change)
        running = self._dice.random() < ACTIVE_PROXIES / THINGS
        free = [name for name in self._ledger.free("proxies") if ("proxies", name) in self.ids]
        if free:  # start and stop are no part of what is compared; they make processes come and go
            name = self._dice.choice(free)
            self._call("POST", f"/proxies/{self.ids['proxies', name]}/{'start' if running else 'stop'}")

    def _user(self) -> None:
        def change(name: str) -> tuple[dict[str, Any], Any]:
            mail = f"{name}-{self._dice.randrange(10**6)}@example.com"
            return {"email": mail}, mail

        body = {"email": "first@example.com", "password": "a password of the soak", "role": "user", "permissions": []}
        self._one_of("users", lambda: body, "", change, name_field="username", first_of=lambda sent: sent["email"])

    def _webhook(self) -> None:
        def change(_name: str) -> tuple[dict[str, Any], Any]:
            url = f"http://127.0.0.1:9/{self._dice.randrange(10**9)}"
            return {"url": url}, url

        body = {"url": "http://127.0.0.1:9/first", "events": ["proxy.*"], "enabled": False}
        self._one_of("webhooks", lambda: body, body["url"], change)

    def _key(self) -> None:
        body = {"permissions": ["proxy.read"]}
        self._one_of("api-keys", lambda: body, True, None)

    def _settings(self) -> None:
        value = self._dice.randrange(1, 3000)
        data = self._call("PATCH", "/settings", {"proxy": {"default_timeout": value}})
        self._ledger.record("settings", "default_timeout", value, data is not None)
        if data is None:  # the one thing that can't be left alone: read its value as soon as possible
            self._settle_settings()

    def _settle_settings(self) -> None:
        while not self._stopping.wait(1.0):
            data = self._call("GET", "/settings")
            if data is not None:
                value = data["proxy"]["default_timeout"]
                thing = self._ledger.things["settings", "default_timeout"]
                if value in thing.values:
                    thing.values = [value]
                return

    def _one_of(
        self,
        collection: str,
        body: Callable[[], dict[str, Any]],
        first: Any,
        change: Callable[[str], tuple[dict[str, Any], Any]] | None,
        name_field: str = "name",
        first_of: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        """Create, change or delete one thing."""
        free = [name for name in self._ledger.free(collection) if (collection, name) in self.ids]
        choice = self._dice.random()
        if not free or (choice < 0.3 and len(free) < THINGS):
            name = next(self._names)
            sent = {name_field: name, **body()}
            if collection == "users":
                sent["email"] = f"{name}@example.com"
            data = self._call("POST", f"/{collection}", sent)
            self._ledger.record(collection, name, first_of(sent) if first_of else first, data is not None)
            if data is not None:
                self.ids[collection, name] = _id_of(data)
            return
        name = self._dice.choice(free)
        path = f"/{collection}/{self.ids[collection, name]}"
        if change is None or choice > 0.85:
            self._ledger.record(collection, name, GONE, self._call("DELETE", path) is not None)
        else:
            sent, value = change(name)
            self._ledger.record(collection, name, value, self._call("PATCH", path, sent) is not None)

    # --- calls ---

    def _call(self, method: str, path: str, body: Any = None) -> dict[str, Any] | None:
        """`data` of a success response, else None."""
        begin, detail = time.monotonic(), ""
        status: int | str
        data = None
        try:
            response = self._session.request(
                method,
                f"{self._product.base_url}/api/v1{path}",
                json=body,
                auth=("admin", PASSWORD),
                timeout=PATIENCE,
            )
            status = response.status_code
            if status in (200, 201):
                data = response.json()["data"]
            else:
                detail = response.text[:300]
        except requests.ConnectionError as error:
            status = "refused" if "refused" in str(error) else "cut"
        except requests.Timeout:
            status = "late"
        except (requests.RequestException, ValueError) as error:
            status, detail = "cut", repr(error)
        self.calls.append(Called(f"{method} {path.split('/')[1]}", status, begin, time.monotonic(), detail))
        return data


def _id_of(data: dict[str, Any]) -> str:
    """Of what was created: `{proxy: {id}}` and the like."""
    return next(str(value["id"]) for value in data.values() if isinstance(value, dict) and "id" in value)


def stored(product: Installation) -> dict[str, dict[str, Any]]:
    """By collection, the values that the API returns now for the things in the ledger."""
    proxies: dict[str, Any] = {}
    for page in itertools.count(1):
        data = product.data("GET", f"/proxies?per_page=100&page={page}")
        proxies |= {each["name"]: each["tags"][0] for each in data["proxies"] if each["name"].startswith("soak-")}
        if not data["pagination"]["has_next"]:
            break
    users = {each["username"]: each["email"] for each in product.data("GET", "/users")["users"]}
    users.pop("admin")
    settings = product.data("GET", "/settings")
    hooks = {each["name"]: each["url"] for each in product.data("GET", "/webhooks")["webhooks"]}
    return {
        "proxies": proxies,
        "users": users,
        "webhooks": {name: url for name, url in hooks.items() if name.startswith("soak-")},
        "api-keys": {each["name"]: True for each in product.data("GET", "/api-keys")["api_keys"]},
        "settings": {"default_timeout": settings["proxy"]["default_timeout"]},
    }
