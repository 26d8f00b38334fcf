"""What becomes of the name in the TLS handshake of a tunnel, for `explain`: by what decides about real handshakes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from actors.bus.messages.forwarding import ExplainedTlsName
from actors.forwarding.access.narrowing import OwnRules
from actors.forwarding.access.policy import Decision
from actors.forwarding.access.rules import REPORTED
from actors.forwarding.access.tls_names import NO_NAME, OFF, Judgement, check_in_force, decide_name, refusal
from actors.forwarding.context import ForwardingContext
from actors.forwarding.protocols.http.targets import Authority

if TYPE_CHECKING:
    from actors.forwarding.explained_policies import Policed

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
) -> tuple[ExplainedTlsName, Decision]:
    """What is in force, and the decision with that about `name`: the handshake's, empty for one without, None where it
    was not asked about."""
    policy, target, policed = context.policy, asked.target, asked.policed
    verdict = None if policed is None else policed.verdict
    check = check_in_force(policy.tls_name, policy.access.rules, asked.own, verdict, target)
    is_checked = not asked.is_plain and target.port in policy.tls_ports
    explained = ExplainedTlsName(check.check, check.entry, is_checked, name)
    if name is None or not is_checked or check.check == OFF or decision.failure is not None:
        return explained, decision
    judgement = refusal(check, target, name or None, NO_NAME, lambda named: _judged(context, asked, named))
    detail = "" if judgement.failure is None else judgement.failure.detail
    explained = ExplainedTlsName(check.check, check.entry, is_checked, name, judgement.kind, detail)
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
