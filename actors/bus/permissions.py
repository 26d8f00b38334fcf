"""The actors that may send each message on the mailbox: one table, enforced by the router.

Each process has its own work. One that does another's, by mistake or because it was compromised, is refused and logged.
Replies are not in the table: a reply is accepted only from the actor that was asked (`actors.bus.mailbox`). A process
states itself which actor it is, so this stops no program that opens sockets of its own in the run directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from actors.bus.messages import accounts, cluster, common, dns, events, forwarding, metrics, records, specs, supervision
from actors.bus.messages.common import TLS

FORWARDING = "forwarding"
COMMAND = "command"
"""The command line, where it uses the bus."""

_API = frozenset({common.API})
_SUPERVISOR = frozenset({common.SUPERVISOR})
_FORWARDING = frozenset({FORWARDING})
_COMMAND = frozenset({COMMAND})
_SENDER = frozenset({common.WEBHOOKS})
_WATCHERS = frozenset({common.API, common.TELEMETRY})
_ACTORS = frozenset(
    {
        common.API,
        TLS,
        common.METRICS,
        common.LOGS,
        common.WEBHOOKS,
        common.TELEMETRY,
        common.RESOLVER,
        common.PROXY_RESOLVER,
        common.POOLS,
        common.LAB,
        FORWARDING,
    }
)

SENDERS: Mapping[type[object], frozenset[str]] = MappingProxyType(
    {
        common.Hello: _ACTORS,
        common.Terminated: _ACTORS,
        common.Stop: _SUPERVISOR,
        common.ApplySettings: _SUPERVISOR,
        forwarding.Configure: _SUPERVISOR,
        forwarding.Idle: _FORWARDING,
        forwarding.Sleep: _SUPERVISOR,
        forwarding.Resume: _SUPERVISOR,
        specs.CheckPool: _API,
        specs.CheckPoolOnce: _SUPERVISOR,
        specs.CheckPools: _SUPERVISOR,
        supervision.DrainConnections: _SUPERVISOR,
        metrics.DropProxyMetrics: _SUPERVISOR,
        supervision.SetProxyNames: _SUPERVISOR,
        supervision.ValidateSettings: _API,
        supervision.ApplyOverrides: _API,
        supervision.DescribeSettings: _API,
        supervision.ReserveListener: _API,
        supervision.CancelListeners: _API,
        supervision.ApplyProxies: _API,
        supervision.RestartProxy: _API,
        supervision.AwaitProxy: _API,
        supervision.StartExplainer: _API,
        supervision.QueryDesired: _API,
        supervision.ReplaceProxies: _API,
        supervision.ApplyObjects: _API,
        supervision.QueryRuntime: _WATCHERS,
        supervision.QueryWorkers: _API,
        supervision.Upgrade: _COMMAND,
        supervision.DescribeProgram: _COMMAND,
        common.ResetPassword: _COMMAND,
        cluster.FoundFleet: _COMMAND,
        cluster.LeaveFleet: _COMMAND,
        cluster.MoveFleet: _COMMAND,
        cluster.JoinFleet: _COMMAND,
        cluster.NoteFleet: _API,
        cluster.RekeyFleet: _COMMAND,
        cluster.QueryPoolState: _API,
        cluster.TryProxy: _API,
        cluster.VerifyTrail: _API,
        common.Listening: frozenset({common.METRICS}),
        common.ReportProblems: frozenset({FORWARDING, TLS, common.POOLS}),
        accounts.ReportDeniedNames: _FORWARDING,
        metrics.Counters: _FORWARDING,
        accounts.RenewPassword: _FORWARDING,
        forwarding.AllowTestClient: _API,
        forwarding.Explain: _API,
        forwarding.QueryTester: _API,
        forwarding.QueryConnections: _API,
        forwarding.GroupConnections: _API | _SUPERVISOR,
        forwarding.DrainEnded: _FORWARDING,
        forwarding.CloseConnections: _API,
        specs.QueryUpstreams: _API,
        accounts.QueryAccounts: _API,
        metrics.QueryStats: _WATCHERS,
        metrics.QuerySystem: _WATCHERS,
        metrics.QueryMetricSeries: _API,
        metrics.QueryRealtime: _API,
        accounts.QueryUsage: _API | _FORWARDING,
        accounts.QueryReached: _API,
        accounts.QueryOpen: _API,
        accounts.ResetUsage: _API,
        accounts.DropAccountUsage: _API,
        records.QueryLogs: _WATCHERS,
        records.TailLogs: _WATCHERS,
        records.CountLogs: _API,
        events.QueryWebhookSender: _API,
        events.ReplayEvents: _SENDER,
        events.SetWebhooks: _API,
        events.FetchWebhooks: _SENDER,
        events.DisableWebhook: _SENDER,
        events.SendTestEvent: _API,
        events.QueryDeliveries: _API,
        events.Redeliver: _API,
        events.QueryWebhookStatus: _API,
        dns.QueryDnsCache: _API,
        dns.ForgetNames: _API,
        dns.QueryDns: _API,
    }
)
"""By class, the kinds of actors that may send it other than as a reply. What isn't here is a reply or a value."""

_BY_NAME = {kind.__name__: senders for kind, senders in SENDERS.items()}


def kind_of(address: str) -> str:
    """The kind of the actor that has this address on the bus: its name, or `forwarding`."""
    name = address.partition("/")[0]
    return FORWARDING if name.startswith(f"{FORWARDING}.") else name


def may_send(address: str, message: str) -> bool:
    """True if the actor at this address may send a message of the class with this name."""
    return kind_of(address) in _BY_NAME.get(message, frozenset())
