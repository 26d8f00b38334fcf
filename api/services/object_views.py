"""Lists, pools and policies as a caller sees them: with the state of what was fetched, and of upstreams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from api.engine.records import Stored, view_of
from api.security.caller import Caller
from api.services.list_contents import ListContents
from api.services.pool_states import PoolStates
from config.model.proxy_checks import Warned
from config.model.webhooks import masked_url


class ObjectViews:
    """The `views` of `api.engine.objects.Hooks`. Thread-safe."""

    def __init__(self, contents: ListContents, states: PoolStates) -> None:
        self._contents = contents
        self._states = states

    def lists(self, caller: Caller, stored: Sequence[Stored[Any]], whole: bool) -> list[dict[str, Any]]:
        """With the status of the content of each."""
        return [{**_view(caller, each, whole), "status": self._contents.status(each.record)} for each in stored]

    def pools(self, caller: Caller, stored: Sequence[Stored[Any]], whole: bool) -> list[dict[str, Any]]:
        """With the status of each, and of its upstreams if they are shown."""
        return [{**_view(caller, each, whole), "status": self._pool(each.record, whole)} for each in stored]

    def policies(self, caller: Caller, stored: Sequence[Stored[Any]], whole: bool) -> list[dict[str, Any]]:
        """As they are."""
        return [_view(caller, each, whole) for each in stored]

    def of_list(self, stored: Stored[Any]) -> Sequence[Warned]:
        """Warnings about the content of a list."""
        return self._contents.warnings(stored.record)

    def _pool(self, pool: Any, whole: bool) -> dict[str, Any]:
        source = None if pool.source is None else self._contents.status(pool)
        upstreams = {"upstreams": self._states.upstreams(pool)} if whole else {}
        return {**self._states.status(pool), "source": source, **upstreams}


def _view(caller: Caller, stored: Stored[Any], whole: bool) -> dict[str, Any]:
    """As this caller may see it: the URL of a source may hold a key."""
    view = view_of(stored.record, whole)
    source = view.get("source")
    clear = caller.may("proxy.write") and caller.scope is None
    if not source or "url" not in source or clear:
        return view
    return {**view, "source": {**source, "url": masked_url(source["url"])}}
