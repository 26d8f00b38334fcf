"""What a client connection does where the proxy has policies: have a request judged, and go the way that they say.

A request that is sent again, since a kept connection or an upstream has failed, is not judged again: it goes on by the
verdict that it has.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from actors.bus.messages.specs import DENY, DIRECT
from actors.forwarding.connections.client_connection import ClientConnection
from actors.forwarding.connections.deferred_handlers import open_way
from actors.forwarding.isolation import isolated
from actors.forwarding.limits.meter import account_of
from actors.forwarding.limits.rule_limits import Limited
from actors.forwarding.net.resolver import Resolution
from actors.forwarding.policies.facts import Facts
from actors.forwarding.policies.judge import NO_POLICIES, UNTOUCHED, Applied, Judge, PolicySet, PolicyVerdict
from actors.forwarding.protocols.commands import NO_PARAMS, Command, Open, Report
from actors.forwarding.protocols.failures import Failure, no_such_pool
from actors.forwarding.protocols.http.targets import Authority, parse_absolute
from actors.forwarding.reporting import trace

if TYPE_CHECKING:
    from actors.bus.messages.specs import AccountSpec
    from actors.forwarding.context import ForwardingContext
    from actors.forwarding.limits.meter import Meter


class AwaitedAddresses:
    """A request whose verdict waits for the addresses of its target."""

    def __init__(self, client: ClientConnection, command: Open, judge: Judge) -> None:
        self._client: ClientConnection | None = client
        self._command = command
        self._judge = judge
        self.client_ip = client.client_ip
        context = client.context
        self._resolver = context.dialer.resolver
        context.dialer.resolve_later(command.target, self._resolved, self, context.own_rules(client.meter), judge)

    @property
    def waits(self) -> bool:
        """See `Requester`."""
        return self._client is not None and self._client.waits

    @property
    def overdue(self) -> Failure | None:
        """See `PendingOrigin`."""
        return None if self._client is None else self._resolver.overdue(self._command.target.host)

    def cancel(self) -> None:
        """Stop waiting."""
        self._client = None

    def _resolved(self, result: Resolution) -> None:
        client, self._client = self._client, None
        if client is None or client.closed or client.pending_origin is not self:
            return
        client.pending_origin = None
        _go_on(client, self._command, self._judge, result)


@isolated
def _go_on(client: ClientConnection, command: Open, judge: Judge, result: Resolution) -> None:
    if isinstance(result, Failure):
        commands: list[Command] | None = client.failed(result)
    else:
        verdict, addresses = choose(client.context, command.target, judge, result.addresses)
        commands = _follow(client, command, judge, verdict, addresses)
    if commands:
        client.execute(commands)
    client.pump()


def open_judged(client: ClientConnection, command: Open) -> list[Command] | None:
    """Get a connection to the target by the way that the policies say, or none."""
    request = client.request
    judge = request.judge
    if judge is None:
        judge = request.judge = judge_of(client, command.target, *client.session.plain_request)
    elif judge.settled is not None:
        return _go(client, command, judge)
    verdict = judge.by_name()
    if verdict is not None:
        return _follow(client, command, judge, verdict, ())
    client.pending_origin = AwaitedAddresses(client, command, judge)
    return None


def choose(
    context: ForwardingContext, target: Authority, judge: Judge, addresses: tuple[str, ...]
) -> tuple[PolicyVerdict, tuple[str, ...]]:
    """The verdict at the first address that may be connected to, with all addresses of the same way and egress.

    An upstream resolves the name itself: no address may be one that is refused then.
    """
    guard = context.policy.access
    free = [each for each in addresses if guard.guarded(target, each) is None] or list(addresses)
    verdicts = {each: judge.by_address(each) for each in free}
    allowed = [each for each in free if verdicts[each].use != DENY]
    first = verdicts[allowed[0] if allowed else free[0]]
    if allowed and judge.way(first) != DIRECT and len(allowed) < len(free):
        first = next(verdicts[each] for each in free if verdicts[each].use == DENY)
    way = judge.way(first), first.egress
    return first, tuple(each for each in allowed if (judge.way(verdicts[each]), verdicts[each].egress) == way)


def _follow(
    client: ClientConnection, command: Open, judge: Judge, verdict: PolicyVerdict, addresses: tuple[str, ...]
) -> list[Command] | None:
    """Do what the verdict says: once for each request."""
    judge.settled = verdict
    judge.addresses = addresses
    if verdict.counted:
        client.context.stats.decided(verdict.counted)
        if client.context.debug:
            trace.note(client.id, "judged by %s", ", ".join(each.entry for each, _only in verdict.counted))
    failure = _refused_by_own(client, command.target, judge) or verdict.failure or _over_limits(client, verdict)
    if failure is not None:
        return client.failed(failure)
    changes = verdict.header_changes
    if changes is not None:
        client.session.change_head(changes.apply)
    return _go(client, command, judge)


def _refused_by_own(client: ClientConnection, target: Authority, judge: Judge) -> Failure | None:
    """What the account's own rules refuse comes first: it names the rule in the record."""
    own = client.context.own_rules(client.meter)
    decision = client.context.policy.access.narrowed(own, judge).name(target) if own else None
    return None if decision is None else decision.failure


def _over_limits(client: ClientConnection, verdict: PolicyVerdict) -> Failure | None:
    """Count the request for the rules that match it and have limits. Returns why it is refused, else None."""
    limited = tuple(_limited(each) for each in verdict.applied if each.rule.limited)
    return client.context.limits.rules.admit(client.metered(), limited) if limited else None


def _limited(applied: Applied) -> Limited:
    spec = applied.rule.spec
    return Limited((applied.policy_id, spec.name), spec.limits, applied.decider, applied.entry)


def _go(client: ClientConnection, command: Open, judge: Judge) -> list[Command] | None:
    """Open a connection by the way of the settled verdict."""
    verdict, context = judge.verdict, client.context
    if verdict.use == DIRECT:
        return open_way(client, command, None, judge)
    if not verdict.pool:
        return open_way(client, command, context.upstreams, judge)
    upstreams = context.upstreams_of(verdict.pool)
    if upstreams is None:
        failure = no_such_pool(verdict.pool, verdict.applied[-1].entry)
        return client.failed(failure)
    client.request.pool = verdict.pool
    return open_way(client, command, upstreams, judge)


def judge_of(client: ClientConnection, target: Authority, method: str = "", path: str = "") -> Judge:
    """Of a request of this client."""
    request = client.request
    return new_judge(
        client.context,
        target,
        client.client_ip,
        client.listen_port,
        request.user,
        client.meter,
        method,
        path,
        request.parameters.asked,
    )


def judge_directly(client: ClientConnection, target: Authority) -> Judge:
    """Of a request that no upstream can serve: whatever is to go through a pool is refused."""
    judge = judge_of(client, target)
    judge.settled = UNTOUCHED
    return judge


def judge_datagram(
    context: ForwardingContext, target: Authority, client_ip: str, listen_port: int, report: Report, meter: Meter | None
) -> Judge:
    """As `judge_directly`, of one datagram; `report` is that of its association."""
    judge = new_judge(context, target, client_ip, listen_port, report.user, meter, params=report.params)
    judge.settled = UNTOUCHED
    return judge


def tunnel_refused(
    context: ForwardingContext,
    target: Authority,
    client_ip: str,
    listen_port: int,
    report: Report,
    meter: Meter | None,
    address: str | None,
) -> Failure | None:
    """Why the policies of now refuse what is open; None when they don't. `address`: the target's; None: an upstream has
    resolved it, and a policy that would need it can't refuse."""
    if not context.judges(account_of(meter)):
        return None
    url, method = report.url, report.method.decode("ascii")
    plain = url.lower().startswith("http://")  # a request that has become a tunnel by 101
    path = parse_absolute(url.encode("latin-1"))[1].decode("latin-1") if plain else ""
    method = method if plain else ""
    judge = new_judge(context, target, client_ip, listen_port, report.user, meter, method, path, report.params)
    verdict = judge.by_name() if address is None else judge.by_address(address)
    return None if verdict is None else verdict.failure


def new_judge(
    context: ForwardingContext,
    target: Authority,
    client_ip: str,
    listen_port: int,
    user: str,
    meter: Meter | None,
    method: str = "",
    path: str = "",
    params: Mapping[str, str] = NO_PARAMS,
) -> Judge:
    """By the policies of now. `method` is empty for what is not plain HTTP."""
    return judge_of_account(context, target, client_ip, listen_port, user, account_of(meter), method, path, params)


def judge_of_account(
    context: ForwardingContext,
    target: Authority,
    client_ip: str,
    listen_port: int,
    user: str,
    account: AccountSpec | None,
    method: str = "",
    path: str = "",
    params: Mapping[str, str] = NO_PARAMS,
    policies: PolicySet | None = None,
) -> Judge:
    """By these policies, those of now by default, and those of this account and its plan."""
    judging = policies or context.policies or NO_POLICIES
    tags, of_account = ((), ()) if account is None else (account.tags, account.policies)
    facts = Facts(
        target.host,
        target.port,
        target.literal,
        client_ip,
        time.time(),
        user,
        tags,
        method,
        path,
        params,
        listen_port,
    )
    return judging.judge(facts, of_account, DIRECT if context.upstreams is None else "")
