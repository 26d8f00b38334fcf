"""Replays a log of squid against converted policies, and groups what they decide in another way.

The compiled policies decide as in a product, without one. What a log does not say is assumed: that users have an
account, that passwords are right, and, where it has none, that the address of a target does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from actors.forwarding.explain import plain_path, read_target
from actors.forwarding.policies.compiled import CompiledPolicy, compile_policy
from actors.forwarding.policies.facts import Facts
from actors.forwarding.protocols.failures import Refused
from api.import_export.convert.host_sets import superiors
from api.import_export.convert.squid.access_log import Entry, Unreadable, entry_of, lines_of
from api.services.object_specs import policy_spec
from config.model.policies import PolicyCreate, new_policy
from config.net.entries import ListHost
from config.net.ip import Address, plain

REFUSED, ASKED, DIRECT, UPSTREAM, ALLOWED = "refused", "asked", "direct", "upstream", "allowed"
_WORDS = {
    REFUSED: "refused",
    ASKED: "asked for a password",
    DIRECT: "allowed directly",
    UPSTREAM: "allowed through an upstream",
    ALLOWED: "allowed",
}
GROUPS_MAX = 2_000
EXAMPLES_MAX = 3
EXAMPLE_MAX = 160
KEPT_MAX = 50_000
"""Decisions that are kept, for requests that are alike."""
KEPT_LONGEST = 500
"""Characters of the URL and the user of a request whose decision is kept."""
MINUTE = 60
NO_NAME = "no line matches"


class _Domains:
    """A list of domains of the document."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._entries = frozenset(entries)

    def by_name(self, name: str) -> str | None:
        return next((each for each in (name, *superiors(name)) if each in self._entries), None)

    def by_address(self, _address: Address) -> str | None:
        return None


class _Lists:
    """Those of the document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._known = {each["name"]: _Domains(each["entries"]) for each in document.get("lists", [])}

    def find(self, host: ListHost) -> _Domains | None:
        return self._known.get(host.name)

    def judges_addresses(self, _host: ListHost) -> bool:
        return False


class Decision(NamedTuple):
    """What the rules do: `outcome` None where the address of the target decides, and isn't known."""

    outcome: str | None
    rule: str


class Rules:
    """One policy, for requests of logs. `wants_users`: the proxies ask for credentials."""

    def __init__(self, policy: CompiledPolicy, wants_users: bool) -> None:
        self._policy = policy
        self._wants_users = wants_users
        self._by_path = any(rule.paths for rule in policy.rules)
        self._by_query = any(pattern.is_for_queries for rule in policy.rules for pattern in rule.paths)
        self._by_time = any(rule.schedule is not None for rule in policy.rules)
        self._kept: dict[tuple[object, ...], Decision] = {}

    def decide(self, entry: Entry) -> Decision:
        """Raises `Refused` for a target that no proxy takes, `Unreadable` for one without what rules ask for."""
        if self._by_query and entry.url.endswith("?"):
            raise Unreadable("has no query any more, which rules ask for (strip_query_terms off keeps it)")
        if self._wants_users and not entry.user:
            return Decision(ASKED, "auth")
        path = plain_path(entry.url) if self._by_path else ""
        method = "" if entry.method == "CONNECT" else entry.method
        minute = entry.time // MINUTE if self._by_time else 0
        authority = entry.url if self._by_path else "/".join(entry.url.split("/", 3)[:3])
        key = (entry.client, entry.user, method, authority, path, minute, entry.server)
        known = self._kept.get(key)
        if known is None:
            if len(entry.url) + len(entry.user) > KEPT_LONGEST:
                return self._judged(entry, method, path)
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            known = self._kept[key] = self._judged(entry, method, path)
        return known

    def _judged(self, entry: Entry, method: str, path: str) -> Decision:
        target = read_target(entry.url)
        user = entry.user if self._wants_users else ""
        facts = Facts(
            target.host, target.port, target.literal, entry.client, entry.time, user, method=method, path=path
        )
        found = self._policy.find(facts, plain(entry.server) if entry.server else facts.address)
        if found.open:
            return Decision(None, "")
        if found.rule is None:
            return Decision(DIRECT, NO_NAME)
        use = found.rule.spec.use
        return Decision({"deny": REFUSED, "direct": DIRECT}.get(use, UPSTREAM), found.rule.spec.name)


@dataclass
class Group:
    """Requests that squid and a rule decided in one way each."""

    squid: str
    here: str
    rule: str
    count: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        """For programs."""
        examples = [{"line": where, "request": text} for where, text in self.examples]
        return {"squid": self.squid, "here": self.here, "rule": self.rule, "count": self.count, "examples": examples}


@dataclass
class Comparison:
    """What came of all lines so far. `left_out` has why lines can't be compared, with their number and the first."""

    lines: int = 0
    alike: int = 0
    groups: dict[tuple[str, str, str], Group] = field(default_factory=dict)
    left_out: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def different(self) -> int:
        """How many lines the rules decide in another way."""
        return sum(each.count for each in self.groups.values())

    @property
    def sorted_groups(self) -> list[Group]:
        """What the rules allow and squid did not comes first, then the most."""
        return sorted(self.groups.values(), key=lambda each: (not _is_laxer(each), -each.count))

    def add_difference(self, wanted: str, found: Decision, where: str, entry: Entry) -> None:
        """Count it, with its first examples. There are not more groups than `GROUPS_MAX`."""
        key = (wanted, found.outcome or "", found.rule)
        if key not in self.groups and len(self.groups) >= GROUPS_MAX:
            key = (wanted, found.outcome or "", "other rules")
        group = self.groups.setdefault(key, Group(*key))
        group.count += 1
        if len(group.examples) < EXAMPLES_MAX:
            request = f"{entry.method} {entry.url.partition('?')[0]} from {entry.client}"
            text = f"{request} ({entry.user})" if entry.user else request
            group.examples.append((where, text[:EXAMPLE_MAX]))

    def leave_out(self, why: str, where: str) -> None:
        """Count a line that can't be compared."""
        count, first = self.left_out.get(why, (0, where))
        self.left_out[why] = count + 1, first

    def data(self) -> dict[str, Any]:
        """For programs."""
        return {
            "lines": self.lines,
            "alike": self.alike,
            "different": self.different,
            "groups": [each.data() for each in self.sorted_groups],
            "left_out": [{"why": why, "count": count, "first": first} for why, (count, first) in self.left_out.items()],
        }

    def texts(self) -> Iterator[str]:
        """For people."""
        left_out = sum(count for count, _first in self.left_out.values())
        yield (
            f"{self.lines:,} lines: {self.alike:,} decided alike, {self.different:,} in another way, "
            f"{left_out:,} left out"
        )
        for each in self.sorted_groups:
            laxer = "MORE IS ALLOWED: " if _is_laxer(each) else ""
            yield f"{laxer}{each.count:,} x squid: {_WORDS[each.squid]}, here: {_WORDS[each.here]} by {each.rule}"
            yield from (f"    {where}: {text}" for where, text in each.examples)
        for why, (count, first) in self.left_out.items():
            yield f"Left out: {count:,} x {why}; the first is {first}"


def _is_laxer(group: Group) -> bool:
    return group.squid in (REFUSED, ASKED) and group.here not in (REFUSED, ASKED)


def rules_of(document: Mapping[str, Any]) -> list[Rules]:
    """The policies of the document, each once for the proxies that have it."""
    lists = _Lists(document)
    wants: dict[str, bool] = {}
    for proxy in document.get("proxies", []):
        name = proxy.get("policy", "")
        wants[name] = wants.get(name, True) and bool(proxy.get("auth", {}).get("enabled"))
    known = {each["name"]: each for each in document.get("policies", [])}
    return [Rules(_compiled(known[name], lists), users) for name, users in wants.items() if name in known]


def _compiled(policy: Mapping[str, Any], lists: _Lists) -> CompiledPolicy:
    return compile_policy(policy_spec(new_policy(PolicyCreate.model_validate(policy), 0.0), 1), lists)


def compare(document: Mapping[str, Any], logs: Iterable[Path], opened: Callable[[Path], BinaryIO]) -> Comparison:
    """Replay logs of squid. Raises `OSError`. A log doesn't say which port a request came to: where the ports have
    policies of their own, one that decides as squid did is enough."""
    rules, comparison = rules_of(document), Comparison()
    for log in logs:
        with opened(log) as file:
            for number, line in enumerate(lines_of(file), 1):
                comparison.lines += 1
                _compare(rules, comparison, line, f"{log.name}:{number}")
    return comparison


def _compare(rules: list[Rules], comparison: Comparison, line: bytes | None, where: str) -> None:
    try:
        entry = entry_of(line)
        wanted = _outcome(entry)
        found = [each.decide(entry) for each in rules]
    except Unreadable as error:
        comparison.leave_out(f"a line that {error}", where)
        return
    except Refused as refused:
        comparison.leave_out(f"no target of a proxy: {refused.failure.detail}", where)
        return
    if any(_is_alike(wanted, each) for each in found):
        comparison.alike += 1
    elif not found:
        comparison.leave_out("there is no policy", where)
    elif any(each.outcome is None for each in found):
        comparison.leave_out("rules about networks need the address of the target, which the line doesn't have", where)
    else:
        comparison.add_difference(wanted, found[0], where, entry)


def _is_alike(wanted: str, found: Decision) -> bool:
    return found.outcome == wanted or (wanted == ALLOWED and found.outcome in (DIRECT, UPSTREAM))


def _outcome(entry: Entry) -> str:
    """What squid did. Raises `Unreadable` for what is no decision about a request."""
    if entry.method != "CONNECT" and not entry.url.startswith("http://"):
        raise Unreadable("has no request of plain HTTP, and no CONNECT")
    if "DENIED" in entry.result:
        if entry.status == 407 and entry.user:
            raise Unreadable("is about a wrong password")
        return ASKED if entry.status == 407 else REFUSED
    if "PARENT" in entry.way or entry.way == "CARP":
        return UPSTREAM
    if "DIRECT" in entry.way or entry.way == "ORIGINAL_DST":
        return DIRECT
    if entry.status >= 500:
        raise Unreadable("is about a failure of squid")
    return ALLOWED
