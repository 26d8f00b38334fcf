"""What would happen to a request, by the access policy, resolver and accounts that decide about real ones.

Nothing is connected to. The stages are those of a real request, in order: `client` (at accept), `user`,
`account` (disabled, expired, outside its schedule, from elsewhere, quota used up), `credential` (the same of that),
`name` (before resolving), `resolve`, then for each address `egress_guard` and `address`; the last but `resolve` and
`egress_guard` go by the rules of account, credential and proxy. `policy` is the stage where a rule of a policy decides
(`explained_parts`), `source` the one where no address has a family that the request has a source address of,
`tls_name` that of the name in the TLS handshake of a tunnel, if it was asked about. The first refusal decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from actors.bus.mailbox import Reply
from actors.bus.messages.common import Failed
from actors.bus.messages.forwarding import (
    Explain,
    ExplainedAddress,
    HeadersExplanation,
    NameExplanation,
    RequestExplanation,
    SourceExplanation,
    TlsNameExplanation,
    UpstreamsExplanation,
)
from actors.bus.messages.specs import DIRECT, AccountSpec
from actors.forwarding.access.policy import AccessPolicy, Decision
from actors.forwarding.access.rules import REPORTED, OwnRules, own_rules
from actors.forwarding.access.tls_names import NO_NAME, OFF, Judgement, check_in_force, decide_name, refusal
from actors.forwarding.access.username_parameters import NO_PARAMETERS, ParameterNames, Parameters, Understood
from actors.forwarding.connections.named_user import understood
from actors.forwarding.context import ForwardingContext
from actors.forwarding.limits.accounts import spec_of
from actors.forwarding.limits.held_accounts import UnreadableError
from actors.forwarding.net.egress import BIND_ADDRESS, Requested, Stated
from actors.forwarding.net.resolver import Resolution, Resolved
from actors.forwarding.net.source_address import SourceAddress
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure, Refused
from actors.forwarding.protocols.http.header_changes import extended_via
from actors.forwarding.protocols.http.targets import Authority, parse_authority
from config.net.names import canonical_name

if TYPE_CHECKING:
    from actors.accounts.records import CredentialRecord
    from actors.forwarding.explained_parts import Policed
    from actors.forwarding.policies.judge import PolicyVerdict
    from actors.forwarding.upstreams.upstream_set import UpstreamSet

_URL = re.compile(r"(https?)://([^/?#]*)([/?][^#]*)?(?:#.*)?", re.IGNORECASE | re.DOTALL | re.ASCII)
_V6_MAX = 45
"""Characters of an IPv6 address."""
DEFAULT_PORT = 443
BY_BACKEND = "auth.backend: allowed if the authentication back end knows this user, which was not asked"


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


def source_for(
    context: ForwardingContext, requested: Requested, account: AccountSpec | None, verdict: PolicyVerdict | None
) -> SourceAddress:
    """Where the request leaves from, if by nothing else as all of the proxy do."""
    stated = context.sources.stated(verdict, account)
    return context.sources.explained(stated, requested, account) if stated.entries else context.dialer.source


def explained_source(
    context: ForwardingContext, source: SourceAddress, account: AccountSpec | None, verdict: PolicyVerdict | None
) -> SourceExplanation | None:
    """What to say of it; None: the kernel chooses."""
    if not source.given:
        return None
    stated = context.sources.stated(verdict, account)
    if not stated.entries:
        stated = Stated((context.sources.address,), BIND_ADDRESS)
    ipv4, ipv6 = ("", "") if source.drawn else (source.ipv4, source.ipv6)
    return SourceExplanation(stated.rule, context.sources.policy, stated.entries, ipv4, ipv6)


STAGE = "tls_name"


class Asked(NamedTuple):
    """A request, as far as it is decided. `address` is the target's where the request goes directly; None: through an
    upstream. `is_plain`: it is no tunnel."""

    target: Authority
    own: OwnRules
    policed: Policed | None
    is_plain: bool
    address: str | None


def explained_tls_name(
    context: ForwardingContext, asked: Asked, decision: Decision, name: str | None
) -> tuple[TlsNameExplanation, Decision]:
    """What is in force, and the decision with that about `name`: the handshake's, empty for one without, None where it
    was not asked about."""
    policy, target, policed = context.policy, asked.target, asked.policed
    verdict = None if policed is None else policed.verdict
    check = check_in_force(policy.tls_name, policy.access.rules, asked.own, verdict, target)
    is_checked = not asked.is_plain and target.port in policy.tls_ports
    explained = TlsNameExplanation(check.check, check.entry, is_checked, name)
    if name is None or not is_checked or check.check == OFF or decision.failure is not None:
        return explained, decision
    judgement = refusal(check, target, name or None, NO_NAME, lambda named: _judged(context, asked, named))
    detail = "" if judgement.failure is None else judgement.failure.detail
    explained = TlsNameExplanation(check.check, check.entry, is_checked, name, judgement.kind, detail)
    return explained, _with_judgement(decision, judgement)


def _judged(context: ForwardingContext, asked: Asked, named: Authority) -> Decision:
    policed, through_upstream, address = asked.policed, asked.address is None, asked.address
    if policed is None:
        return decide_name(context.policy.access, asked.own, None, named, address, through_upstream, None)
    judge, verdict = policed.judge_of(named), policed.verdict
    address = policed.address if through_upstream else address
    return decide_name(context.policy.access, asked.own, judge, named, address, through_upstream, verdict)


def _with_judgement(decision: Decision, judgement: Judgement) -> Decision:
    """A refusal of the name decides; what would be one stands in the reason where nothing else does."""
    failure = judgement.failure
    if failure is None or (judgement.reported and decision.reason):
        return decision
    if judgement.reported:
        return Decision(None, REPORTED + failure.reason, failure.entry, STAGE, failure)
    return Decision(failure, failure.reason, failure.entry, STAGE)


class _Result(NamedTuple):
    """The decision, and those about the addresses."""

    decision: Decision
    addresses: tuple[ExplainedAddress, ...] = ()


class _Subject(NamedTuple):
    """Who sends the request. `user` is None without credentials, or with those of no user."""

    user: str | None
    account: AccountSpec | None = None
    credential: CredentialRecord | None = None


def read_target(text: str) -> Authority:
    """The authority in an http or https URL, in `host:port`, or in a host alone, whose port is 443 then.

    Raises `Refused` for what a proxy would not take as a target either.
    """
    port = DEFAULT_PORT
    if match := _URL.fullmatch(text):
        port, text = (80 if match[1].lower() == "http" else 443), match[2]
    elif _is_bare_v6(text):
        text = f"[{text}]"
    try:
        return parse_authority(text.encode("ascii"), port)
    except UnicodeEncodeError:
        raise failures.malformed("the target is not ASCII; write the name as it is in the DNS (xn--…)") from None


def _is_bare_v6(text: str) -> bool:
    try:
        return ":" in text and len(text) <= _V6_MAX and ip_address(text).version == 6
    except ValueError:
        return False


def plain_path(text: str) -> str:
    """Path and query of an http URL; empty for any other target."""
    match = _URL.fullmatch(text)
    if match is None or match[1].lower() != "http":
        return ""
    path = match[3] or "/"
    return path if path.startswith("/") else "/" + path


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
    target = read_target(query.target)
    name = _understood(context, query)
    query = query if query.user is None else replace(query, user=name.account)
    asked = _Asked(context, query, target, name, _subject(context, query))
    asked.decide(lambda result: done(asked.explanation(result)))


class _Asked:
    """The request that is asked about, with what decides about it."""

    def __init__(
        self, context: ForwardingContext, query: Explain, target: Authority, name: Understood, subject: _Subject
    ) -> None:
        self._context = context
        self._query = query
        self._target = target
        self._name = name
        self._subject = subject
        credential = None if subject.credential is None else spec_of(subject.credential)
        own = self._own = own_rules(subject.account, credential, context.lists)
        self._policed = self._policies()
        policed = self._policed
        self._access = context.policy.access.narrowed(own) if policed is None else policed.access(own)
        self._client = self._access.client(query.client_ip)

    def _policies(self) -> Policed | None:
        """The policies that judge it; None: there are none."""
        query, subject = self._query, self._subject
        if query.draft is None and not self._context.judges(subject.account):
            return None
        from actors.forwarding.explained_parts import Policed  # only proxies with policies pay for it

        user, path, asked = subject.user or "", plain_path(query.target), self._name.parameters.asked
        return Policed(self._context, self._target, query, user, subject.account, path, asked)

    @property
    def _verdict(self) -> PolicyVerdict | None:
        return None if self._policed is None else self._policed.verdict

    def _source(self) -> SourceAddress:
        given, user = self._name.parameters, self._subject.user or ""
        requested = Requested(self._query.client_ip, user, given.session or "", given.rotate, given.ttl)
        return source_for(self._context, requested, self._subject.account, self._verdict)

    # --- the decision ---

    def decide(self, done: Callable[[_Result], None]) -> None:
        """Call `done` with the decision: at once, or when the target is resolved. Raises `UnreadableError`."""
        context, access, target = self._context, self._access, self._target
        early = _before_resolving(context, self._client, self._query, self._subject, self._name)
        if early is None and self._policed is None and context.upstreams is None:  # else below, in its order
            early = access.name(target)
        if early is not None:
            done(_Result(early))
        elif self._policed is not None:
            self._policed.decide(
                access, lambda decision: done(_Result(decision)), lambda found: done(self._by_addresses(found))
            )
        elif context.upstreams is not None:
            done(_Result(access.unresolved(target)))
        elif target.literal:
            done(self._by_addresses(Resolved((target.host,))))
        else:
            context.dialer.resolver.resolve(target.host, lambda found: done(self._by_addresses(found)))

    def _by_addresses(self, found: Resolution) -> _Result:
        return _resolved(self._access, self._client, self._target, found, self._source())

    # --- what is said about it ---

    def explanation(self, result: _Result) -> RequestExplanation:
        """All that is said about a decision."""
        if result.decision.failure is None and _is_backends(self._context, self._subject):
            result = result._replace(decision=Decision(None, result.decision.reason, BY_BACKEND, "user"))
        passed = None if result.decision.failure is not None else _upstreams(self._context, self._verdict)
        if passed is not None and passed.none_matches(_choosing(self._context, self._name.parameters)):
            refused = _refusal(failures.NO_UPSTREAM_MATCHES, "username_params: labels", "upstreams")
            result = result._replace(decision=refused)
        tls_name, decision = self._tls_name(result, directly=passed is None)
        allowed = decision.failure is None or result.decision.failure is not None
        explanation = _explanation(result._replace(decision=decision), self._target, self._access.mode, self._subject)
        return self._with_details(replace(explanation, tls_name=tls_name), passed if allowed else None)

    def _tls_name(self, result: _Result, directly: bool) -> tuple[TlsNameExplanation, Decision]:
        """What becomes of the name in a handshake, and the decision with that."""
        passing = next((each.address for each in result.addresses if each.decision == "allow"), None)
        asked = Asked(self._target, self._own, self._policed, self._is_plain, passing if directly else None)
        return explained_tls_name(self._context, asked, result.decision, self._query.tls_name)

    @property
    def _is_plain(self) -> bool:
        """Whether it is a request of plain HTTP."""
        return bool(plain_path(self._query.target)) and self._context.policy.speaks_http

    def _with_details(self, explanation: RequestExplanation, passed: UpstreamSet | None) -> RequestExplanation:
        """With the upstreams that it passes, its name, its source, its head and the rules, where there are any."""
        context, query, subject, verdict = self._context, self._query, self._subject, self._verdict
        if passed is not None:
            upstreams = _explained_upstreams(context, passed, self._name.parameters, subject, query)
            explanation = replace(explanation, upstreams=upstreams)
        leaving = explained_source(context, self._source(), subject.account, verdict)
        explanation = replace(explanation, source=leaving, name=_explained(self._name, query))
        if explanation.decision == "allow" and self._is_plain:
            headers = explained_headers(context, self._target, query.client_ip, verdict)
            explanation = replace(explanation, headers=headers)
        return explanation if self._policed is None else replace(explanation, rules=self._policed.rules())


def _upstreams(context: ForwardingContext, verdict: PolicyVerdict | None) -> UpstreamSet | None:
    """Those that an allowed request would go through; None where it goes directly."""
    if verdict is not None and verdict.use == DIRECT:
        return None
    return context.upstreams_of("" if verdict is None else verdict.pool)


def _choosing(context: ForwardingContext, parameters: Parameters) -> Parameters:
    """Those by which an upstream is chosen."""
    return parameters if context.names is not None and context.names.binds else NO_PARAMETERS


def _explained_upstreams(
    context: ForwardingContext, upstreams: UpstreamSet, parameters: Parameters, subject: _Subject, query: Explain
) -> UpstreamsExplanation:
    from actors.forwarding.explained_parts import explained_upstreams  # only proxies with upstreams pay for it

    session = parameters.session
    key = query.client_ip if session is None else f"{subject.user or ''}\0{session}"
    return explained_upstreams(upstreams, _choosing(context, parameters), key)


def _subject(context: ForwardingContext, query: Explain) -> _Subject:
    """Raises `UnreadableError`."""
    if not context.policy.session.wants_credentials:
        return _Subject(query.user)
    if query.credential is not None or not context.directory.is_own(query.user or ""):
        context.directory.refresh()
    credential = None if query.credential is None else context.directory.credential_by_id(query.credential)
    if credential is not None:
        found = context.directory.account(credential.account_id)
        if found is not None and query.user in (None, found.spec.username):
            return _Subject(found.spec.username, found.spec, credential)
    if query.credential is None and query.user is not None and context.authenticator.asks_backend(query.user):
        return _Subject(query.user)
    if query.credential is not None or query.user is None or not context.is_known_user(query.user):
        return _Subject(None)
    account = context.limits.account(query.user)
    return _Subject(query.user, None if account is None else account.spec)


def _before_resolving(
    context: ForwardingContext, client: Decision, query: Explain, subject: _Subject, name: Understood
) -> Decision | None:
    wanted = context.policy.session.wants_credentials
    if client.failure is not None:
        return client
    if wanted and subject.user is None:
        return _refusal(failures.CREDENTIALS_WANTED, _why_unknown(query, name.problem), "user")
    if name.parameters.unknown and context.names is not None and context.names.reject_unknown:
        refused = failures.unknown_parameters(" ".join(name.parameters.unknown))
        return _refusal(refused, f"username_params.reject_unknown: {refused.recorded}", "user")
    failure = context.limits.user_refusal(subject.user or "", query.client_ip)
    if failure is not None:
        return _refusal(failure, f"accounts: {failure.detail}", "account")
    if subject.credential is not None:
        failure = context.limits.credential_refusal(subject.user or "", subject.credential, query.client_ip)
        if failure is not None:
            return _refusal(failure, f"credentials: {failure.detail}", "credential")
    elif wanted and context.policy.protocol == "socks4" and not _is_admitted_by_name(context, subject):
        rule = "auth: on socks4 the name of this account alone is not enough (socks4_by_name)"
        return _refusal(failures.CREDENTIALS_WANTED, rule, "user")
    return None


def _understood(context: ForwardingContext, query: Explain) -> Understood:
    """How the user name is read, with what rules of the draft ask for."""
    names = context.names
    if query.draft is not None and isinstance(names, ParameterNames):
        names = names.knowing(frozenset(name for rule in query.draft.rules for name, _value in rule.params))
    return understood(context, query.user or "", names=names)


def _explained(name: Understood, query: Explain) -> NameExplanation | None:
    """How the user name was understood; None where it is no more than that."""
    if not name.problem and name.parameters is NO_PARAMETERS:
        return None
    given = name.parameters
    return NameExplanation(
        query.user or "",
        given.session,
        given.ttl,
        given.rotate,
        dict(given.labels),
        dict(given.marks),
        given.unknown,
        name.problem,
    )


def _why_unknown(query: Explain, problem: str) -> str:
    if query.credential is not None:
        return "auth: there is no such credential for this user and this proxy"
    if query.user is not None:
        return "auth: this is not a user of the proxy" + (f"; {problem}" if problem else "")
    return "auth: credentials are required (407), and no user is named"


def _is_admitted_by_name(context: ForwardingContext, subject: _Subject) -> bool:
    return _is_backends(context, subject) or context.directory.admits_name(subject.user or "")


def _is_backends(context: ForwardingContext, subject: _Subject) -> bool:
    """Whether a back end would decide about this user."""
    asks = context.policy.session.wants_credentials and subject.user is not None
    return asks and context.authenticator.asks_backend(subject.user or "")


def _resolved(
    access: AccessPolicy, client: Decision, target: Authority, result: Resolution, source: SourceAddress
) -> _Result:
    if isinstance(result, Failure):
        return _Result(_refusal(result, result.recorded or result.detail, "resolve"))
    decided = _decide_addresses(access, client, target, result.addresses)
    passing = [each.address for each in decided.addresses if each.decision == "allow"]
    refusals = [source.refuses(each) for each in passing]
    if passing and refusals[0] is not None and all(refusals):
        return decided._replace(decision=_refusal(refusals[0], source.rule or BIND_ADDRESS, "source"))
    return decided


def _decide_addresses(access: AccessPolicy, client: Decision, target: Authority, addresses: tuple[str, ...]) -> _Result:
    decisions = [(address, access.address(target, address)) for address in addresses]
    explained = tuple(ExplainedAddress(address, _decision(each), each.reason, each.rule) for address, each in decisions)
    passing = next((each for _address, each in decisions if each.failure is None), None)
    if passing is None:
        nothing = _refusal(failures.unroutable("no address to connect to"), "", "resolve")
        return _Result(decisions[0][1] if decisions else nothing, explained)
    return _Result(client if client.reason else passing, explained)


def _refusal(failure: Failure, rule: str, stage: str) -> Decision:
    return Decision(failure, failure.reason, rule, stage)


def _decision(decision: Decision) -> str:
    return "allow" if decision.failure is None else "deny"


def _explanation(result: _Result, target: Authority, mode: str, subject: _Subject) -> RequestExplanation:
    decision, addresses = result
    return RequestExplanation(
        decision=_decision(decision),
        reason=decision.reason,
        rule=decision.rule,
        stage=decision.stage,
        mode=mode,
        host=target.host,
        port=target.port,
        addresses=addresses,
        account="" if subject.account is None else subject.account.id,
        credential="" if subject.credential is None else subject.credential.id,
    )
