"""A policy that is not stored, among those of a proxy: for `explain`."""

from __future__ import annotations

from collections.abc import Iterable

from actors.bus.messages.fleet_objects import ListRef
from actors.bus.messages.policies import PolicySpec
from actors.bus.messages.specs import AccountSpec
from actors.forwarding.access.named_lists import Content, NamedListFiles
from actors.forwarding.access.rules import FoundList
from actors.forwarding.context import ForwardingContext
from actors.forwarding.policies.policy_set import NO_POLICIES, PolicySet
from config.net.entries import ListHost


class ListsOfDraft:
    """The lists that a draft names, read when they are needed; all others are those of the actor."""

    def __init__(self, known: NamedListFiles, refs: Iterable[ListRef]) -> None:
        self._known = known
        self._refs = {ref.name: ref for ref in refs}
        self._found: dict[str, Content | None] = {}

    def find(self, host: ListHost) -> FoundList | None:
        """See `NamedLists`."""
        ref = self._refs.get(host.name)
        if ref is None:
            return self._known.find(host)
        if host.name not in self._found:
            self._found[host.name] = self._known.read(ref)
        content = self._found[host.name]
        return None if content is None else content.of(host)

    def judges_addresses(self, host: ListHost) -> bool:
        """See `NamedLists`."""
        ref = self._refs.get(host.name)
        return self._known.judges_addresses(host) if ref is None else ref.judges_addresses


def tried(
    context: ForwardingContext, draft: PolicySpec, refs: Iterable[ListRef], account: AccountSpec | None
) -> PolicySet:
    """The policies of the proxy with the draft among them."""
    lists = ListsOfDraft(context.lists, refs)
    policies = context.policies or NO_POLICIES
    return policies.with_draft(draft, () if account is None else account.policies, lists)
