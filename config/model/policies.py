"""Policies in requests, and their stored model: rules in order, of which the first that matches decides.

Of `match`, everything that is given has to match, and of a list one entry; what is left out matches everything.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StrictBool, StrictStr, WithJsonSchema

from config.model import json_patterns
from config.model.access import Mode, each_entry
from config.model.accounts import Bandwidth, Number
from config.model.choices import ANY_METHOD, TAG_PREFIX, TlsNameCheck
from config.model.declaration import SECRET, Given, Instant, LongList, gives, update
from config.model.egress import SomeEgress, refuse_foreign
from config.model.exposure_warnings import Warned
from config.model.fields import Body, InvalidResource, Name, Part, PortOrRange, example, plain_text, user_name
from config.model.header_fields import HeadersToRemove, HeadersToSet, set_and_removed
from config.model.object_fields import ObjectName, SomeLabels
from config.model.proxies import Description
from config.model.schedules import Schedule, ScheduleInput
from config.net.entries import read_entry, read_network
from config.net.names import in_a_labels

RULES_MAX = 1_000
MATCHES_MAX = 1_000
ENTRIES_MAX = 50_000
"""Of all rules of a policy: a proxy compiles them while its clients wait, which takes about 25 µs an entry."""
"""LongList of one list in `match`."""
METHODS_MAX = 50
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


def _use(text: str) -> str:
    if _USE.fullmatch(text) is None:
        raise ValueError("must be direct, deny or pool:NAME")
    return text


def _some(read: Any, pattern: str, most: int, written: Callable[[str], str] = str) -> Any:
    """The annotation of a list of one to `most` entries."""
    return Annotated[
        list[str],
        Field(min_length=1, max_length=most),
        BeforeValidator(each_entry(read, written)),
        json_patterns.some_texts(pattern, most),
    ]


MatchAccounts: Any = _some(_account, json_patterns.ACCOUNT_MATCH, MATCHES_MAX)
MatchDestinations: Any = _some(read_entry, json_patterns.WRITTEN_DESTINATION, MATCHES_MAX, in_a_labels)
MatchMethods: Any = _some(_method, json_patterns.METHOD, METHODS_MAX)
MatchPaths: Any = _some(_path, json_patterns.PATH_PATTERN, MATCHES_MAX)
MatchListenPorts = Annotated[list[PortOrRange], Field(min_length=1, max_length=MATCHES_MAX)]
MatchTunnel = Annotated[StrictBool, AfterValidator(_tunnel), WithJsonSchema({"type": "boolean", "const": True})]
MatchClients: Any = _some(read_network, json_patterns.NETWORK, MATCHES_MAX)
Use = Annotated[StrictStr, AfterValidator(_use), json_patterns.text(json_patterns.USE)]
Reason = Annotated[
    StrictStr,
    Field(min_length=1, max_length=200),
    AfterValidator(plain_text),
    json_patterns.text(json_patterns.PLAIN, 1, 200),
]


class MatchInput(Part):
    """What a rule matches: all that is given. `methods` and `paths` are of plain HTTP and never match a tunnel.

    The method `*` is any; a pattern of `paths` may have a query behind `?`. `tunnel` is for CONNECT, SOCKS and all
    else that is not plain HTTP.

    `accounts` are user names and `tag:` with a tag, `params` parameters of the user name. `listen_ports` are
    those of the proxy that the client came to, each a port or a range such as `20000-20999`.
    """

    accounts: MatchAccounts | None = None
    destinations: MatchDestinations | None = None
    methods: MatchMethods | None = None
    paths: MatchPaths | None = None
    tunnel: MatchTunnel | None = None
    params: SomeLabels | None = None
    schedule: ScheduleInput | None = None
    clients: MatchClients | None = None
    listen_ports: MatchListenPorts | None = None


class ActionHeadersInput(Part):
    """Header fields of a request to the origin that a rule sets and removes (plain HTTP)."""

    set: HeadersToSet | None = None
    remove: HeadersToRemove | None = None


class ActionLimitsInput(Part):
    """Limits of the requests that a rule matches, all of them together, for each proxy; 0 for none.

    Bandwidth is bytes per second; `in` is what clients send. `connections` are requests and tunnels at the same time.
    """

    bandwidth_in: Bandwidth | None = None
    bandwidth_out: Bandwidth | None = None
    connections: Number | None = None
    requests_per_minute: Number | None = None


class ActionInput(Part):
    """What a rule does. Without `use` the request goes the proxy's own way.

    `reason` is what the client of a refused request reads. `egress` are addresses of this machine and networks
    that are routed to it: connections leave from them. `tls_name` is what becomes of the name in the TLS handshake of a
    tunnel, in place of the proxy's.
    """

    use: Use | None = None
    reason: Reason | None = None
    egress: SomeEgress | None = None
    tls_name: TlsNameCheck | None = None
    headers: ActionHeadersInput | None = None
    limits: ActionLimitsInput | None = None


class RuleInput(Part):
    """A rule. With the mode `report` it decides nothing, and records say what it would have decided."""

    name: Name
    match: MatchInput
    action: ActionInput
    mode: Mode = "enforce"


class RuleMatch(BaseModel):
    """Stored: what a rule matches. What is empty matches everything."""

    accounts: list[str] = []
    destinations: list[str] = []
    methods: list[str] = []
    paths: list[str] = []
    tunnel: bool = False
    params: dict[str, str] = {}
    schedule: Schedule | None = None
    clients: list[str] = []
    listen_ports: list[int | str] = []


class ActionHeaders(BaseModel):
    """Stored: header fields to set and to remove."""

    set: dict[str, str] = {}
    remove: list[str] = []


class ActionLimits(BaseModel):
    """Stored: limits of a rule, 0 for none."""

    bandwidth_in: int = 0
    bandwidth_out: int = 0
    connections: int = 0
    requests_per_minute: int = 0


class RuleAction(BaseModel):
    """Stored: what a rule does. `use` is `direct`, `deny`, `pool:` and a name, or empty; `tls_name` may be empty."""

    use: str = ""
    reason: str = ""
    egress: list[str] = []
    tls_name: str = ""
    headers: ActionHeaders = ActionHeaders()
    limits: ActionLimits = ActionLimits()

    @property
    def pool(self) -> str:
        """The name of the pool that it uses, empty for none."""
        return self.use.removeprefix(POOL_PREFIX) if self.use.startswith(POOL_PREFIX) else ""


class PolicyRule(BaseModel):
    """Stored: a rule."""

    name: str
    match: RuleMatch = RuleMatch()
    action: RuleAction = RuleAction()
    mode: Mode = "enforce"


def rule_view(rule: PolicyRule) -> dict[str, Any]:
    """A rule as a request gives it: what it doesn't say is left out."""
    plain = rule.model_dump(exclude_defaults=True)
    return {"name": rule.name, "match": plain.get("match", {}), "action": plain.get("action", {}), "mode": rule.mode}


class Policy(BaseModel):
    """A document of the collection `policies`. Times are Unix seconds.

    `ended` counts the changes that end tunnels which are no longer allowed: a process that knows a smaller number
    judges its tunnels again.
    """

    id: str
    name: Annotated[str, Given(ObjectName)]
    description: Annotated[str, Given(Description)] = ""
    rules: Annotated[list[PolicyRule], LongList("rule", rule_view)] = []
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


def _stored(given: Sequence[RuleInput]) -> list[PolicyRule]:
    _check_size(given)
    rules, named = [], dict[str, int]()
    for index, entry in enumerate(given):
        path = f"rules[{index}]"
        if entry.name in named:
            raise InvalidResource(f"{path}.name", f"is the name of rules[{named[entry.name]}], too")
        named[entry.name] = index
        _check_tunnel(entry, path)
        _check_action(entry.action, f"{path}.action")
        rules.append(PolicyRule.model_validate(entry.model_dump(by_alias=True, exclude_none=True)))
    return rules


def _check_size(given: Sequence[RuleInput]) -> None:
    matches = [each.match for each in given]
    lists = [(each.accounts, each.destinations, each.paths, each.clients, each.listen_ports) for each in matches]
    entries = sum(len(each or ()) for those in lists for each in those)
    if entries > ENTRIES_MAX:
        raise InvalidResource("rules", f"have {entries:,} entries in all, and {ENTRIES_MAX:,} are allowed; use a list")


def _check_tunnel(rule: RuleInput, path: str) -> None:
    """A rule that could match nothing, or do nothing."""
    of_tunnels = "match.tunnel" if rule.match.tunnel is not None else "action.tls_name"
    if rule.match.tunnel is None and rule.action.tls_name is None:
        return
    for name in ("methods", "paths"):
        if getattr(rule.match, name) is not None:
            raise InvalidResource(f"{path}.{of_tunnels}", f"is for rules without {name}, which are of plain HTTP")
    if rule.action.headers is not None:
        raise InvalidResource(f"{path}.{of_tunnels}", "is for rules without headers, which are of plain HTTP")


def _check_action(action: ActionInput, path: str) -> None:
    if action.use != "deny" and action.reason is not None:
        raise InvalidResource(f"{path}.reason", 'is for an action with "use": "deny"')
    for name in ("egress", "tls_name", "headers", "limits"):
        if action.use == "deny" and getattr(action, name) is not None:
            raise InvalidResource(f"{path}.{name}", "has no meaning for a request that is refused")
    refuse_foreign(action.egress or (), f"{path}.egress")
    headers = action.headers or ActionHeadersInput()
    twice = set_and_removed(headers.set or {}, headers.remove or ())
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


def policy_warnings(policy: Policy) -> list[Warned]:
    """What is worth knowing about rules that do less than they seem to."""
    found = []
    for index, rule in enumerate(policy.rules):
        path = f"rules[{index}]"
        plain_http = [f"match.{name}" for name in ("methods", "paths") if getattr(rule.match, name)]
        if rule.action.headers != ActionHeaders():
            plain_http.append("action.headers")
        if plain_http:
            found.append(Warned(f"{path}.{plain_http[0]}", _of_plain_http(rule)))
        if rule.action == RuleAction():
            text = "the rule only ends the evaluation: the proxy's own access rules decide"
            found.append(Warned(f"{path}.action", text))
    return found
