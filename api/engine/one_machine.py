"""What a node of a fleet has, as one machine has it: after it has left, and when its backup is restored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from pydantic import ValidationError

from api.store import Document, Write
from config.model.nodes import COLLECTION, NODE_ID, NodeRecord, alone
from config.model.proxies import ProxyRecord
from config.settings.runtime import merge


def of_one_machine(every: Callable[[str], Iterable[Document]], own: Document | None) -> Iterator[Write]:
    """The changes that make it stand alone. `every` reads a collection, `own` is the document of the node.

    The other nodes are gone, its proxies are as they ran there, and its settings are those of the machine.
    """
    yield from (Write(COLLECTION, each.id, None) for each in every(COLLECTION))
    settings = {each.id: each.body for each in every("settings")}
    if own is not None:
        node = NodeRecord.model_validate(own.body)
        for each in every("proxies"):
            with suppress(ValidationError):  # of a newer release: it stays as it is
                before = ProxyRecord.model_validate(each.body)
                after = alone(before, node)
                if after != before:
                    yield Write("proxies", each.id, after.model_dump(mode="json"))
        if node.id in settings:
            both = merge(*({**settings.get(each, {}), "id": {}} for each in ("settings", node.id)))
            yield Write("settings", "settings", {**both, "id": "settings"})
    yield from (Write("settings", each, None) for each in settings if each.startswith(NODE_ID))
