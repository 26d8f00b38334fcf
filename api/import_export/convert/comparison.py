"""Replays an access.log of squid against converted policies, and groups what they decide in another way.

The log is in squid's own format.

The compiled policies decide as in a product, without one. What a log does not say is assumed: that users have an
account, that passwords are right, and, where it has none, that the address of a target does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import unquote

from actors.forwarding.policies.compiled import CompiledPolicy, compile_policy
from actors.forwarding.policies.facts import Facts
from actors.forwarding.protocols.failures import Refused
from actors.forwarding.protocols.http.targets import read_target
from api.import_export.convert.regions import superiors
from api.objects.named.policy_kind import policy_spec
from config.model.shared_objects.policies import PolicyCreate, new_policy
from config.net.addresses import Address, is_plain_address, plain
from config.net.entries import ListHost

REFUSED, ASKED, DIRECT, UPSTREAM, ALLOWED = "refused", "asked", "direct", "upstream", "allowed"
_WORDS = {ASKED: "asked for a password", DIRECT: "allowed directly", UPSTREAM: "allowed through an upstream"}
EXAMPLES_MAX = 3
EXAMPLE_MAX = 160
LINE_MAX = 64 * 1024
"""Lines that are longer come in pieces, which are no requests."""
TIME_MAX = 4_102_444_800
"""The year 2100: what is later is no time of a request, and no calendar has what is much later."""


class SquidLogEntry(NamedTuple):
    """One request. `user` is empty without one, `way` is squid's word for it (`HIER_DIRECT`), `server` may be empty."""

    time: float
    client: str
    result: str
    status: int
    method: str
    url: str
    user: str
    way: str
    server: str


class Unreadable(ValueError):
    """The line can't be read; the text says why."""


def entry_of(line: bytes) -> SquidLogEntry:
    """The request of a line. Raises `Unreadable`."""
    try:
        time, _elapsed, client, outcome, _size, method, url, user, way, *_type = line.decode("utf-8", "replace").split()
        (result, _, status), (name, _, server) = outcome.partition("/"), way.partition("/")
        user, server = "" if user == "-" else unquote(user), server if is_plain_address(server) else ""
        found = SquidLogEntry(float(time), client, result, int(status), method, url, user, name, server)
    except ValueError:
        raise Unreadable("is not in squid's own format") from None
    if not 0 <= found.time <= TIME_MAX:
        raise Unreadable("has no time of a request")
    if not is_plain_address(found.client):
        raise Unreadable("has no address of a client")
    return found


class _Lists:
    """Those of domains in the document; each is its own entries."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._known = {each["name"]: _Domains(each["entries"]) for each in document.get("lists", [])}

    def find(self, host: ListHost) -> _Domains | None:
        return self._known.get(host.name)

    def judges_addresses(self, _host: ListHost) -> bool:
        return False


class _Domains(frozenset[str]):
    """Domains, with all that is below them."""

    def by_name(self, name: str) -> str | None:
        return next((each for each in (name, *superiors(name)) if each in self), None)

    def by_address(self, _address: Address) -> str | None:
        return None


class Rules(NamedTuple):
    """One policy, for requests of logs. `wants_users`: the proxies ask for credentials."""

    policy: CompiledPolicy
    wants_users: bool

    def decide(self, entry: SquidLogEntry) -> tuple[str, str]:
        """The outcome, which is empty where the target's address decides and isn't known, and the rule. Raises
        `Refused` for a target that no proxy takes."""
        if self.wants_users and not entry.user:
            return ASKED, "auth"
        method = "" if entry.method == "CONNECT" else entry.method
        target = read_target("/".join(entry.url.split("/", 3)[:3]))
        user = entry.user if self.wants_users else ""
        facts = Facts(target.host, target.port, target.literal, entry.client, entry.time, user, method=method)
        found = self.policy.find(facts, plain(entry.server) if entry.server else facts.address)
        if found.open:
            return "", ""
        if found.rule is None:
            return DIRECT, "no line matches"
        return {"deny": REFUSED, "direct": DIRECT}.get(found.rule.spec.use, UPSTREAM), found.rule.spec.name


@dataclass
class ComparedGroup:
    """Requests that squid and a rule decided in one way each."""

    squid: str
    here: str
    rule: str
    count: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_laxer(self) -> bool:
        """Whether squid did not allow them, and the rule does."""
        return self.squid in (REFUSED, ASKED) and self.here not in (REFUSED, ASKED)

    def data(self) -> dict[str, Any]:
        """For programs."""
        examples = [{"line": where, "request": text} for where, text in self.examples]
        return {**vars(self), "examples": examples}


@dataclass
class Comparison:
    """What came of all lines so far. `left_out` has why lines can't be compared, with their number and the first."""

    lines: int = 0
    alike: int = 0
    groups: dict[tuple[str, str, str], ComparedGroup] = field(default_factory=dict)
    left_out: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def different(self) -> int:
        """How many lines the rules decide in another way."""
        return sum(each.count for each in self.groups.values())

    @property
    def sorted_groups(self) -> list[ComparedGroup]:
        """What the rules allow and squid did not comes first, then the most."""
        return sorted(self.groups.values(), key=lambda each: (not each.is_laxer, -each.count))

    def add_difference(self, squid: str, here: str, rule: str, where: str, entry: SquidLogEntry) -> None:
        """Count it, with its first examples."""
        group = self.groups.setdefault((squid, here, rule), ComparedGroup(squid, here, rule))
        group.count += 1
        if len(group.examples) < EXAMPLES_MAX:
            user = f" ({entry.user})" if entry.user else ""
            text = f"{entry.method} {entry.url.partition('?')[0]} from {entry.client}{user}"
            group.examples.append((where, text[:EXAMPLE_MAX]))

    def leave_out(self, why: str, where: str) -> None:
        """Count a line that can't be compared."""
        count, first = self.left_out.get(why, (0, where))
        self.left_out[why] = count + 1, first

    def data(self) -> dict[str, Any]:
        """For programs."""
        numbers = {"lines": self.lines, "alike": self.alike, "different": self.different}
        left_out = [{"why": why, "count": count, "first": first} for why, (count, first) in self.left_out.items()]
        return {**numbers, "groups": [each.data() for each in self.sorted_groups], "left_out": left_out}

    def texts(self) -> Iterator[str]:
        """For people."""
        left_out = sum(count for count, _first in self.left_out.values())
        alike, different = f"{self.alike:,} decided alike", f"{self.different:,} in another way"
        yield f"{self.lines:,} lines: {alike}, {different}, {left_out:,} left out"
        for each in self.sorted_groups:
            laxer = "MORE IS ALLOWED: " if each.is_laxer else ""
            squid, here = (_WORDS.get(word, word) for word in (each.squid, each.here))
            yield f"{laxer}{each.count:,} x squid: {squid}, here: {here} by {each.rule}"
            yield from (f"    {where}: {text}" for where, text in each.examples)
        for why, (count, first) in self.left_out.items():
            yield f"Left out: {count:,} x {why}; the first is {first}"


def rules_of(document: Mapping[str, Any]) -> list[Rules]:
    """The policies of the document, each once for the proxies that have it."""
    lists = _Lists(document)
    wants: dict[str, bool] = {}
    for proxy in document.get("proxies", []):
        name = proxy.get("policy", "")
        wants[name] = wants.get(name, True) and bool(proxy.get("auth", {}).get("enabled"))
    known = {each["name"]: each for each in document.get("policies", [])}
    made = {name: new_policy(PolicyCreate.model_validate(known[name]), 0.0) for name in wants if name in known}
    return [Rules(compile_policy(policy_spec(each, 1), lists), wants[name]) for name, each in made.items()]


def compare(document: Mapping[str, Any], logs: Iterable[Path], opened: Callable[[Path], BinaryIO]) -> Comparison:
    """Replay logs of squid. Raises `OSError`."""
    rules, comparison = rules_of(document), Comparison()
    for log in logs:
        with opened(log) as file:
            for number, line in enumerate(iter(partial(file.readline, LINE_MAX), b""), 1):
                comparison.lines += 1
                _compare(rules, comparison, line, f"{log.name}:{number}")
    return comparison


def _compare(rules: list[Rules], comparison: Comparison, line: bytes, where: str) -> None:
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
    alike = {wanted, DIRECT, UPSTREAM} if wanted == ALLOWED else {wanted}
    if any(outcome in alike for outcome, _rule in found):
        comparison.alike += 1
    elif not found:
        comparison.leave_out("there is no policy", where)
    elif any(not outcome for outcome, _rule in found):
        comparison.leave_out("rules about networks need the address of the target, which the line doesn't have", where)
    else:
        comparison.add_difference(wanted, *found[0], where, entry)


def _outcome(entry: SquidLogEntry) -> str:
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
