"""Who may send which message on the mailbox: one table, kept by the exchange.

Each process has its own work. One that does another's, by mistake or because it was taken over, is refused and logged.
Replies are not in the table: a reply is taken from the actor alone that was asked (`actors.bus.mailbox`). A process
states itself which actor it is, so this stops no program that opens sockets of its own in the run directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from actors.bus import messages as m
from actors.bus.messages.common import TLS

FORWARDING = "forwarding"
COMMAND = "command"
"""The command line, where it speaks to the product over the bus."""

_API = frozenset({m.API})
_SUPERVISOR = frozenset({m.SUPERVISOR})
_FORWARDING = frozenset({FORWARDING})
_COMMAND = frozenset({COMMAND})
_SENDER = frozenset({m.WEBHOOKS})
_WATCHERS = frozenset({m.API, m.TELEMETRY})
_ACTORS = frozenset({m.API, TLS, m.METRICS, m.LOGS, m.WEBHOOKS, m.TELEMETRY, FORWARDING})

SENDERS: Mapping[type[object], frozenset[str]] = MappingProxyType(
    {
        m.Hello: _ACTORS,
        m.Terminated: _ACTORS,
        m.Stop: _SUPERVISOR,
        m.SetLogging: _SUPERVISOR,
        m.SetMaxConnections: _SUPERVISOR,
        m.SetSettings: _SUPERVISOR,
        m.SetGroup: _SUPERVISOR,
        m.SetPooling: _SUPERVISOR,
        m.SetAccessRecords: _SUPERVISOR,
        m.Configure: _SUPERVISOR,
        m.DrainConnections: _SUPERVISOR,
        m.DropProxyMetrics: _SUPERVISOR,
        m.SetProxyNames: _SUPERVISOR,
        m.ValidateSettings: _API,
        m.PutSettings: _API,
        m.ReserveListener: _API,
        m.CancelListeners: _API,
        m.ApplyProxy: _API,
        m.RemoveProxy: _API,
        m.RestartProxy: _API,
        m.AwaitProxy: _API,
        m.ReplaceProxies: _API,
        m.QueryRuntime: _WATCHERS,
        m.Upgrade: _COMMAND,
        m.DescribeProgram: _COMMAND,
        m.ResetPassword: _COMMAND,
        m.Listening: frozenset({m.METRICS}),
        m.ReportProblems: frozenset({FORWARDING, TLS}),
        m.ReportUsage: _FORWARDING,
        m.AllowTestClient: _API,
        m.Explain: _API,
        m.QueryTester: _API,
        m.QueryConnections: _API,
        m.CloseConnections: _API,
        m.QueryUpstreams: _API,
        m.QueryAccounts: _API,
        m.QueryStats: _WATCHERS,
        m.QuerySystem: _WATCHERS,
        m.QueryMetrics: _API,
        m.QueryRealtime: _API,
        m.QueryUsage: _API,
        m.ResetUsage: _API,
        m.DropAccountUsage: _API,
        m.QueryLogs: _WATCHERS,
        m.TailLogs: _WATCHERS,
        m.QueryWebhookSender: _API,
        m.ReplayEvents: _SENDER,
        m.SetWebhooks: _API,
        m.FetchWebhooks: _SENDER,
        m.DisableWebhook: _SENDER,
        m.SendTestEvent: _API,
        m.QueryDeliveries: _API,
        m.Redeliver: _API,
        m.QueryWebhookStatus: _API,
    }
)
"""By class, the kinds of actors that may send it other than as a reply. What isn't here is a reply or a value."""

_BY_NAME = {kind.__name__: senders for kind, senders in SENDERS.items()}


def kind_of(address: str) -> str:
    """The kind of the actor that has this address on the bus: its name, or `forwarding`."""
    name = address.partition("/")[0]
    return FORWARDING if name.startswith(f"{FORWARDING}.") else name


def may_send(address: str, message: str) -> bool:
    """May the actor at this address send a message of the class with this name?"""
    return kind_of(address) in _BY_NAME.get(message, frozenset())
