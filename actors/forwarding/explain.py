"""What would happen to a request, by the order of decisions that holds for real ones (`decision`).

Nothing is connected to, counted or prolonged. The user named counts as proved, a name is resolved when its addresses
are wanted, and each of them is judged. Beside the decision it says what else there is to know: the rules of policies,
where the request would leave from, through which upstream it would go, and what its head would be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from actors.bus.mailbox import Reply
from actors.bus.messages.common import Failed
from actors.bus.messages.forwarding import (
    Explain,
    ExplainedAddress,
    HeadersExplanation,
    NameExplanation,
    RequestExplanation,
    RuleExplanation,
    SourceExplanation,
    TlsNameExplanation,
    UpstreamExplanation,
    UpstreamsExplanation,
)
from actors.bus.messages.specs import AccountSpec, ListRef
from actors.forwarding.access.named_lists import Content, NamedListFiles
from actors.forwarding.access.policy import Decision, refused
from actors.forwarding.access.rules import own_rules
from actors.forwarding.access.tls_names import NO_NAME, OFF, check_in_force, refusal
from actors.forwarding.access.username_parameters import NO_PARAMETERS, ParameterNames, Parameters, Understood
from actors.forwarding.context import ForwardingContext
from actors.forwarding.decision import (
    ClientIdentity,
    Subject,
    chosen_by,
    decide_by_addresses,
    decide_by_name,
    decide_other_name,
    missing_pool,
    refused_before_target,
    understood,
    way_out,
)
from actors.forwarding.fleet_objects import FoundList
from actors.forwarding.limits.accounts import spec_of
from actors.forwarding.limits.accounts_in_use import UnreadableError
from actors.forwarding.net.dialer import decide_addresses
from actors.forwarding.net.egress import BIND_ADDRESS, Stated
from actors.forwarding.net.resolver import Resolution, Resolved
from actors.forwarding.net.source_address import SourceAddress
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure, Refused
from actors.forwarding.protocols.http.header_changes import extended_via
from actors.forwarding.protocols.http.targets import Authority, plain_path, read_target
from config.net.addresses import Address, plain
from config.net.entries import ListHost
from config.net.names import canonical_name
from config.text.reasons import REPORTED

if TYPE_CHECKING:
    from actors.forwarding.policies.compiled import CompiledPolicy
    from actors.forwarding.policies.conditions import Rule
    from actors.forwarding.policies.facts import Facts
    from actors.forwarding.policies.judge import PolicySet, PolicyVerdict
    from actors.forwarding.upstreams.upstream_set import UpstreamSet

LEFT_OUT_MAX = 100
"""Upstreams that are named with the reason; the number of all is there, too."""
BY_BACKEND = "auth.backend: allowed if the authentication back end knows this user, which was not asked"
NOT_BY_NAME = "auth: on socks4 the name of this account alone is not enough (socks4_by_name)"


def reply_explanation(shared: ForwardingContext, query: Explain, reply: Reply) -> None:
    """Reply with the explanation, or with `Failed` and the field that can't be explained."""
    try:
        explain(shared, query, reply)
    except Refused as refused:
        reply(Failed(refused.failure.detail, "target"))
    except UnreadableError as error:
        reply(Failed(str(error), "user" if query.credential is None else "credential"))


def explain(context: ForwardingContext, query: Explain, done: Callable[[RequestExplanation], None]) -> None:
    """Call `done` with the explanation, perhaps in this very call.

    Raises `Refused` when the target is none, and `UnreadableError` when the accounts can't be read.
    """
    asked = _Asked(context, query, read_target(query.target), _supposed(context, query))
    asked.decide(lambda result: done(asked.explanation(result)))


class _Supposed(NamedTuple):
    """Who sends the request. `why_not` says why it is none who may use the proxy, if that is so."""

    identity: ClientIdentity
    name: Understood
    account: AccountSpec | None = None
    why_not: str = ""


def _supposed(context: ForwardingContext, query: Explain) -> _Supposed:
    """The client with right credentials, if there are such. Raises `UnreadableError`."""
    name = _understood(context, query)
    user, parameters = None if query.user is None else name.account, name.parameters
    if not context.policy.session.wants_credentials:
        return _Supposed(ClientIdentity(named=name.account, parameters=parameters), name)
    if query.credential is not None or not context.directory.is_own(user or ""):
        context.directory.refresh()
    unknown = _Supposed(ClientIdentity(parameters=parameters), name, None, _why_unknown(query, name.problem))
    if query.credential is not None:
        credential = context.directory.credential_by_id(query.credential)
        found = None if credential is None else context.directory.account(credential.account_id)
        if found is None or user not in (None, found.spec.username):
            return unknown
        identity = ClientIdentity(found.spec.username, credential=credential, parameters=parameters)
        return _Supposed(identity, name, found.spec)
    if user is None:
        return unknown
    asks_backend, verified = context.authenticator.asks_backend(user), context.authenticator.stored(user)
    if verified is None:
        return unknown
    account = None if asks_backend else context.limits.account(user)
    spec = None if account is None else account.spec
    if context.policy.protocol == "socks4" and not (asks_backend or context.directory.admits_name(user)):
        return _Supposed(unknown.identity, name, spec, NOT_BY_NAME)
    return _Supposed(ClientIdentity(user, verified, named=user, parameters=parameters), name, spec)


def _understood(context: ForwardingContext, query: Explain) -> Understood:
    """How the user name is read, with what rules of the draft ask for."""
    names = context.names
    if query.draft is not None and isinstance(names, ParameterNames):
        names = names.knowing(frozenset(name for rule in query.draft.rules for name, _value in rule.params))
    return understood(context, query.user or "", names=names)


def _why_unknown(query: Explain, problem: str) -> str:
    if query.credential is not None:
        return "auth: there is no such credential for this user and this proxy"
    if query.user is not None:
        return "auth: this is not a user of the proxy" + (f"; {problem}" if problem else "")
    return "auth: credentials are required (407), and no user is named"


class _Result(NamedTuple):
    """The decision, and those about the addresses."""

    decision: Decision
    addresses: tuple[ExplainedAddress, ...] = ()


class _Asked:
    """The request that is asked about, with what decides about it."""

    def __init__(self, context: ForwardingContext, query: Explain, target: Authority, supposed: _Supposed) -> None:
        self._context = context
        self._query = query
        self._target = target
        self._supposed = supposed
        self._identity = identity = supposed.identity
        account = supposed.account
        credential = None if identity.credential is None else spec_of(identity.credential)
        self._own = own_rules(account, credential, context.lists)
        path, draft = plain_path(query.target), _with_draft(context, query, account)
        asked = identity.parameters.asked
        self._subject = Subject(query.client_ip, query.listen_port, identity.user, account, asked, draft, query.at)
        self._judge = self._subject.judge(context, target, query.method if path else "", path)
        self._access = context.policy.access.for_request(self._own, self._judge)
        self._is_plain = bool(path) and context.policy.speaks_http
        """Whether it is a request of plain HTTP."""
        self._address: str | None = None
        """One of the target's by which policies have judged it, if they needed any."""

    @property
    def _verdict(self) -> PolicyVerdict | None:
        return None if self._judge is None else self._judge.verdict

    def _source(self) -> SourceAddress:
        """Where the request leaves from, if by nothing else as all of the proxy do."""
        sources, account = self._context.sources, self._supposed.account
        stated = sources.stated(self._verdict, account)
        if not stated.entries:
            return self._context.dialer.source
        return sources.explained(stated, self._identity.requested(self._query.client_ip), account)

    # --- the decision ---

    def decide(self, done: Callable[[_Result], None]) -> None:
        """Call `done` with the decision: at once, or when the target is resolved. Raises `UnreadableError`."""
        context, target = self._context, self._target
        decision = refused_before_target(context, self._identity, self._query.client_ip, at=self._query.at)
        if decision is not None:
            by_user = decision.stage == "user" and self._supposed.why_not
            done(_Result(decision._replace(rule=by_user) if by_user else decision))
            return
        decision = decide_by_name(context, target, self._own, self._judge)
        if decision is not None:
            done(_Result(decision))
        elif target.literal:
            done(self._resolved(Resolved((target.host,))))
        else:
            context.dialer.resolver.resolve(target.host, lambda found: done(self._resolved(found)))

    def _resolved(self, found: Resolution) -> _Result:
        if isinstance(found, Failure):
            return _Result(refused(found, found.recorded or found.detail, "resolve"))
        judge, decision = self._judge, None
        if judge is not None and judge.settled is None:
            decision = decide_by_addresses(self._context, self._target, self._own, judge, found.addresses)
            self._address = (judge.addresses or found.addresses)[0]
            if decision is not None and decision.failure is None:
                return _Result(decision)  # an upstream resolves the name itself
        source = self._source()
        judged = decide_addresses(self._access, self._target, found.addresses, source)
        each_of_them = tuple(
            ExplainedAddress(address, _word(each), each.reason, each.rule) for address, each in judged.decisions
        )
        if decision is None:
            decision, client = judged.outcome(source), self._access.client(self._query.client_ip)
            if decision.failure is None and client.reason:
                decision = client
        return _Result(decision, each_of_them)

    # --- what is said about it ---

    def explanation(self, result: _Result) -> RequestExplanation:
        """All that is said about a decision."""
        context, query, decision = self._context, self._query, result.decision
        supposed, identity, judge = self._supposed, self._identity, self._judge
        if decision.failure is None and identity.user and context.authenticator.asks_backend(identity.user):
            decision = Decision(None, decision.reason, BY_BACKEND, "user")
        passed = None if decision.failure is not None else way_out(context, judge)
        parameters = chosen_by(context, identity.parameters)
        if passed is not None and passed.none_matches(parameters):
            decision = refused(failures.NO_UPSTREAM_MATCHES, "username_params: labels", "upstreams")
        if judge is not None and query.draft is None and decision.failure is None:  # a draft may name others
            missing = missing_pool(context, judge)
            if missing is not None:
                decision = refused(missing, missing.entry, "upstreams")
        passing = next((each.address for each in result.addresses if each.decision == "allow"), None)
        tls_name, final = self._tls_name(decision, passing if passed is None else None)
        if final.failure is not None and decision.failure is None:
            passed = None
        headers = HeadersExplanation()
        if final.failure is None and self._is_plain:
            headers = explained_headers(context, self._target, query.client_ip, self._verdict)
        upstreams = None
        if passed is not None:
            upstreams = explained_upstreams(passed, parameters, identity.balanced_by(query.client_ip))
        return RequestExplanation(
            decision=_word(final),
            reason=final.reason,
            rule=final.rule,
            stage=final.stage,
            mode=self._access.mode,
            host=self._target.host,
            port=self._target.port,
            addresses=result.addresses,
            account="" if supposed.account is None else supposed.account.id,
            credential=identity.credential_id,
            upstreams=upstreams,
            source=self._explained_source(),
            name=_explained_name(supposed.name),
            tls_name=tls_name,
            headers=headers,
            rules=() if judge is None else explained_rules(judge.policies, judge.facts, self._address),
        )

    def _explained_source(self) -> SourceExplanation | None:
        """Where it leaves from; None: the kernel chooses."""
        sources, source = self._context.sources, self._source()
        if not source.given:
            return None
        stated = sources.stated(self._verdict, self._supposed.account)
        if not stated.entries:
            stated = Stated((sources.address,), BIND_ADDRESS)
        ipv4, ipv6 = ("", "") if source.drawn else (source.ipv4, source.ipv6)
        return SourceExplanation(stated.rule, sources.policy, stated.entries, ipv4, ipv6)

    def _tls_name(self, decision: Decision, address: str | None) -> tuple[TlsNameExplanation, Decision]:
        """What becomes of the name in a handshake, empty for one without; and the decision with that. `address` is the
        target's where the request goes directly."""
        context, target, name = self._context, self._target, self._query.tls_name
        policy = context.policy
        check = check_in_force(policy.tls_name, policy.access.rules, self._own, self._verdict, target)
        is_checked = not self._is_plain and target.port in policy.tls_ports
        explained = TlsNameExplanation(check.check, check.entry, is_checked, name)
        if name is None or not is_checked or check.check == OFF or decision.failure is not None:
            return explained, decision
        subject, own, judge = self._subject, self._own, self._judge
        found = refusal(
            check,
            target,
            name or None,
            NO_NAME,
            lambda named: decide_other_name(context, subject, named, address, own, judge),
        )
        failure = found.failure
        explained = replace(explained, kind=found.kind, detail="" if failure is None else failure.detail)
        if failure is None or (found.reported and decision.reason):
            return explained, decision
        if found.reported:
            return explained, Decision(None, REPORTED + failure.reason, failure.entry, "tls_name", failure)
        return explained, refused(failure, failure.entry, "tls_name")


def _word(decision: Decision) -> str:
    return "allow" if decision.failure is None else "deny"


def _explained_name(name: Understood) -> NameExplanation | None:
    """How the user name was understood; None where it is no more than that."""
    if not name.problem and name.parameters is NO_PARAMETERS:
        return None
    given = name.parameters
    labels, marks, rest = dict(given.labels), dict(given.marks), (given.unknown, name.problem)
    return NameExplanation(name.account, given.session, given.ttl, given.rotate, labels, marks, *rest)


def explained_headers(
    context: ForwardingContext, target: Authority, client_ip: str, verdict: PolicyVerdict | None
) -> HeadersExplanation:
    """Of an HTTP/1.1 request that has none of these fields itself."""
    policy, of_rules = context.policy, None if verdict is None else verdict.header_changes
    via, own = extended_via(None, 1, policy.session.via), policy.headers
    head = b"GET / HTTP/1.1\r\n" + (b"Via: " + via + b"\r\n\r\n" if via else b"\r\n")
    if own is not None:
        head = own.apply(head, client_ip, target.text)
    if of_rules is not None:
        head = of_rules.apply(head)
    lines = head.decode("ascii").split("\r\n")[1:-2]
    pairs = tuple((name, value) for name, _colon, value in (line.partition(": ") for line in lines))
    changed = (changes for changes in (None if own is None else own.changes, of_rules) if changes is not None)
    named = {each.decode() for changes in changed for each in changes.removed}
    return HeadersExplanation(pairs, tuple(sorted(named - {canonical_name(name) for name, _value in pairs})))


# --- upstreams and policies, for proxies that have some ---


def explained_upstreams(upstreams: UpstreamSet, parameters: Parameters, key: str) -> UpstreamsExplanation:
    """`key` is what `sticky` hashes."""
    usable, left_out = 0, list[UpstreamExplanation]()
    for each in upstreams.members:
        why = upstreams.why_left_out(each, parameters)
        if not why:
            usable += 1
        elif len(left_out) < LEFT_OUT_MAX:
            left_out.append(UpstreamExplanation(each.name, why))
    chosen = upstreams.would_choose(parameters, key)
    return UpstreamsExplanation(
        pool=upstreams.name,
        policy=upstreams.spec.policy,
        chosen="" if chosen is None else chosen.name,
        total=len(upstreams.members),
        usable=usable,
        left_out=tuple(left_out),
    )


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


def _with_draft(context: ForwardingContext, query: Explain, account: AccountSpec | None) -> PolicySet | None:
    """The policies of the proxy with the draft among them; None without one."""
    if query.draft is None:
        return None
    from actors.forwarding.policies.judge import NO_POLICIES

    lists, policies = ListsOfDraft(context.lists, query.lists), context.policies or NO_POLICIES
    return policies.with_draft(query.draft, () if account is None else account.policies, lists)


def explained_rules(
    policies: Iterable[CompiledPolicy], facts: Facts, address: str | None
) -> tuple[RuleExplanation, ...]:
    """All rules in order. `address`: that of the target, None while it isn't known."""
    where = facts.address if address is None else plain(address)
    return tuple(_explained_rule(policy.name, rule, facts, where) for policy in policies for rule in policy.rules)


def _explained_rule(policy: str, rule: Rule, facts: Facts, address: Address | None) -> RuleExplanation:
    from actors.forwarding.policies.conditions import ConditionOutcome

    outcome, why = ConditionOutcome.YES, []
    for each, sentence in rule.outcomes(facts, address):
        if each is ConditionOutcome.YES:
            continue
        why.append(sentence)
        if outcome is not ConditionOutcome.NO:
            outcome = each
    spec = rule.spec
    mode = "report" if spec.report else "enforce"
    return RuleExplanation(
        policy, rule.index, spec.name, outcome.value, "; ".join(why) or "all of it matches", spec.use, mode
    )
