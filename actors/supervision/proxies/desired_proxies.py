"""The desired state, as the API has sent it: the proxies, and the lists, pools and policies that each of them needs.

Objects stay packed: the supervisor only follows their names.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from actors.bus.messages.common import forwarding_name, proxy_label
from actors.bus.messages.forwarding import Configure
from actors.bus.messages.specs import ALL_LISTS, FIRST_POLICY, POLICY_KEY, POOL_KEY, EgressSpec, FleetObject, ProxySpec
from config.model.choices import resolved

GONE_REMEMBERED = 1_000


class DesiredObjects:
    """All objects, by id and by key."""

    def __init__(self) -> None:
        self._by_id: dict[str, FleetObject] = {}
        self._by_key: dict[str, FleetObject] = {}
        self._gone: deque[str] = deque(maxlen=GONE_REMEMBERED)
        self._sets: dict[tuple[str, ...], dict[str, bytes]] = {}
        self._first_policy = ""

    def put_first(self, policy: str) -> None:
        """The policy of this name comes before that of each proxy, empty for none."""
        if policy != self._first_policy:
            self._first_policy = policy
            self._sets.clear()

    def replace(self, objects: Iterable[FleetObject]) -> None:
        """These are all objects."""
        self._by_id = {each.id: each for each in objects}
        self._gone.clear()
        self._index()

    def apply(self, objects: Iterable[FleetObject], gone: Iterable[str]) -> None:
        """These have changed, those are gone. Messages may overtake each other: the greater revision wins."""
        for each in objects:
            known = self._by_id.get(each.id)
            if each.id not in self._gone and (known is None or known.revision <= each.revision):
                self._by_id[each.id] = each
        for identifier in gone:
            self._gone.append(identifier)
            self._by_id.pop(identifier, None)
        self._index()

    def packed(self, key: str) -> bytes | None:
        """The packed object with this key; None if there is none."""
        found = self._by_key.get(key)
        return None if found is None else found.packed

    def needed_by(self, names: tuple[str, ...]) -> dict[str, bytes]:
        """By key, the packed objects with these keys and all that they name. A key of no object is left out.

        `list:*` is every list. What `put_first` says is in it. The set is shared, and must not be altered.
        """
        known = self._sets.get(names)
        if known is None:
            known = self._sets[names] = self._reached(names)
        return known

    def _index(self) -> None:
        self._by_key = {each.key: each for each in self._by_id.values()}
        self._sets.clear()

    def _reached(self, names: tuple[str, ...]) -> dict[str, bytes]:
        found, first = dict[str, bytes](), self._first_policy
        waiting = [*names, *(self._all_lists() if ALL_LISTS in names else ())]
        if first:
            found[FIRST_POLICY] = first.encode()
            waiting.append(POLICY_KEY + first)
        while waiting:
            each = self._by_key.get(waiting.pop())
            if each is not None and each.key not in found:
                found[each.key] = each.packed
                waiting += each.names
        return {key: packed for key, packed in sorted(found.items()) if packed}

    def _all_lists(self) -> Iterator[str]:
        return (key for key in self._by_key if key.startswith(ALL_LISTS.removesuffix("*")))


def worker_count(spec: ProxySpec) -> int:
    """The number of workers that the proxy is to have."""
    return resolved(spec.workers)


REMOVED_REMEMBERED = 1_000


class DesiredProxies:
    """`specs` are all proxies by id, active or not; `objects` what they name."""

    def __init__(self) -> None:
        self.specs: dict[str, ProxySpec] = {}
        self.objects = DesiredObjects()
        self._removed: deque[str] = deque(maxlen=REMOVED_REMEMBERED)
        self._named: Counter[tuple[str, ...]] = Counter()
        """How many active proxies name the same objects."""
        self._gone: dict[str, ProxySpec] = {}
        """Proxies that were removed, the latest ones: their processes drain under their names."""
        self._with_servers = 0
        """How many of them have name servers of their own."""

    def get(self, proxy_id: str) -> ProxySpec | None:
        """The proxy with this id; None if it is gone."""
        return self.specs.get(proxy_id)

    def configuration(self, spec: ProxySpec, egress: EgressSpec) -> Configure:
        """What the process of a proxy should be configured with."""
        return Configure(spec, egress, self.objects.needed_by(spec.objects))

    def pools_in_use(self) -> dict[str, bytes]:
        """By key, the packed pools that a proxy which is active may use, by whatever names them."""
        return {
            key: packed
            for names in self._named
            for key, packed in self.objects.needed_by(names).items()
            if key.startswith(POOL_KEY)
        }

    @property
    def some_name_servers(self) -> bool:
        """Whether a proxy that is active names name servers."""
        return self._with_servers > 0

    def is_outdated(self, spec: ProxySpec) -> bool:
        """True if a later revision is known, or the proxy was removed: messages may overtake each other."""
        known = self.get(spec.id)
        return spec.id in self._removed or (known is not None and known.revision > spec.revision)

    def put(self, spec: ProxySpec) -> ProxySpec | None:
        """The desired state of one proxy from now on; returns what it was."""
        before = self.specs.get(spec.id)
        self.specs[spec.id] = spec
        self._count(before, -1)
        self._count(spec, 1)
        return before

    def remove(self, proxy_id: str) -> ProxySpec | None:
        """The proxy no longer exists; returns what it was."""
        self._removed.append(proxy_id)
        before = self.specs.pop(proxy_id, None)
        self._count(before, -1)
        self._remember(() if before is None else (before,))
        return before

    def replace(self, specs: Iterable[ProxySpec], unchanged: Iterable[str] = ()) -> dict[str, ProxySpec]:
        """These are all proxies, with those of the ids `unchanged`, which are known; returns those before."""
        before = self.specs
        self.specs = {each: before[each] for each in unchanged} | {spec.id: spec for spec in specs}
        self._removed.clear()
        self._remember(spec for proxy_id, spec in before.items() if proxy_id not in self.specs)
        self._named.clear()
        self._with_servers = 0
        for spec in self.specs.values():
            self._count(spec, 1)
        return before

    def revisions(self) -> dict[str, int]:
        """Of all proxies, by id."""
        return {proxy_id: spec.revision for proxy_id, spec in self.specs.items()}

    def _remember(self, gone: Iterable[ProxySpec]) -> None:
        self._gone |= {spec.id: replace(spec, accounts=()) for spec in gone}
        for each in list(self._gone)[:-REMOVED_REMEMBERED]:
            del self._gone[each]

    def _count(self, spec: ProxySpec | None, number: int) -> None:
        if spec is not None and spec.active:
            self._named[spec.objects] += number
            if not self._named[spec.objects]:
                del self._named[spec.objects]
            self._with_servers += number * bool(spec.dns.servers)

    def label(self, actor: str, index: int | None = None) -> str:
        """What logs call the actor of this name: of a proxy `office (3128)`, of one of its workers with its number."""
        proxy_id = actor.removeprefix(forwarding_name(""))
        spec = self.get(proxy_id) or self._gone.get(proxy_id)
        if spec is None:
            return actor
        return proxy_label(spec.name, spec.ports, index or 0, 1 if index is None else worker_count(spec))
