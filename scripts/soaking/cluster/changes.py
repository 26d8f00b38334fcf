"""What is asked of the nodes: changes at any full node, sign-ins that hold at another one, and reads over all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import requests

from soaking.changes import GONE, KINDS, PREFIX, Called, Changes, Guarded, Ledger
from soaking.cluster.fleet import SoakedNode
from soaking.installation import Installation
from tests.kit.ports import free_port
from tests.kit.product import PASSWORD

PATIENCE = 40.0
BETWEEN = 1.0
"""Seconds between two sign-ins."""


def _proxy() -> dict[str, Any]:
    return {"port": free_port(), "protocol": "http", "host": "{address:public}"}


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A change that had a success response: when, its commit, and what it changed."""

    at: float
    number: int
    collection: str
    id: str
    event: str = ""


@dataclass(slots=True)
class FleetLedger(Ledger):
    """It also knows which changes a restore of the database may have undone."""

    past: dict[tuple[str, str], list[tuple[float, list[Any]]]] = field(default_factory=dict)
    undone: dict[tuple[str, str], list[Any]] = field(default_factory=dict)
    """The values that a thing had for certain before a restore."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, collection: str, name: str, value: Any, success: bool) -> None:
        with self.lock:
            Ledger.record(self, collection, name, value, success)
            key = collection, name
            if success:
                self.undone.pop(key, None)
            self.past.setdefault(key, [(0.0, [GONE])]).append((time.monotonic(), [*self.things[key]]))

    def free(self, collection: str) -> list[str]:
        with self.lock:
            return Ledger.free(self, collection)

    def rewind(self, since: float) -> None:
        """The database may have lost what was changed since this moment: then things are as they were, or as now."""
        with self.lock:
            for key, past in self.past.items():
                if past[-1][0] < since:
                    continue
                before = next(values for at, values in reversed(past) if at < since)
                if len(self.things[key]) == 1:
                    self.undone[key] = [*self.things[key]]
                self.things[key] = [*before, *(value for at, values in past if at >= since for value in values)]

    def unnamed(self, collection: str, found: Mapping[str, Any], is_named: Callable[[str, str], bool]) -> list[str]:
        """Things that a restore has undone and no node has named."""
        return [
            f"{collection} {name}: {found.get(name, GONE)!r} in place of {values!r}"
            for (where, name), values in self.undone.items()
            if where == collection and found.get(name, GONE) not in values and not is_named(where, name)
        ]


class FleetChanges(Changes):
    """Changes that begin at one node; `nodes` are those that each call may go to."""

    def __init__(
        self,
        nodes: Sequence[SoakedNode],
        ledger: Ledger,
        guarded: Guarded,
        seed: int,
        prefix: str,
        is_first: bool,
        token: str,
    ) -> None:
        super().__init__(nodes[0], ledger, guarded, seed, f"{PREFIX}{prefix}-")
        self.confirmed: list[Confirmed] = []
        self._nodes, self._is_first, self._token = nodes, is_first, token
        self._kinds["proxies"] = replace(KINDS["proxies"], body=_proxy)
        self._revision, self._is_here = "", False

    def _others(self) -> Sequence[Callable[[], None]]:
        others = super()._others() if self._is_first else (self._start_or_stop, self._credential)
        return *(partial(self._here, each) for each in others), self._read_all, self._read_all

    def _here(self, work: Callable[[], None]) -> None:
        """At the node whose clients see what follows."""
        self._is_here = True
        try:
            work()
        finally:
            self._is_here = False

    def _read_all(self) -> None:
        """What is on all machines."""
        self._call("GET", "/logs?limit=5")

    def _asked(self) -> Installation:
        return self._nodes[0] if self._is_here else self._dice.choice(self._nodes)

    def _headers(self) -> dict[str, str]:
        """The sign-in of the first node is good at all."""
        revision = {"X-Config-Revision": self._revision} if self._revision else {}
        return {"Authorization": f"Bearer {self._token}", **revision}

    def _succeeded(self, path: str, data: dict[str, Any], headers: Mapping[str, str]) -> None:
        number = headers.get("X-Config-Revision")
        if number is None:
            return
        self._revision = number
        parts = path.split("/")
        found = [each["id"] for each in data.values() if isinstance(each, dict) and "id" in each]
        identifier = found[0] if found else parts[2] if len(parts) == 3 else ""
        if identifier and len(parts) <= 3:
            event = "proxy.created" if len(parts) == 2 else "proxy.deleted" if data.get("deleted") else ""
            collection = parts[1].replace("-", "_")
            self.confirmed.append(Confirmed(time.monotonic(), int(number), collection, identifier, event))

    def id_of(self, collection: str, name: str) -> str:
        """Of a thing that was made here; empty for another one."""
        return self._ids.get((collection, name), "")

    def forget_revision(self) -> None:
        """After a restore of the database, whose numbers are others."""
        self._revision = ""


SIGNER = "signer"
"""A user of its own: with very many sign-ins its oldest end, and all else is done with one of the administrator."""


class SignIns:
    """That user signs in at one node, is known at the other one, and signs out there; in a thread of its own."""

    def __init__(self, nodes: Sequence[SoakedNode], is_calm: Callable[[float, float], bool]) -> None:
        """`is_calm` says whether nothing was wrong with the fleet in that time."""
        self.calls: list[Called] = []
        self.wrong: list[str] = []
        self.count = 0
        self._nodes, self._is_calm = nodes, is_calm
        self._session = requests.Session()
        self._session.trust_env, self._session.verify = False, False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sign-ins")
        self.start = self._thread.start

    def stop(self) -> None:
        """Begin no more."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE)

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(BETWEEN):
            number += 1
            at, other = self._nodes[number % 2], self._nodes[(number + 1) % 2]
            begin = time.monotonic()
            made = self._call(at, "sign-in", "/auth/login", {"username": SIGNER, "password": PASSWORD})
            if made is None:
                continue
            token = made["access_token"]
            found = [self._is_known(each, token) for each in (at, other)]
            if found != [True, True] and self._is_calm(begin, time.monotonic()):
                self.wrong.append(f"a sign-in at {at.name} is good there and at {other.name}: {found}")
            self._call(other, "token", "/auth/logout", {"refresh_token": made["refresh_token"]}, token)
            self.count += 1

    def _is_known(self, node: SoakedNode, token: str) -> bool | None:
        """None: there is no response."""
        try:
            headers = {"Authorization": f"Bearer {token}"}
            url = f"{node.base_url}/api/v1/auth/test"
            return self._session.get(url, headers=headers, timeout=PATIENCE).status_code == 200
        except requests.RequestException:
            return None

    def _call(self, node: SoakedNode, what: str, path: str, body: Any, token: str = "") -> dict[str, Any] | None:
        begin, detail, data = time.monotonic(), "", None
        status: int | str = "cut"
        try:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            url = f"{node.base_url}/api/v1{path}"
            response = self._session.post(url, json=body, headers=headers, timeout=PATIENCE)
            status, detail = response.status_code, response.text[:300]
            if status == 200:
                data = response.json()["data"]
        except requests.Timeout:
            status = "late"
        except (requests.RequestException, ValueError) as error:
            status, detail = "refused" if "refused" in str(error) else "cut", repr(error)
        self.calls.append(Called(f"POST {what}", status, begin, time.monotonic(), detail, node.name))
        return data
