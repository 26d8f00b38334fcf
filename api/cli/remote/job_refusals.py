"""What was refused to a job, by host and reason, and what would allow it: lines of a policy, or options."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from api.cli.terminal.output import counted
from api.cli.toml import string

TLS_NAME = "tls_name_denied"
ENTRIES = 20
"""Targets that are listed; a job may have tried thousands."""

Refusals = Sequence[dict[str, Any]]


def entry_of(refusal: dict[str, Any]) -> str:
    """The target as an entry of access rules, policies and `--allow`."""
    return refusal["host"] if refusal["port"] is None else f"{refusal['host']}:{refusal['port']}"


def summary(refusals: Refusals, complete: bool, account: str) -> list[str]:
    """Lines for people. `account` is the user name."""
    if not refusals:
        return []
    total = sum(each["records"] for each in refusals)
    lines = [f"refused to this job: {'' if complete else 'at least '}{counted(total, 'request')}"]
    lines += _listed(refusals)
    lines += _ways(refusals, account)
    return lines


def _listed(refusals: Refusals) -> list[str]:
    most = refusals[:ENTRIES]
    width = max(len(entry_of(each)) for each in most)
    lines = []
    for each in most:
        why = each["detail"] if each["reason"] == TLS_NAME else each["rule"]  # the detail has both names
        lines.append(f"  {each['records']:>5}  {entry_of(each):<{width}}  {each['reason']}{f' ({why})' if why else ''}")
    left = len(refusals) - len(most)
    return [*lines, f"         and {counted(left, 'other')}"] if left else lines


def _ways(refusals: Refusals, account: str) -> list[str]:
    """What would allow it, for each kind of reason that occurs."""
    lines: list[str] = []
    for reasons, way in _WAYS:
        entries = list(dict.fromkeys(entry_of(each) for each in refusals if each["reason"] in reasons))
        if entries:
            lines += way(entries[:ENTRIES], account)
    return lines


def _by_credential(entries: list[str], _account: str) -> list[str]:
    return ["to allow it, run the command with:", "  " + " ".join(f"--allow {shlex.quote(each)}" for each in entries)]


def _by_account(entries: list[str], account: str) -> list[str]:
    whose = f"of the account {account} or of its plan"
    return [f"to allow it, allow_destinations {whose} needs, and deny_destinations must not have:", _texts(entries)]


def _by_policy(entries: list[str], account: str) -> list[str]:
    return [
        "to allow it, the policy needs in front of the rule that refused:",
        *_rule(entries, account, "{}"),
        "from a file with all of its rules:",
        "  proxyfleet policies update NAME --from FILE",
    ]


def _by_access(entries: list[str], account: str) -> list[str]:
    lines = _rule(entries, account, '{ use = "direct" }')
    return ["to allow it, a policy of the account, of its plan or of the proxy needs:", *lines, *_applied(account)]


def _by_tls_name(entries: list[str], account: str) -> list[str]:
    what = "to allow any other name there, and what is not TLS, if you trust the host with both, a policy needs:"
    return [what, *_rule(entries, account, '{ tls_name = "record" }'), *_applied(account)]


def _by_guard(_entries: list[str], _account: str) -> list[str]:
    return ["no policy lifts the egress guard; proxy.egress_allow of the configuration does"]


def _rule(entries: list[str], account: str, action: str) -> list[str]:
    """A rule as `proxyfleet policies create --from` reads it."""
    name = f"allow {entries[0]}" + (" and others" if entries[1:] else "")
    destinations = ", ".join(map(string, entries))
    return [
        "  [[rules]]",
        f"  name = {string(name)}",
        f"  match = {{ accounts = [{string(account)}], destinations = [{destinations}] }}",
        f"  action = {action}",
    ]


def _applied(account: str) -> list[str]:
    """How the lines come into force."""
    return [
        "from a file with these lines, as the policy of the account if it has none yet:",
        "  proxyfleet policies create NAME --from FILE",
        f"  proxyfleet accounts update {shlex.quote(account)} --policy NAME",
    ]


def _texts(entries: list[str]) -> str:
    return f"  {json.dumps(entries)}"


_WAYS: tuple[tuple[tuple[str, ...], Callable[[list[str], str], list[str]]], ...] = (
    (("credential_destination_not_allowed",), _by_credential),
    (("account_destination_denied", "account_destination_not_allowed"), _by_account),
    (("policy_denied",), _by_policy),
    (("destination_denied", "destination_not_allowed"), _by_access),
    ((TLS_NAME,), _by_tls_name),
    (("destination_ip_prohibited",), _by_guard),
)
"""By the reasons of records; limits and times have no line that would lift them."""
