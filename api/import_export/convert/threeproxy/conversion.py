"""From 3proxy.cfg to a document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from api.import_export.convert.decisions import REVISE, Condition, Line, Part, TooManySteps, Walk, accept, offered
from api.import_export.convert.draft import Draft
from api.import_export.convert.host_sets import Names
from api.import_export.convert.policy_rules import RuleWriter, TooManyRules
from api.import_export.convert.regions import EVERYTHING, Region
from api.import_export.convert.report import Effect, Report
from api.import_export.convert.statements import Accepted, Files, Statement, named
from api.import_export.convert.threeproxy import accounts, entries
from api.import_export.convert.threeproxy.commands import carry_over
from api.import_export.convert.threeproxy.lexer import Reader
from api.import_export.convert.threeproxy.parents import Impossible, Way, way_of
from api.import_export.convert.threeproxy.state import Entry, Service, State

DENY = {"use": "deny"}
_WITHOUT_PASSWORDS = frozenset({"none", "iponly"})


def convert(path: Path, draft: Draft, report: Report, files: Files, timezone: str, accepted: Accepted) -> None:
    """Carry over a 3proxy.cfg to `draft`. Raises `UnreadableFile`."""
    state, reader = State(path, draft, report, files, accepted), Reader(files, report)
    for statement in reader.read(path):
        carry_over(state, statement)
    for statement in reader.missing:
        state.block(
            statement, "a file can't be read, and may deny something", "copy it here, or name its place by --root"
        )
    policies: dict[str, str] = {}
    for service in state.services:
        _finish(state, service, policies, timezone)
    accounts.add(state, [each.proxy["name"] for each in state.services if each.proxy.get("auth")])
    if not state.services:
        report.add(Effect.LOST, None, "no proxy, socks or auto service is started", "add one", about="services")
    why = "3proxy connects to private and loopback addresses where its entries allow them, a proxy here doesn't"
    instead = (
        "name internal targets in proxy.egress_allow of the configuration, internal name servers in proxy.dns_allow"
    )
    report.add(Effect.DIFFERS, None, why, instead, about="egress guard")


def _finish(state: State, service: Service, policies: dict[str, str], timezone: str) -> None:
    """Authentication, policy and upstreams of a proxy."""
    if set(service.auth) - _WITHOUT_PASSWORDS:
        service.proxy["auth"] = {"enabled": True}
        if "iponly" in service.auth or "none" in service.auth:
            why = "clients that were allowed without a password need one here"
            state.report.add(
                Effect.REFUSES, service.statement, why, "make a proxy at another port for them, without auth"
            )
    rules = _Rules(state, service, timezone).rules()
    if rules:
        content = json.dumps(rules)
        if content not in policies:
            policies[content] = state.draft.object_name("3proxy" if not policies else f"3proxy-{service.kind}")
            state.draft.policies.append({"name": policies[content], "rules": rules})
        service.proxy["policy"] = policies[content]
    state.draft.proxies.append(service.proxy)


class _Rules:
    """The rules of one service."""

    def __init__(self, state: State, service: Service, timezone: str) -> None:
        self._state = state
        self._service = service
        self._writer = RuleWriter(state.draft, timezone)

    def rules(self) -> list[dict[str, Any]]:
        """None of them, where everything is allowed. Too many: one that refuses everything."""
        for statement in self._state.blocks:
            self._writer.add(f"not converted, {self._named(statement)}", "", EVERYTHING, DENY)
        for statement, name in self._state.refused_names:
            region = Region(hosts=Names(frozenset({name}), frozenset()))
            self._writer.add(self._named(statement), "", region, DENY)
        if self._service.auth[0] == "none" or not self._service.entries:
            return self._writer.rules()
        by_statement = {id(each.statement): each for each in self._service.entries}

        def leaf(region: Region, line: Line | None) -> None:
            self._decide(region, None if line is None else by_statement[id(line.statement)])

        lines = [self._line(each) for each in self._service.entries]
        try:
            Walk(lines, leaf, self._unclear, []).run()
            return self._writer.rules()
        except (TooManyRules, TooManySteps):
            why = "the entries are more than a policy can hold"
            self._state.report.add(Effect.REFUSES, self._service.statement, why, "write lists of domains and networks")
            return [{"name": "not converted: too many rules", "match": {}, "action": DENY}]

    def _line(self, entry: Entry) -> Line:
        with_users = bool(set(self._service.auth) - _WITHOUT_PASSWORDS)
        found = entries.parts(entry.statement.words, self._service.kind, with_users)
        found = accept(found, entry.statement, self._state.accepted, self._state.report)
        return Line(entry.statement, not entry.allow, found or (Part(Condition((EVERYTHING,))),))

    def _unclear(self, line: Line, why: str) -> None:
        effect = "it refuses more than it did" if line.closed else "it allows less than it did"
        instead = REVISE + offered(line, self._state.accepted)
        self._state.report.add(Effect.REFUSES, line.statement, f"{why}; {effect}", instead)

    def _decide(self, region: Region, entry: Entry | None) -> None:
        if entry is None or not entry.allow:
            name = "no entry matches" if entry is None else self._named(entry.statement)
            self._writer.add(name, "", region, DENY, self._order(entry))
            return
        try:
            action = self._action(entry, way_of(entry.parents))
        except Impossible as error:
            why = f"{error}; what the allow before it matches is refused"
            self._state.report.add(
                Effect.REFUSES, entry.parents[0], why, "use one group of upstreams, and convert again"
            )
            action = DENY
        self._writer.add(self._named(entry.statement), "", region, action, self._order(entry))

    def _named(self, statement: Statement) -> str:
        return named(statement, self._state.main)

    def _order(self, entry: Entry | None) -> int:
        entries = self._service.entries
        return len(entries) if entry is None else next(n for n, each in enumerate(entries) if each is entry)

    def _action(self, entry: Entry, way: Way) -> dict[str, Any]:
        use = self._pool(entry, way.upstreams) if way.upstreams else "direct"
        return {"use": use, **({"egress": way.egress} if way.egress else {})}

    def _pool(self, entry: Entry, upstreams: Sequence[dict[str, Any]]) -> str:
        draft = self._state.draft
        known = next((each["name"] for each in draft.pools if each["upstreams"] == upstreams), None)
        if known is None:
            known = draft.object_name(f"upstreams-line-{entry.parents[0].place.line}")
            policy = "round_robin" if len(upstreams) > 1 else "failover"
            draft.pools.append({"name": known, "policy": policy, "upstreams": list(upstreams)})
        return f"pool:{known}"
