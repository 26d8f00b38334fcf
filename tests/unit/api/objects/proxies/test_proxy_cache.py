"""The proxies of the store as requests see them: always those that are stored at this moment, oldest first."""

from __future__ import annotations

from typing import Any

import pytest

from api.objects.proxies.proxy_cache import ProxyCache, StoredProxy
from api.store import tiny
from config.model.proxies import ProxyCreate, new_record
from tests.kit.api_stage import Api


def store_one(api: Api, key: str, created_at: float, **changes: Any) -> str:
    """A document as a create leaves it; its id."""
    record = new_record(ProxyCreate(name=key, port=3128, protocol="http"), f"prx_{key}", created_at, 30)
    api.store.put("proxies", {**record.model_dump(mode="json"), **changes})
    return record.id


def names(catalogue: ProxyCache) -> list[str]:
    return [proxy.record.name for proxy in catalogue.all()]


def test_proxies_come_oldest_first_and_a_changed_one_keeps_its_place(api: Api) -> None:
    store_one(api, "late", 30.0)
    store_one(api, "early", 10.0)
    catalogue = ProxyCache(api.store)
    assert names(catalogue) == ["early", "late"]
    store_one(api, "middle", 20.0)
    store_one(api, "early", 10.0, tags=["changed"])
    assert names(catalogue) == ["early", "middle", "late"]
    assert catalogue.all()[0].record.tags == ["changed"]


def test_a_change_is_seen_by_every_later_read(api: Api) -> None:
    catalogue = ProxyCache(api.store)
    assert names(catalogue) == []
    one = store_one(api, "one", 1.0)
    assert (names(catalogue), catalogue.named("one")) == (["one"], one)
    store_one(api, "one", 1.0, name="renamed")
    assert (catalogue.named("one"), catalogue.named("renamed")) == (None, one)
    api.store.delete("proxies", one)
    assert (names(catalogue), catalogue.get(one), catalogue.named("renamed")) == ([], None, None)


def test_a_name_that_moved_to_another_proxy_is_that_ones(api: Api) -> None:
    catalogue = ProxyCache(api.store)
    first, second = store_one(api, "first", 1.0), store_one(api, "second", 2.0)
    store_one(api, "first", 1.0, name="third")
    store_one(api, "second", 2.0, name="first")
    assert (catalogue.named("first"), catalogue.named("third"), catalogue.named("second")) == (second, first, None)


def test_the_view_of_a_proxy_is_made_once_for_each_revision(api: Api) -> None:
    catalogue = ProxyCache(api.store)
    one = store_one(api, "one", 1.0)
    made: list[int] = []

    def form(proxy: StoredProxy) -> dict[str, int]:
        made.append(proxy.revision)
        return {"revision": proxy.revision}

    def view() -> dict[str, int]:
        proxy = catalogue.get(one)
        assert proxy is not None
        return proxy.once(form)

    assert view() is view()
    store_one(api, "one", 1.0, tags=["changed"])
    assert view() == {"revision": api.store.revision_of("proxies", one)}
    assert len(made) == 2


def test_a_catalogue_that_missed_forgotten_deletions_reads_everything(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny, "TOMBSTONES_KEPT", 2)
    catalogue = ProxyCache(api.store)
    for number in range(6):
        store_one(api, f"p{number}", float(number))
    assert len(names(catalogue)) == 6
    for number in range(5):
        api.store.delete("proxies", f"prx_p{number}")
    assert names(catalogue) == ["p5"]
    assert catalogue.named("p0") is None
