"""Where the product's own requests may go: one list for all of them, those of webhooks and to identity providers.

The product's own listeners and API, link-local and metadata addresses are closed to all; addresses that are not public,
and those of this machine, to those whose target is not the operator's choice.
"""

from __future__ import annotations

from collections.abc import Iterable

from actors.bus.messages.specs import EgressSpec
from actors.net.egress_guard import EgressGuard
from config.net.ports import Range


class OutgoingGuard:
    """`own` are the addresses of the product's own listeners, `(host, port)`, and `ranges` those of consecutive ports.

    `excepted_by` names, for refusals, the setting that permits private addresses; empty: they are permitted.
    """

    def __init__(self, own: Iterable[tuple[str, int]], excepted_by: str = "", ranges: Iterable[Range] = ()) -> None:
        self._closed = EgressGuard(EgressSpec("private", (), tuple(own), own_ranges=tuple(ranges)))
        self._public = EgressGuard(EgressSpec("public_only", (), ())) if excepted_by else None
        self._excepted_by = excepted_by

    def check(self, address: str, port: int, name: str) -> str | None:
        """None when `address` may be connected to for the target `name`, else a sentence that says why not."""
        closed = self._closed.check(address, port, name)
        if closed is not None or self._public is None:
            return closed
        sentence = self._public.check(address, port, name)
        return sentence and f"{sentence}; {self._excepted_by} of the configuration would let it"
