"""Changes through the management API, one after the other, each recorded with its result; and the state at the end."""

from __future__ import annotations

import itertools
import random
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection, HTTPException
from typing import Any

import requests

from soaking.installation import Installation
from soaking.origin import LISTED
from tests.kit.ports import free_port
from tests.kit.product import PASSWORD

PREFIX = "soak-"
"""Of the names of all things that are compared."""
ACTIVE_SHARE, THINGS, PAUSE = 0.16, 25, 0.2
"""Of the proxies that come and go, those that run; things of a kind; seconds between two changes."""
PATIENCE = 40.0
"""Longer than any process hangs: a change without a response is not done after that."""
PLAN, LIST, POLICY = "plan", "list", "policy"
"""Names of those that guard the proxy with workers."""
USER, COUNTED = "user", "counted"
"""Accounts: that of the checks here, and that of the traffic, whose usage is compared."""
GONE = None
"""The value of a thing that doesn't exist."""


@dataclass(slots=True)
class Ledger:
    """The changes that succeeded, which must be there at the end: the values that each thing may have.

    Each thing has one writer. A change with a success response is certain. One without a response, or with an error,
    is in doubt: it may have been done or not, perhaps later; so the thing is left alone from then on, and either is
    right.
    """

    things: dict[tuple[str, str], list[Any]] = field(default_factory=dict)
    succeeded: int = 0
    doubtful: int = 0

    def record(self, collection: str, name: str, value: Any, success: bool) -> None:
        """The change to `value` (`GONE` for a deletion) was requested."""
        values = self.things.setdefault((collection, name), [GONE])
        values[:] = [value] if success else [*values, value]
        self.succeeded += success
        self.doubtful += not success

    def free(self, collection: str) -> list[str]:
        """The names of things that certainly exist and may be changed."""
        certain = [name for name, values in self.things.items() if len(values) == 1 and values[0] is not GONE]
        return [name for where, name in certain if where == collection]

    def lost(self, collection: str, found: dict[str, Any]) -> list[str]:
        """Where `found` differs from the changes that succeeded; unknown things count, too."""
        known = {name: values for (where, name), values in self.things.items() if where == collection}
        return [
            f"{collection} {name}: {found.get(name, GONE)!r}, expected {known.get(name, 'nothing')!r}"
            for name in {**known, **found}
            if found.get(name, GONE) not in known.get(name, ())
        ]


@dataclass(frozen=True, slots=True)
class Guarded:
    """The port of the proxy with workers, accounts and a policy, the id of `USER`, and the origin's URL."""

    port: int
    account: str
    origin: str
    host: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Called:
    """One call: its status, or what broke. `where` is the node of a fleet that was asked."""

    what: str
    status: int | str
    begin: float
    end: float
    detail: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """What is changed and compared of the things of a collection: `field`, or that they are there.

    `query` gets more than the soak makes on one page, or nothing if there are no pages.
    """

    body: Callable[[], dict[str, Any]]
    field: str = "description"
    value: Callable[[int], Any] = str
    named_by: str = "name"
    query: str = "limit=1000"


def _tags(number: int) -> list[str]:
    return [f"t{number}"]


_USER = {"password": PASSWORD, "role": "user", "permissions": []}
_HOOK = {"events": ["proxy.*"], "enabled": False}
KINDS = {
    "proxies": Kind(lambda: {"port": free_port(), "protocol": "http"}, "tags", _tags),
    "users": Kind(lambda: _USER, "email", "{}@example.com".format, "username", ""),
    "webhooks": Kind(lambda: _HOOK, "url", "http://127.0.0.1:9/{}".format, query=""),
    "api-keys": Kind(lambda: {"permissions": ["proxy.read"]}, "", query=""),
    "accounts": Kind(lambda: {"plan": PLAN}, "tags", _tags, "username", "inline=false&limit=1000"),
    "plans": Kind(dict, query=""),
    "lists": Kind(lambda: {"kind": "domains", "entries": ["a.example"]}),
    "policies": Kind(lambda: {"rules": []}),
    "pools": Kind(dict),
}


class Changes:
    """In a thread of its own, from `start` to `stop`. `wrong` is what a change that was answered did not do."""

    def __init__(
        self, product: Installation, ledger: Ledger, guarded: Guarded, seed: int, prefix: str = PREFIX
    ) -> None:
        self.calls: list[Called] = []
        self.wrong: list[str] = []
        self._ids: dict[tuple[str, str], str] = {}
        self._product, self._ledger, self._guarded, self._dice = product, ledger, guarded, random.Random(seed)
        self._names = (f"{prefix}{number}" for number in itertools.count())
        self._kinds = dict(KINDS)
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
        todo: list[Callable[[], None]] = [
            *(partial(self._one_of, name, kind) for name, kind in self._kinds.items()),
            *self._others(),
        ]
        while not self._stopping.wait(PAUSE):
            self._dice.choice(todo)()

    def _others(self) -> Sequence[Callable[[], None]]:
        """What else is done, each as often as it stands here."""
        return self._start_or_stop, self._start_or_stop, self._settings, self._credential, self._list, self._rules

    def _one_of(self, collection: str, kind: Kind) -> None:
        """Create, change or delete one thing."""
        free, choice = self._free(collection), self._dice.random()
        changed = {kind.field: kind.value(self._dice.randrange(1, 10**9))} if kind.field else {}
        value = changed.get(kind.field, True)
        if not free or (choice < 0.3 and len(free) < THINGS):
            name = next(self._names)
            data = self._call("POST", f"/{collection}", {kind.named_by: name, **kind.body(), **changed})
            if data is not None:
                self._ids[collection, name] = id_of(data)
        else:
            name = self._dice.choice(free)
            path = f"/{collection}/{self._ids[collection, name]}"
            if not changed or choice > 0.85:
                value, data = GONE, self._call("DELETE", path)
            else:
                data = self._call("PATCH", path, changed)
        self._ledger.record(collection, name, value, data is not None)

    def _free(self, collection: str) -> list[str]:
        return [name for name in self._ledger.free(collection) if (collection, name) in self._ids]

    def _start_or_stop(self) -> None:
        """No part of what is compared; it makes processes come and go."""
        if free := self._free("proxies"):
            order = "start" if self._dice.random() < ACTIVE_SHARE else "stop"
            self._call("POST", f"/proxies/{self._ids['proxies', self._dice.choice(free)]}/{order}")

    def _settings(self) -> None:
        """The one thing that isn't left alone after a doubt: a later change that succeeds settles it."""
        value = self._dice.randrange(1, 3000)
        data = self._call("PATCH", "/settings", {"proxy": {"default_timeout": value}})
        self._ledger.record("settings", "default_timeout", value, data is not None)

    # --- what clients have to see of a change once it is answered ---

    def _credential(self) -> None:
        """A secret is let in as soon as it is made, and not any more when it is revoked."""
        path = f"/accounts/{self._guarded.account}/credentials"
        if made := self._call("POST", path, {"ttl": 3600}):
            self._expect("a new credential", self._guarded.origin + "/100", 200, made["secret"])
            if self._call("DELETE", f"{path}/{made['credential']['id']}") is not None:
                self._expect("a revoked credential", self._guarded.origin + "/100", 407, made["secret"])

    def _list(self) -> None:
        """It has other entries each time, and `LISTED` always."""
        self._call("POST", f"/lists/{LIST}/refresh")
        self._expect("a name of a refreshed list", f"http://{LISTED.decode()}/", 403)

    def _rules(self) -> None:
        """A path is denied from now on, and no other one any more."""
        denied, other = self._dice.sample(["/1", "/2", "/3"], 2)
        rules = [denying("list", destinations=[f"list:{LIST}"]), denying("path", paths=[denied])]
        if self._call("PATCH", f"/policies/{POLICY}", {"rules": rules}) is not None:
            self._expect("a path that a rule denies", self._guarded.origin + denied, 403)
            self._expect("a path that no rule denies", self._guarded.origin + other, 200)

    def _expect(self, what: str, url: str, wanted: int, password: str = PASSWORD) -> None:
        """A client that is not answered is nothing for here: the traffic has it."""
        word = b64encode(f"{USER}:{password}".encode()).decode()
        source = f"127.1.{self._dice.randrange(256)}.{self._dice.randrange(1, 255)}"  # wrong passwords count by address
        connection = HTTPConnection(self._guarded.host, self._guarded.port, PATIENCE, (source, 0))
        try:
            connection.request("GET", url, headers={"Proxy-Authorization": f"Basic {word}"})
            if (found := connection.getresponse().status) != wanted:
                self.wrong.append(f"{what}: {found} in place of {wanted}")
        except (OSError, HTTPException):
            return
        finally:
            connection.close()

    def _call(self, method: str, path: str, body: Any = None) -> dict[str, Any] | None:
        """`data` of a success response, else None."""
        begin, detail, data = time.monotonic(), "", None
        status: int | str = "cut"
        asked = self._asked()
        more: dict[str, Any] = {"timeout": PATIENCE, "headers": self._headers()}
        try:
            response = self._session.request(method, f"{asked.base_url}/api/v1{path}", json=body, **more)
            if response.status_code in (200, 201):
                data = response.json()["data"]
                self._succeeded(path, data, response.headers)
            else:
                detail = response.text[:300]
            status = response.status_code
        except requests.Timeout:
            status = "late"
        except (requests.RequestException, ValueError) as error:
            status, detail = "refused" if "refused" in str(error) else "cut", repr(error)
        what = f"{method} {'/'.join(path.split('?', maxsplit=1)[0].split('/')[1:4:2])}"
        self.calls.append(Called(what, status, begin, time.monotonic(), detail, asked.name))
        return data

    def _asked(self) -> Installation:
        """Which one has the next call."""
        return self._product

    def _headers(self) -> dict[str, str]:
        """Of the next call."""
        return {"Authorization": f"Basic {b64encode(f'admin:{PASSWORD}'.encode()).decode()}"}

    def _succeeded(self, path: str, data: dict[str, Any], headers: Mapping[str, str]) -> None:
        """A call had this response."""


def id_of(data: dict[str, Any]) -> str:
    """Of what was created: `{proxy: {id}}` and the like."""
    return next(str(value["id"]) for value in data.values() if isinstance(value, dict) and "id" in value)


def denying(name: str, **match: Any) -> dict[str, Any]:
    """A rule of a policy."""
    return {"name": name, "match": match, "action": {"use": "deny"}}


def stored(product: Installation) -> dict[str, dict[str, Any]]:
    """By collection, the values that the API returns now for the things in the ledger."""
    timeout = product.data("GET", "/settings")["proxy"]["default_timeout"]
    found: dict[str, dict[str, Any]] = {"settings": {"default_timeout": timeout}, **{each: {} for each in KINDS}}
    for collection, kind in KINDS.items():
        for each in _all_of(product, collection, kind.query):
            if each[kind.named_by].startswith(PREFIX):
                value = each[kind.field] if kind.field else True
                found[collection][each[kind.named_by]] = value
    return found


def _all_of(product: Installation, collection: str, query: str) -> list[dict[str, Any]]:
    if collection == "proxies":  # theirs are pages, others have cursors
        return product.proxies()
    found, cursor = list[dict[str, Any]](), ""
    while True:
        data = product.data("GET", f"/{collection}?{query}{cursor}")
        found += data[collection.replace("-", "_")]
        following = data.get("pagination", {}).get("next_cursor")
        if following is None:
            return found
        cursor = f"&cursor={following}"
