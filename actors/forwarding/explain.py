"""What would happen to a request, by the access policy, resolver and accounts that decide about real ones.

Nothing is connected to. The stages are those of a real request, in order: `client` (at accept), `user`,
`account` (disabled, expired, outside its schedule, from elsewhere, quota used up), `credential` (the same of that),
`name` (before resolving), `resolve`, then for each address `egress_guard` and `address`; the last but `resolve` and
`egress_guard` go by the rules of account, credential and proxy. `policy` is the stage where a rule of a policy decides
(`explained_policies`). The first refusal decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from actors.bus.messages.forwarding import Explain, ExplainedAddress, Explanation
from actors.forwarding.access.narrowing import own_rules
from actors.forwarding.access.policy import AccessPolicy, Decision
from actors.forwarding.context import ForwardingContext
from actors.forwarding.limits.credentials import spec_of
from actors.forwarding.net.resolver import Resolution
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority, parse_authority

if TYPE_CHECKING:
    from actors.accounts.records import CredentialRecord
    from actors.bus.messages.specs import AccountSpec
    from actors.forwarding.explained_policies import Policed

_URL = re.compile(r"(https?)://([^/?#]*)([/?][^#]*)?(?:#.*)?", re.IGNORECASE | re.DOTALL | re.ASCII)
_BARE_V6 = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*", re.ASCII)
DEFAULT_PORT = 443
BY_BACKEND = "auth.backend: allowed if the authentication back end knows this user, which was not asked"


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
    elif _BARE_V6.fullmatch(text):
        text = f"[{text}]"
    try:
        return parse_authority(text.encode("ascii"), port)
    except UnicodeEncodeError:
        raise failures.malformed("the target is not ASCII; write the name as it is in the DNS (xn--…)") from None


def plain_path(text: str) -> str:
    """Path and query of an http URL; empty for any other target."""
    match = _URL.fullmatch(text)
    if match is None or match[1].lower() != "http":
        return ""
    path = match[3] or "/"
    return path if path.startswith("/") else "/" + path


def explain(context: ForwardingContext, query: Explain, done: Callable[[Explanation], None]) -> None:
    """Call `done` with the explanation, perhaps in this very call.

    Raises `Refused` when the target is none, and `UnreadableError` when the accounts can't be read.
    """
    target = read_target(query.target)
    subject = _subject(context, query)
    credential = None if subject.credential is None else spec_of(subject.credential)
    own = own_rules(subject.account, credential, context.lists)
    access = context.policy.access.narrowed(own)
    policed: Policed | None = None
    if context.policies is not None:
        from actors.forwarding.explained_policies import Policed  # only proxies with policies pay for it

        policed = Policed(context, target, query, subject.user or "", subject.account, plain_path(query.target))
        access = policed.access(own)

    def reply(result: _Result) -> None:
        if result.decision.failure is None and _is_backends(context, subject):
            result = result._replace(decision=Decision(None, result.decision.reason, BY_BACKEND, "user"))
        explanation = _explanation(result, target, access.mode, subject)
        done(explanation if policed is None else replace(explanation, rules=policed.rules()))

    def judged(result: Resolution) -> _Result:
        return _resolved(access, client, target, result)

    client = access.client(query.client_ip)
    early = _before_resolving(context, client, query, subject)
    if early is None and policed is None and context.upstreams is None:  # else it is decided below, in its order
        early = access.name(target)
    if early is not None:
        reply(_Result(early))
    elif policed is not None:
        policed.decide(access, lambda decision: reply(_Result(decision)), lambda found: reply(judged(found)))
    elif context.upstreams is not None:
        reply(_Result(access.unresolved(target)))
    elif target.literal:
        reply(_decide_addresses(access, client, target, (target.host,)))
    else:
        context.dialer.resolver.resolve(target.host, lambda result: reply(_resolved(access, client, target, result)))


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
    context: ForwardingContext, client: Decision, query: Explain, subject: _Subject
) -> Decision | None:
    wanted = context.policy.session.wants_credentials
    if client.failure is not None:
        return client
    if wanted and subject.user is None:
        return _refusal(failures.CREDENTIALS_WANTED, _why_unknown(query), "user")
    failure = context.limits.user_refusal(subject.user or "", query.client_ip)
    if failure is not None:
        return _refusal(failure, f"accounts: {failure.detail}", "account")
    if subject.credential is not None:
        failure = context.limits.credential_refusal(subject.credential, query.client_ip)
        if failure is not None:
            return _refusal(failure, f"credentials: {failure.detail}", "credential")
    elif wanted and context.policy.protocol == "socks4" and not _is_admitted_by_name(context, subject):
        rule = "auth: on socks4 the name of this account alone is not enough (socks4_by_name)"
        return _refusal(failures.CREDENTIALS_WANTED, rule, "user")
    return None


def _why_unknown(query: Explain) -> str:
    if query.credential is not None:
        return "auth: there is no such credential for this user and this proxy"
    if query.user is not None:
        return "auth: this is not a user of the proxy"
    return "auth: credentials are required (407), and no user is named"


def _is_admitted_by_name(context: ForwardingContext, subject: _Subject) -> bool:
    return _is_backends(context, subject) or context.directory.admits_name(subject.user or "")


def _is_backends(context: ForwardingContext, subject: _Subject) -> bool:
    """Whether a back end would decide about this user."""
    asks = context.policy.session.wants_credentials and subject.user is not None
    return asks and context.authenticator.asks_backend(subject.user or "")


def _resolved(access: AccessPolicy, client: Decision, target: Authority, result: Resolution) -> _Result:
    if isinstance(result, Failure):
        return _Result(_refusal(result, result.detail, "resolve"))
    return _decide_addresses(access, client, target, result.addresses)


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


def _explanation(result: _Result, target: Authority, mode: str, subject: _Subject) -> Explanation:
    decision, addresses = result
    return Explanation(
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
