"""The desired state of the proxies, as the API has sent it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from actors.bus.messages.common import forwarding_name, proxy_label
from actors.bus.messages.specs import ProxySpec

REMOVED_REMEMBERED = 1_000


class DesiredProxies:
    """`specs` are all proxies by id, active or not."""

    def __init__(self) -> None:
        self.specs: dict[str, ProxySpec] = {}
        self._removed: deque[str] = deque(maxlen=REMOVED_REMEMBERED)

    def get(self, proxy_id: str) -> ProxySpec | None:
        """The proxy with this id; None if it is gone."""
        return self.specs.get(proxy_id)

    def is_outdated(self, spec: ProxySpec) -> bool:
        """True if a later revision is known, or the proxy was removed: messages may overtake each other."""
        known = self.get(spec.id)
        return spec.id in self._removed or (known is not None and known.revision > spec.revision)

    def remove(self, proxy_id: str) -> ProxySpec | None:
        """The proxy no longer exists; returns what it was."""
        self._removed.append(proxy_id)
        return self.specs.pop(proxy_id, None)

    def replace(self, specs: Iterable[ProxySpec]) -> dict[str, ProxySpec]:
        """These are all proxies; returns those before."""
        before, self.specs = self.specs, {spec.id: spec for spec in specs}
        self._removed.clear()
        return before

    def label(self, actor: str) -> str:
        """What logs call the actor of this name: of a proxy `office (3128)`."""
        spec = self.get(actor.removeprefix(forwarding_name("")))
        return actor if spec is None else proxy_label(spec.name, spec.port)
