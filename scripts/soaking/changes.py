"""Changes through the management API, one after the other, each recorded with its result; and the state at the end."""

from __future__ import annotations

import itertools
import random
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException
from typing import Any

import requests

from soaking.installation import Installation
from soaking.ledger import GONE, Ledger
from soaking.origin import LISTED
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

PLAN, LIST, POLICY = "plan", "list", "policy"
"""Names of those that guard the proxy with workers."""
USER, COUNTED = "user", "counted"
"""Accounts: that of the checks here, and that of the traffic, whose usage is compared."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """The port of the proxy with workers, accounts and a policy, the id of `USER`, and the origin's URL."""

    port: int
    account: str
    origin: str


@dataclass(frozen=True, slots=True)
class Called:
    """One call: its status, or what broke."""

    what: str
    status: int | str
    begin: float
    end: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """A collection, and what is changed and compared of its things: `field`, or that they are there.

    `query` gets more than the soak makes on one page, or nothing if there are no pages.
    """

    name: str
    body: Callable[[], dict[str, Any]]
    field: str | None = "description"
    value: Callable[[int], Any] = str
    named_by: str = "name"
    query: str = ""


KINDS = {
    "proxies": Kind(
        "proxies", lambda: {"port": free_port(), "protocol": "http"}, "tags", lambda n: [f"t{n}"], query="per_page=100"
    ),
    "users": Kind(
        "users",
        lambda: {"password": PASSWORD, "role": "user", "permissions": []},
        "email",
        lambda n: f"{n}@example.com",
        "username",
    ),
    "webhooks": Kind(
        "webhooks", lambda: {"events": ["proxy.*"], "enabled": False}, "url", lambda n: f"http://127.0.0.1:9/{n}"
    ),
    "api-keys": Kind("api-keys", lambda: {"permissions": ["proxy.read"]}, None),
    "accounts": Kind(
        "accounts", lambda: {"plan": PLAN}, "tags", lambda n: [f"t{n}"], "username", "inline=false&limit=1000"
    ),
    "plans": Kind("plans", dict),
    "lists": Kind("lists", lambda: {"kind": "domains", "entries": ["a.example"]}, query="limit=1000"),
    "policies": Kind("policies", lambda: {"rules": []}, query="limit=1000"),
    "pools": Kind("pools", dict, query="limit=1000"),
}


class Changes:
    """In a thread of its own, from `start` to `stop`. `wrong` is what a change that was answered did not do."""

    def __init__(self, product: Installation, ledger: Ledger, guarded: Guarded, seed: int) -> None:
        self.calls: list[Called] = []
        self.wrong: list[str] = []
        self.ids: dict[tuple[str, str], str] = {}
        self._product, self._ledger, self._guarded, self._dice = product, ledger, guarded, random.Random(seed)
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
        others = (self._settings, self._credential, self._list, self._rules)
        todo = [partial(self._one_of, kind) for kind in KINDS.values()] + [self._start_or_stop] * 2 + [*others]
        while not self._stopping.wait(PAUSE):
            self._dice.choice(todo)()

    # --- what is changed ---

    def _one_of(self, kind: Kind) -> None:
        """Create, change or delete one thing."""
        free = self._free(kind.name)
        choice = self._dice.random()
        new = None if kind.field is None else kind.value(self._dice.randrange(10**9))
        changed = {} if kind.field is None else {kind.field: new}
        value = True if kind.field is None else new
        if not free or (choice < 0.3 and len(free) < THINGS):
            name = next(self._names)
            data = self._call("POST", f"/{kind.name}", {kind.named_by: name, **kind.body(), **changed})
            self._ledger.record(kind.name, name, value, data is not None)
            if data is not None:
                self.ids[kind.name, name] = id_of(data)
            return
        name = self._dice.choice(free)
        path = f"/{kind.name}/{self.ids[kind.name, name]}"
        if not changed or choice > 0.85:
            self._ledger.record(kind.name, name, GONE, self._call("DELETE", path) is not None)
        else:
            self._ledger.record(kind.name, name, value, self._call("PATCH", path, changed) is not None)

    def _free(self, collection: str) -> list[str]:
        return [name for name in self._ledger.free(collection) if (collection, name) in self.ids]

    def _start_or_stop(self) -> None:
        """No part of what is compared; it makes processes come and go."""
        if free := self._free("proxies"):
            order = "start" if self._dice.random() < ACTIVE_PROXIES / THINGS else "stop"
            self._call("POST", f"/proxies/{self.ids['proxies', self._dice.choice(free)]}/{order}")

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

    # --- what clients have to see of a change once it is answered ---

    def _credential(self) -> None:
        """A secret is let in as soon as it is made, and not any more when it is revoked."""
        path = f"/accounts/{self._guarded.account}/credentials"
        made = self._call("POST", path, {"ttl": 3600})
        if made is None:
            return
        client = (USER, made["secret"])
        self._expect("a new credential", client, self._guarded.origin + "/100", 200)
        if self._call("DELETE", f"{path}/{made['credential']['id']}") is not None:
            self._expect("a revoked credential", client, self._guarded.origin + "/100", 407)

    def _list(self) -> None:
        """It has other entries each time, and `LISTED` always."""
        self._call("POST", f"/lists/{LIST}/refresh")
        self._expect("a name of a refreshed list", (USER, PASSWORD), f"http://{LISTED.decode()}/", 403)

    def _rules(self) -> None:
        """A path is denied from now on, and no other one any more."""
        denied, other = self._dice.sample(["/1", "/2", "/3"], 2)
        rules = [denying("list", destinations=[f"list:{LIST}"]), denying("path", paths=[denied])]
        if self._call("PATCH", f"/policies/{POLICY}", {"rules": rules}) is not None:
            self._expect("a path that a rule denies", (USER, PASSWORD), self._guarded.origin + denied, 403)
            self._expect("a path that no rule denies", (USER, PASSWORD), self._guarded.origin + other, 200)

    def _expect(self, what: str, client: tuple[str, str], url: str, wanted: int) -> None:
        """A client that is not answered is nothing for here: the traffic has it."""
        word = b64encode(":".join(client).encode()).decode()
        source = f"127.1.{self._dice.randrange(256)}.{self._dice.randrange(1, 255)}"  # wrong passwords count by address
        connection = HTTPConnection("127.0.0.1", self._guarded.port, PATIENCE, (source, 0))
        try:
            connection.request("GET", url, headers={"Proxy-Authorization": f"Basic {word}"})
            found = connection.getresponse().status
        except (OSError, HTTPException):
            return
        finally:
            connection.close()
        if found != wanted:
            self.wrong.append(f"{what}: {found} in place of {wanted}")

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


def id_of(data: dict[str, Any]) -> str:
    """Of what was created: `{proxy: {id}}` and the like."""
    return next(str(value["id"]) for value in data.values() if isinstance(value, dict) and "id" in value)


def denying(name: str, **match: Any) -> dict[str, Any]:
    """A rule of a policy."""
    return {"name": name, "match": match, "action": {"use": "deny"}}


def stored(product: Installation) -> dict[str, dict[str, Any]]:
    """By collection, the values that the API returns now for the things in the ledger."""
    settings = product.data("GET", "/settings")
    found = {name: _stored(product, kind) for name, kind in KINDS.items()}
    return {**found, "settings": {"default_timeout": settings["proxy"]["default_timeout"]}}


def _stored(product: Installation, kind: Kind) -> dict[str, Any]:
    things: dict[str, Any] = {}
    query: str | None = kind.query
    while query is not None:
        data = product.data("GET", f"/{kind.name}?{query}")
        for each in data[kind.name.replace("-", "_")]:
            if each[kind.named_by].startswith("soak-"):
                things[each[kind.named_by]] = True if kind.field is None else each[kind.field]
        cursor = data.get("pagination", {}).get("next_cursor")
        query = None if cursor is None else f"{kind.query}&cursor={cursor}"
    return things
