"""The name in the TLS handshake of a tunnel: what is to become of it, and whether it may be what it is.

A proxy, or a rule of a policy in its place, says `off`, `record`, `match`, `allowed` or `auto`. `auto` is `match` where
an entry that names hosts has let the request through, since such an entry is worth nothing for a client that says one
name to the proxy and another to the server behind it; else it is `record`. Names are compared as A-labels, without
regard to case and to a dot at the end. Pure: nothing is read or resolved here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from actors.forwarding.access.policy import AccessPolicy, Decision
from actors.forwarding.access.rules import AccessRules, OwnRules
from actors.forwarding.protocols.failures import POLICY_DENIED, Failure, Refused, goes_another_way, tls_name_denied
from actors.forwarding.protocols.http.targets import Authority, authority_of_name
from actors.net.client_hello import MALFORMED, NOT_TLS
from config.net.addresses import plain

if TYPE_CHECKING:
    from actors.forwarding.policies.judge import Judge, PolicyVerdict

AUTO: Final = "auto"
OFF: Final = "off"
RECORD: Final = "record"
MATCH: Final = "match"
ALLOWED: Final = "allowed"

MATCHING: Final = "match"
MISMATCH: Final = "mismatch"
NO_NAME: Final = "no_name"
TIMEOUT: Final = "timeout"
"""What a checked tunnel turns out to be, besides `NOT_TLS` and `MALFORMED`."""

FIELD: Final = "tls_name"
"""The proxy's own field, as records name what wants a check."""


class TlsCheck(NamedTuple):
    """What is in force for one tunnel. `check` is `off`, `record`, `match` or `allowed`.

    `entry` is what of the configuration says so: an entry of an allow list, a rule of a policy or `tls_name`.
    `reported`: what it finds is recorded and not refused.
    """

    check: str
    entry: str
    reported: bool = False


class Judgement(NamedTuple):
    """What a handshake is judged to be. `kind` is one of those above; `failure` None: nothing is wrong, or nothing is
    asked of it. `reported`: the failure is recorded and not enforced."""

    kind: str
    failure: Failure | None = None
    reported: bool = False


_STATED: Final = {check: TlsCheck(check, FIELD) for check in (OFF, RECORD, MATCH, ALLOWED)}
_STATED_IN_REPORT_MODE: Final = {check: TlsCheck(check, FIELD, check in (MATCH, ALLOWED)) for check in _STATED}
_MATCHED: Final = Judgement(MATCHING)

_WITHOUT_NAME: Final = {
    NO_NAME: "the handshake has no name, and {} was requested",
    NOT_TLS: "the client does not speak TLS, and {} was requested",
    MALFORMED: "the handshake is malformed, and {} was requested",
    TIMEOUT: "no complete handshake came in time, and {} was requested",
}


def check_in_force(
    tls_name: str, rules: AccessRules, own: OwnRules, verdict: PolicyVerdict | None, target: Authority
) -> TlsCheck:
    """What becomes of the name in a tunnel to `target`, which has been let through.

    `tls_name` and `rules` are the proxy's; `verdict` is what the policies have said, None without any.
    """
    stated = None if verdict is None else verdict.tls_name
    if stated is not None:
        wanted = stated.rule.spec.tls_name
        return (
            _automatic(rules, own, verdict, target, stated.entry) if wanted == AUTO else TlsCheck(wanted, stated.entry)
        )
    if tls_name == AUTO:
        return _automatic(rules, own, verdict, target, FIELD)
    if not rules.report:
        return _STATED[tls_name]
    enforced = _naming(own, verdict, target) if tls_name in (MATCH, ALLOWED) else ""
    return TlsCheck(tls_name, enforced) if enforced else _STATED_IN_REPORT_MODE[tls_name]


def _automatic(
    rules: AccessRules, own: OwnRules, verdict: PolicyVerdict | None, target: Authority, entry: str
) -> TlsCheck:
    """`entry`: what says `auto`."""
    naming = _naming(own, verdict, target)
    if naming:
        return TlsCheck(MATCH, naming)
    if rules.names_hosts and not (verdict is not None and verdict.decided):  # else they were passed over
        naming = rules.naming(target.host, target.port)
        if naming:
            return TlsCheck(MATCH, naming, rules.report)
    return _STATED[RECORD] if entry == FIELD else TlsCheck(RECORD, entry)


def _naming(own: OwnRules, verdict: PolicyVerdict | None, target: Authority) -> str:
    """The entry of an account, a credential or a policy that names the target; empty without one."""
    for rules in own:
        if rules.names_hosts:
            naming = rules.naming(target.host, target.port)
            if naming:
                return naming
    if verdict is not None and not target.literal:
        for applied in verdict.applied:
            if applied.rule.names_host(target.host, target.port):
                return applied.entry
    return ""


def refusal(
    check: TlsCheck, target: Authority, name: str | None, otherwise: str, judged: Callable[[Authority], Decision]
) -> Judgement:
    """Judge a handshake by what is in force. `name` is its name; None: it has none, and `otherwise` is its kind.

    `judged` decides about another name as if that had been requested: it is asked where the request named an address,
    and for `allowed`. Under `record` the kind is what `match` would have found.
    """
    kind, reported = MISMATCH, check.reported
    if name is None:
        kind, detail = otherwise, _WITHOUT_NAME[otherwise].format(target.host)
    elif compared(name) == compared(target.host):
        return _MATCHED
    else:
        detail = f"the handshake names {name}, and {target.host} was requested"
        if target.literal or check.check == ALLOWED:
            decision = _of_another(name, target, judged)
            if decision is None:
                return _MATCHED
            if decision.failure is not None or decision.reported is not None:
                reported = decision.failure is None
                detail += f"; {_why(decision)}"
    if check.check in (MATCH, ALLOWED):
        return Judgement(kind, tls_name_denied(kind, detail, check.entry), reported)
    return Judgement(kind)


def _why(decision: Decision) -> str:
    """What refuses a name; of the guard without the address, which not everybody who may read it may see."""
    if decision.failure is not None and decision.stage == "egress_guard":
        return decision.failure.detail
    return f"{decision.rule or decision.reason} does not allow that name"


_NO_DECISION: Final = Decision(None, "", "", "name")
"""Of what is no name: no rule has been asked."""


def _of_another(name: str, target: Authority, judged: Callable[[Authority], Decision]) -> Decision | None:
    """None: this name is allowed. One that is an address is, where it is the address that was requested."""
    try:
        named = authority_of_name(compared(name).encode("ascii"), target.port)
    except (Refused, UnicodeEncodeError):
        return _NO_DECISION
    if named.literal:
        same = target.literal and plain(named.host) == plain(target.host)
        return None if same else _NO_DECISION
    decision = judged(named)
    return None if decision.failure is None and decision.reported is None else decision


def decide_name(
    access: AccessPolicy,
    own: OwnRules,
    judge: Judge | None,
    named: Authority,
    address: str | None,
    through_upstream: bool,
    verdict: PolicyVerdict | None,
) -> Decision:
    """What guard, own rules, policies and access rules say about `named` in a tunnel that was requested for another.

    `access` is the proxy's; `judge` has the facts of this name, None without policies. `address` is the origin's, or,
    `through_upstream`, one by which policies have judged the request, if they needed any: None without one.
    `verdict` is that about the request: the name must be let through by the same way.
    """
    policy = access.for_request(own, judge)
    if judge is not None:
        refused = _by_another_way(judge, named, address, through_upstream, verdict)
        if refused is not None:
            return refused
    if through_upstream or address is None:
        return policy.unresolved(named)
    return policy.address(named, address)


def _by_another_way(
    judge: Judge, named: Authority, address: str | None, through_upstream: bool, verdict: PolicyVerdict | None
) -> Decision | None:
    """Settle how policies judge the name. Returns the refusal of one that would go another way than the tunnel does, or
    whose address, which was not looked up, would decide."""
    from actors.forwarding.policies.judge import UNTOUCHED  # only proxies with policies pay for it

    if not through_upstream and address is not None:
        judge.settled = UNTOUCHED if verdict is None else verdict
        return None
    found = judge.by_name() if address is None else judge.by_address(address)
    judge.settled = UNTOUCHED if verdict is None else verdict
    if found is None or not judge.goes_the_way(found):
        return Decision(goes_another_way(named.host), POLICY_DENIED, "", "policy")
    judge.settled = found
    return None


def compared(name: str) -> str:
    """A name as it is compared: lower case, without a dot at its end."""
    return name.lower().removesuffix(".")
