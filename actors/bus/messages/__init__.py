"""All messages of the mailbox and the events plane: one small class each, one module for each subject.

Each docstring states sender → receiver, when it is sent, and → the reply. A request always gets a reply: the one that
its docstring names, `Failed` when the receiver could not do it, or `Unreachable` when there is no receiver.
Importing this package registers them with `actors.bus.codec`. Times are Unix seconds, durations seconds, sizes bytes.
"""

from actors.bus.messages import (
    accounts,
    common,
    dns,
    events,
    fleet_objects,
    forwarding,
    metrics,
    policies,
    pools,
    problems,
    records,
    specs,
    supervision,
    upstreams,
    users,
    webhooks,
)

__all__ = ["accounts", "common", "dns", "events", "fleet_objects", "forwarding", "metrics", "policies", "pools",
"problems", "records", "specs", "supervision", "upstreams", "users", "webhooks"]  # fmt: skip
