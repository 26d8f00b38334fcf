"""Tags of many proxies in one change, all or none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from actors.bus.messages.common import SUPERVISOR
from actors.bus.messages.supervision import QueryRuntime, RuntimeReport
from api.bus_bridge import Bridge, request
from api.errors import Invalid, InvalidMany, NotFound
from api.services.account_names import ERRORS_MAX, AccountNames
from api.services.proxies import Proxies
from api.services.proxy_cache import COLLECTION, StoredProxy
from api.store import Store, Write
from config.model.fields import InvalidResource
from config.model.object_fields import ProxyTagging, retagged
from config.model.proxies import ProxyRecord


@dataclass(frozen=True, slots=True)
class Tagged:
    """The proxies after the change, in the order of the request, and how many of them are other than before."""

    proxies: list[ProxyRecord]
    changed: int


class ProxyTaggings:
    """Thread-safe. Fields of errors are those of the request, such as `ids[3]`."""

    def __init__(self, proxies: Proxies, store: Store, names: AccountNames, bridge: Bridge) -> None:
        self._proxies = proxies
        self._store = store
        self._names = names
        self._bridge = bridge

    def apply(self, body: ProxyTagging) -> Tagged:
        """Make the change. Raises `Invalid`, `InvalidMany`, `PeerUnavailable` and `StoreWriteError`."""
        with self._proxies.lock(), self._names.lock():
            pairs = self._prepared(body)
            pending = [(before, after) for before, after in pairs if before.record.tags != after.tags]
            if pending:
                # without the supervisor nothing is stored
                request(self._bridge, SUPERVISOR, QueryRuntime((pending[0][1].id,)), RuntimeReport)
                self._store.commit(
                    [
                        Write(COLLECTION, after.id, after.model_dump(mode="json"), before.revision)
                        for before, after in pending
                    ]
                )
        for _, after in pending:
            self._proxies.publish_event("proxy.updated", after)
        return Tagged([after for _, after in pairs], len(pending))

    def _prepared(self, body: ProxyTagging) -> list[tuple[StoredProxy, ProxyRecord]]:
        _refuse_twice(body.ids)
        now, pairs, errors = time.time(), [], []
        for index, proxy_id in enumerate(body.ids):
            try:
                pairs.append(self._one(proxy_id, body, now))
            except NotFound:
                errors.append((f"ids[{index}]", "there is no such proxy"))
            except InvalidResource as error:
                errors.append((f"ids[{index}]", f"{error.field}: {error.error}"))
        if errors:
            raise InvalidMany(errors[:ERRORS_MAX])
        return pairs

    def _one(self, proxy_id: str, body: ProxyTagging, now: float) -> tuple[StoredProxy, ProxyRecord]:
        before = self._proxies.get(proxy_id)
        tags = retagged(before.record.tags, body.add_tags, body.remove_tags)
        after = before.record.model_copy(update={"tags": tags, "updated_at": now})
        self._names.refuse_proxy(before.record, after)
        return before, after


def _refuse_twice(ids: Sequence[str]) -> None:
    known: set[str] = set()
    for index, each in enumerate(ids):
        if each in known:
            raise Invalid(f"ids[{index}]", "is there twice")
        known.add(each)
