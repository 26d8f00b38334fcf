"""Parts of proxies that are alike are one object in the API's memory, and no change of one proxy reaches another."""

from __future__ import annotations

import pytest

from api.objects.proxies import proxy_cache
from api.objects.proxies.proxy_cache import ProxyCache, StoredProxy
from tests.kit.api_stage import PROXY, Api


def created(api: Api, name: str, port: int, **fields: object) -> StoredProxy:
    made = api.post("/proxies", {**PROXY, "name": name, "port": port, **fields}, api.token())
    assert made.status_code == 201, made.text
    return again(api, made.json["data"]["proxy"]["id"])


def again(api: Api, proxy_id: str) -> StoredProxy:
    """As a program that has just started reads it."""
    found = ProxyCache(api.store).get(proxy_id)
    assert found is not None
    return found


def test_parts_that_are_alike_are_shared_and_others_are_not(api: Api) -> None:
    first, second = created(api, "first", 3128), created(api, "second", 3129)
    other = created(api, "other", 3130, limits={"bandwidth_in": 4096})
    assert first.record.access is second.record.access
    assert first.record.limits is second.record.limits
    assert other.record.limits.bandwidth_in == 4096
    assert second.record.limits.bandwidth_in == 0


def test_a_change_of_one_proxy_leaves_those_that_shared_its_parts(api: Api) -> None:
    first, second = created(api, "first", 3128), created(api, "second", 3129)
    changed = api.put(f"/proxies/{first.record.id}", {"access": {"deny_clients": ["192.0.2.0/24"]}}, api.token())
    assert changed.status_code == 200, changed.text
    assert again(api, first.record.id).record.access.deny_clients == ["192.0.2.0/24"]
    assert again(api, second.record.id).record.access.deny_clients == []


def test_no_more_different_parts_are_remembered_than_the_limit(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_cache, "_shared", {name: {} for name in proxy_cache._PARTS})
    monkeypatch.setattr(proxy_cache, "SHARED_PARTS", 3)
    for number in range(1, 6):
        made = created(api, f"p{number}", 3127 + number, limits={"bandwidth_in": number * 4096})
        assert made.record.limits.bandwidth_in == number * 4096
    assert len(proxy_cache._shared["limits"]) == 3


def test_a_record_that_was_read_is_equal_to_the_stored_one(api: Api) -> None:
    made = created(api, "first", 3128, tags=["a"], access={"allow_clients": ["192.0.2.0/24"]})
    document = api.store.get("proxies", made.record.id)
    assert document is not None
    assert made.record.model_dump(mode="json") == document.body
    copied = made.record.model_copy(update={"name": "copied"})
    assert copied.model_fields_set is not made.record.model_fields_set
