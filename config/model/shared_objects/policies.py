"""Policies in requests, and their stored model: rules in order, of which the first that matches decides.

Of `match`, everything that is given has to match, and of a list one entry; what is left out matches everything.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Container, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StrictBool, StrictStr, WithJsonSchema

from config.model import json_patterns
from config.model.accounts import Bandwidth, Number
from config.model.choices import ANY_METHOD, TAG_PREFIX, TlsNameCheck
from config.model.declaration import SECRET, Given, Instant, LongList, Viewed, gives, update
from config.model.fields import (
    Body,
    InvalidResource,
    Name,
    PortOrRange,
    Text,
    TextList,
    example,
    name_text,
    plain_text,
    user_name,
)
from config.model.object_fields import (
    Description,
    HeadersToRemove,
    HeadersToSet,
    ObjectName,
    SomeLabels,
    set_and_removed,
)
from config.model.plans import Schedule, ScheduleInput
from config.model.proxy_parts import FieldWarning, Mode, SomeEgress, refuse_foreign
from config.net.entries import read_entry, read_network
from config.net.names import in_a_labels
from config.text.formatting import parse_moment, timestamp_text

RULES_MAX = 1_000
MATCHES_MAX = 1_000
"""Entries of one list in `match`."""
ENTRIES_MAX = 50_000
"""Of all rules of a policy: a proxy compiles them while its clients wait, which takes about 25 µs an entry."""
METHODS_MAX = 50
NAME_MAX = 100
"""Characters of the name of a rule."""
POOL_PREFIX = "pool:"

_METHOD = re.compile(json_patterns.METHOD, re.ASCII)
_PATH = re.compile(json_patterns.PATH_PATTERN, re.ASCII)
_USE = re.compile(json_patterns.USE, re.ASCII)


def _account(text: str) -> str:
    if text.startswith(TAG_PREFIX):
        tag = plain_text(text.removeprefix(TAG_PREFIX))
        if len(tag) > 64:
            raise ValueError("a tag has at most 64 characters")
        return text
    if len(text) > 128:
        raise ValueError("a user name has at most 128 characters")
    return user_name(text)


def _proxy(text: str) -> str:
    if text.startswith(TAG_PREFIX):
        most, what, name = 64, "a tag", text.removeprefix(TAG_PREFIX)
    else:
        most, what, name = 100, "the name of a proxy", text
    if len(name_text(name)) > most:
        raise ValueError(f"{what} has at most {most} characters")
    return text


def _method(text: str) -> str:
    if text == "CONNECT":
        raise ValueError("must not be CONNECT: a rule with methods never matches a tunnel")
    if _METHOD.fullmatch(text) is None:
        raise ValueError("must be a method, such as GET, of at most 32 characters, or * for any")
    return text


def _path(text: str) -> str:
    if {".", ".."} & set(text.partition("?")[0].lower().replace("%2e", ".").split("/")):
        raise ValueError("must have no segments . and ..: they are removed before paths are compared")
    if _PATH.fullmatch(text) is None:
        raise ValueError(
            "must begin with / and have visible ASCII without #; * stands for any text, and a query follows ?"
        )
    return text


def _tunnel(given: bool) -> bool:
    if not given:
        raise ValueError('must be true; without it a rule holds for both, with "methods": ["*"] for plain HTTP')
    return given


def _until(given: Any) -> str:
    return timestamp_text(parse_moment(given))


def _use(text: str) -> str:
    if _USE.fullmatch(text) is None:
        raise ValueError("must be direct, deny or pool:NAME")
    return text


MatchAccounts = Annotated[list[str], TextList(MATCHES_MAX, _account, json_patterns.ACCOUNT_MATCH, least=1)]
MatchDestinations = Annotated[
    list[str], TextList(MATCHES_MAX, read_entry, json_patterns.WRITTEN_DESTINATION, in_a_labels, least=1)
]
MatchMethods = Annotated[list[str], TextList(METHODS_MAX, _method, json_patterns.METHOD, least=1)]
MatchPaths = Annotated[list[str], TextList(MATCHES_MAX, _path, json_patterns.PATH_PATTERN, least=1)]
MatchListenPorts = Annotated[list[PortOrRange], Field(min_length=1, max_length=MATCHES_MAX)]
MatchProxies = Annotated[list[str], TextList(MATCHES_MAX, _proxy, json_patterns.PROXY_MATCH, least=1)]
MatchTunnel = Annotated[StrictBool, AfterValidator(_tunnel), WithJsonSchema({"type": "boolean", "const": True})]
MatchClients = Annotated[list[str], TextList(MATCHES_MAX, read_network, json_patterns.NETWORK, least=1)]
Until = Annotated[str, BeforeValidator(_until), WithJsonSchema(json_patterns.MOMENT)]
"""As it is stored: ISO 8601, UTC."""
Use = Annotated[StrictStr, AfterValidator(_use), json_patterns.text(json_patterns.USE)]
Reason = Annotated[StrictStr, Text(1, 200, plain_text, pattern=json_patterns.PLAIN)]


class RuleMatch(BaseModel):
    """Stored: what a rule matches. What is empty matches everything. `until` is ISO 8601, UTC."""

    accounts: Annotated[list[str], Given(MatchAccounts)] = []
    destinations: Annotated[list[str], Given(MatchDestinations)] = []
    methods: Annotated[list[str], Given(MatchMethods)] = []
    paths: Annotated[list[str], Given(MatchPaths)] = []
    tunnel: Annotated[bool, Given(MatchTunnel)] = False
    params: Annotated[dict[str, str], Given(SomeLabels)] = {}
    schedule: Annotated[Schedule | None, Given(ScheduleInput)] = None
    clients: Annotated[list[str], Given(MatchClients)] = []
    listen_ports: Annotated[list[int | str], Given(MatchListenPorts)] = []
    proxies: Annotated[list[str], Given(MatchProxies)] = []
    until: Annotated[str, Given(Until)] = ""

    @property
    def ends_at(self) -> float:
        """When nothing is matched any more, in Unix seconds; 0: that does not end."""
        return parse_moment(self.until) if self.until else 0.0


@gives(RuleMatch)
class MatchInput(Body):
    """What a rule matches: all that is given. `methods` and `paths` are of plain HTTP and never match a tunnel.

    The method `*` is any; a pattern of `paths` may have a query behind `?`. `tunnel` is for CONNECT, SOCKS and all
    else that is not plain HTTP.

    `accounts` are user names and `tag:` with a tag, `params` parameters of the user name. `listen_ports` are
    those of the proxy that the client came to, each a port or a range such as `20000-20999`. `proxies` are names and
    ids of proxies, and `tag:` with a tag of theirs. From the moment `until` on nothing is matched.
    """


class ActionHeaders(BaseModel):
    """Stored: header fields to set and to remove."""

    set: Annotated[dict[str, str], Given(HeadersToSet)] = {}
    remove: Annotated[list[str], Given(HeadersToRemove)] = []


@gives(ActionHeaders)
class ActionHeadersInput(Body):
    """Header fields of a request to the origin that a rule sets and removes (plain HTTP)."""


class ActionLimits(BaseModel):
    """Stored: limits of a rule, 0 for none."""

    bandwidth_in: Annotated[int, Given(Bandwidth)] = 0
    bandwidth_out: Annotated[int, Given(Bandwidth)] = 0
    connections: Annotated[int, Given(Number)] = 0
    requests_per_minute: Annotated[int, Given(Number)] = 0


@gives(ActionLimits)
class ActionLimitsInput(Body):
    """Limits of the requests that a rule matches, all of them together, for each proxy; 0 for none.

    Bandwidth is bytes per second; `in` is what clients send. `connections` are requests and tunnels at the same time.
    """


class RuleAction(BaseModel):
    """Stored: what a rule does. `use` is `direct`, `deny`, `pool:` and a name, or empty; `tls_name` may be empty."""

    use: Annotated[str, Given(Use)] = ""
    reason: Annotated[str, Given(Reason)] = ""
    egress: Annotated[list[str], Given(SomeEgress)] = []
    tls_name: Annotated[str, Given(TlsNameCheck)] = ""
    headers: Annotated[ActionHeaders, Given(ActionHeadersInput)] = ActionHeaders()
    limits: Annotated[ActionLimits, Given(ActionLimitsInput)] = ActionLimits()

    @property
    def pool(self) -> str:
        """The name of the pool that it uses, empty for none."""
        return self.use.removeprefix(POOL_PREFIX) if self.use.startswith(POOL_PREFIX) else ""


@gives(RuleAction)
class ActionInput(Body):
    """What a rule does. Without `use` the request goes the proxy's own way.

    `reason` is what the client of a refused request reads. `egress` are addresses of this machine and networks
    that are routed to it: connections leave from them. `tls_name` is what becomes of the name in the TLS handshake of a
    tunnel, in place of the proxy's.
    """


class RuleParts(Body):
    """All of a rule but its name."""

    match: MatchInput
    action: ActionInput
    mode: Mode = "enforce"


class RuleInput(RuleParts):
    """A rule. With the mode `report` it decides nothing, and records say what it would have decided."""

    name: Name


class PolicyRule(Viewed):
    """Stored: a rule."""

    name: str
    match: RuleMatch = RuleMatch()
    action: RuleAction = RuleAction()
    mode: Mode = "enforce"

    def view(self) -> dict[str, Any]:
        """As a request gives it: what it doesn't say is left out."""
        plain = self.model_dump(exclude_defaults=True)
        return {
            "name": self.name,
            "match": plain.get("match", {}),
            "action": plain.get("action", {}),
            "mode": self.mode,
        }


class Policy(BaseModel):
    """A document of the collection `policies`. Times are Unix seconds.

    `ended` counts the changes that end tunnels which are no longer allowed: a process that knows a smaller number
    judges its tunnels again.
    """

    id: str
    name: Annotated[str, Given(ObjectName)]
    description: Annotated[str, Given(Description)] = ""
    rules: Annotated[list[PolicyRule], LongList("rule")] = []
    ended: Annotated[int, SECRET] = 0
    created_at: Instant
    updated_at: Instant


Rules = Annotated[list[RuleInput], Field(max_length=RULES_MAX)]


@gives(Policy)
class PolicyUpdate(Body):
    """A change of a policy: what is not given stays. `rules` are replaced as a whole.

    With `end_existing` tunnels are ended that are no longer allowed; it is of this change alone, and not stored.
    """

    model_config = example(
        {"rules": [{"name": "nothing", "match": {}, "action": {"use": "deny"}}], "end_existing": True}
    )

    rules: Rules | None = None
    end_existing: StrictBool | None = None


class PolicyCreate(PolicyUpdate):
    """A new policy."""

    model_config = example(
        {
            "name": "builds",
            "description": "what builds may reach",
            "rules": [
                {
                    "name": "packages",
                    "match": {
                        "accounts": ["tag:ci"],
                        "destinations": ["*.pypi.example", "10.1.0.0/16:443"],
                        "schedule": {
                            "timezone": "Europe/Berlin",
                            "windows": [{"days": ["mon", "tue"], "from": "08:00", "to": "18:00"}],
                        },
                        "clients": ["10.0.0.0/8"],
                    },
                    "action": {"use": "direct"},
                },
                {
                    "name": "everything else",
                    "match": {},
                    "action": {"use": "deny", "reason": "builds may reach packages only"},
                },
            ],
        }
    )

    name: ObjectName


class RuleFirst(RuleParts):
    """A rule that is to come before all others of its policy, in place of one of its name.

    Without a name, one that denies is called by what it matches: `block casino.example on office for bob`. With
    `end_existing` tunnels are ended that are no longer allowed.
    """

    model_config = example(
        {
            "match": {"destinations": ["casino.example"], "until": "2030-01-31T12:00:00Z"},
            "action": {"use": "deny"},
            "end_existing": True,
        }
    )

    name: Name | None = None
    end_existing: StrictBool | None = None


def new_policy(body: PolicyCreate, now: float) -> Policy:
    """The policy that `body` describes. Raises `InvalidResource`."""
    blank = Policy(id="policy_" + secrets.token_hex(8), name=body.name, created_at=now, updated_at=now)
    return change_policy(blank, body, now)


def change_policy(policy: Policy, body: PolicyUpdate, now: float) -> Policy:
    """`policy` with the changes of `body`. Raises `InvalidResource`."""
    changed = {**update(policy, body), "updated_at": now}
    if body.rules is not None:
        changed["rules"] = _stored(body.rules)
    if body.end_existing:
        changed["ended"] = policy.ended + 1
    return policy.model_copy(update=changed)


def put_first(policy: Policy, body: RuleFirst, proxies: Mapping[str, str], now: float) -> Policy:
    """`policy` with a rule before all others, and without another one of its name. `proxies` are names by their ids.

    Raises `InvalidResource`.
    """
    rule = _rule(body, body.name or "", "")
    rule.name = rule.name or _name_of_block(rule, proxies)
    rules = [rule, *(each for each in policy.rules if each.name != rule.name)]
    if len(rules) > RULES_MAX:
        raise InvalidResource("name", f"there are {RULES_MAX:,} rules already")
    _check_size(rules)
    changed: dict[str, Any] = {"rules": rules, "updated_at": now}
    return policy.model_copy(update=changed | ({"ended": policy.ended + 1} if body.end_existing else {}))


def _name_of_block(rule: PolicyRule, proxies: Mapping[str, str]) -> str:
    """It says where and whom it blocks, not for how long: the same block again takes the place of this one."""
    if rule.action.use != "deny":
        raise InvalidResource("name", "is required of a rule that does not deny")
    match = rule.match
    where = ", ".join(proxies.get(each, each) for each in match.proxies)
    parts = [("", ", ".join(match.destinations or ["all"])), ("on ", where), ("for ", ", ".join(match.accounts))]
    name = " ".join(["block", *(word + text for word, text in parts if text)])
    return name if len(name) <= NAME_MAX else f"{name[: NAME_MAX - 9]} {sha256(name.encode()).hexdigest()[:8]}"


def _stored(given: Sequence[RuleInput]) -> list[PolicyRule]:
    _check_size(given)
    rules, named = [], dict[str, int]()
    for index, entry in enumerate(given):
        path = f"rules[{index}]."
        if entry.name in named:
            raise InvalidResource(f"{path}name", f"is the name of rules[{named[entry.name]}], too")
        named[entry.name] = index
        rules.append(_rule(entry, entry.name, path))
    return rules


def _rule(given: RuleParts, name: str, path: str) -> PolicyRule:
    """`path` precedes fields in errors about it."""
    parts = given.model_dump(by_alias=True, exclude_none=True, include=set(RuleParts.model_fields))
    rule = PolicyRule.model_validate({"name": name, **parts})
    _check_tunnel(given, path)
    _check_action(rule.action, given.action.model_fields_set, f"{path}action")
    return rule


def _check_size(given: Sequence[RuleInput | PolicyRule]) -> None:
    lists = ("accounts", "destinations", "paths", "clients", "listen_ports", "proxies")
    entries = sum(len(getattr(each.match, name) or ()) for each in given for name in lists)
    if entries > ENTRIES_MAX:
        raise InvalidResource("rules", f"have {entries:,} entries in all, and {ENTRIES_MAX:,} are allowed; use a list")


def _check_tunnel(rule: RuleParts, path: str) -> None:
    """A rule that could match nothing, or do nothing."""
    match, action = rule.match.model_fields_set, rule.action.model_fields_set
    of_tunnels = "match.tunnel" if "tunnel" in match else "action.tls_name"
    if "tunnel" not in match and "tls_name" not in action:
        return
    for name in ("methods", "paths"):
        if name in match:
            raise InvalidResource(f"{path}{of_tunnels}", f"is for rules without {name}, which are of plain HTTP")
    if "headers" in action:
        raise InvalidResource(f"{path}{of_tunnels}", "is for rules without headers, which are of plain HTTP")


def _check_action(action: RuleAction, given: Container[str], path: str) -> None:
    if action.use != "deny" and "reason" in given:
        raise InvalidResource(f"{path}.reason", 'is for an action with "use": "deny"')
    for name in ("egress", "tls_name", "headers", "limits"):
        if action.use == "deny" and name in given:
            raise InvalidResource(f"{path}.{name}", "has no meaning for a request that is refused")
    refuse_foreign(action.egress, f"{path}.egress")
    twice = set_and_removed(action.headers.set, action.headers.remove)
    if twice is not None:
        raise InvalidResource(f"{path}.headers.remove[{twice[0]}]", twice[1])


def _of_plain_http(rule: PolicyRule) -> str:
    """That a rule with methods, paths or headers never matches a tunnel; of one that refuses, what passes it."""
    text = "the rule is for plain HTTP: it never matches a tunnel (CONNECT, SOCKS)"
    if rule.action.use != "deny":
        return text
    named = [] if ANY_METHOD in rule.match.methods else rule.match.methods
    methods, paths = _first_of(named), _first_of(rule.match.paths)
    passing = f"{methods} requests" if methods else "requests"
    passing += f" for {paths}" if paths else ""
    return f"{text}, so over HTTPS all {passing} pass"


def _first_of(texts: Sequence[str]) -> str:
    """The first ones, for a sentence."""
    more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
    return ", ".join(texts[:3]) + more


def policy_warnings(policy: Policy) -> list[FieldWarning]:
    """What is worth knowing about rules that do less than they seem to."""
    found = []
    for index, rule in enumerate(policy.rules):
        path = f"rules[{index}]"
        plain_http = [f"match.{name}" for name in ("methods", "paths") if getattr(rule.match, name)]
        if rule.action.headers != ActionHeaders():
            plain_http.append("action.headers")
        if plain_http:
            found.append(FieldWarning(f"{path}.{plain_http[0]}", _of_plain_http(rule)))
        if rule.match.until and rule.match.ends_at <= time.time():
            found.append(FieldWarning(f"{path}.match.until", "the rule has ended: it matches nothing"))
        if rule.action == RuleAction():
            text = "the rule only ends the evaluation: the proxy's own access rules decide"
            found.append(FieldWarning(f"{path}.action", text))
    return found
