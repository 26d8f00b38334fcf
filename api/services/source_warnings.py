"""Warnings about networks that connections are to leave from, and whose replies this machine would not take."""

from __future__ import annotations

from collections.abc import Iterable

from actors.net.this_machine import is_local
from config.model.policies import Policy, policy_warnings
from config.model.proxy_checks import Warned
from config.net.entries import is_network, read_egress, usable


def unrouted(entries: str | Iterable[str], field: str) -> list[Warned]:
    """The networks among these entries for which there is no route of the type `local`; `field` is that of them all."""
    found = []
    one = isinstance(entries, str)
    for index, entry in enumerate([entries] if isinstance(entries, str) else entries):
        if is_network(entry) and not _is_routed(entry):
            command = f"ip {'-6 ' if ':' in entry else ''}route add local {entry} dev lo"
            text = f"{entry} is not routed to this machine, so replies get lost: {command}"
            found.append(Warned(field if one else f"{field}[{index}]", text))
    return found


def warnings_of_policy(policy: Policy) -> list[Warned]:
    """All warnings about its rules."""
    found = policy_warnings(policy)
    for index, rule in enumerate(policy.rules):
        found += unrouted(rule.action.egress, f"rules[{index}].action.egress")
    return found


def _is_routed(entry: str) -> bool:
    """Whether the first address of a network is one of this machine; True where that can't be found out."""
    network, (first, _last) = read_egress(entry), usable(entry)
    try:
        return is_local(network.network_address + (first - int(network.network_address)))
    except OSError:
        return True
