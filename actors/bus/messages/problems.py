"""What is wrong with an actor that works on all the same: its list of problems."""

from __future__ import annotations

from actors.bus.codec import message

CERTIFICATE = "certificate"
UPSTREAM_DOWN = "upstream_down"
UPSTREAMS_UNREACHABLE = "upstreams_unreachable"
NO_DESCRIPTORS = "out_of_descriptors"
BIND_ADDRESS = "bind_address"
ACCOUNTS_TABLE = "accounts_table"
LIST_UNREADABLE = "list_unreadable"
WORKERS = "workers"
LISTENER = "listener"
PROCESS = "process"
REASONS = (
    CERTIFICATE,
    UPSTREAM_DOWN,
    UPSTREAMS_UNREACHABLE,
    NO_DESCRIPTORS,
    BIND_ADDRESS,
    ACCOUNTS_TABLE,
    LIST_UNREADABLE,
    WORKERS,
    LISTENER,
    PROCESS,
)
"""All reasons of a problem. `listener` and `process` are those of an actor that has failed."""


@message
class Problem:
    """One thing that is wrong and not over. A value, not a message by itself.

    `reason` is one of `REASONS`, `detail` a sentence, `since` Unix seconds. `subject` is the part of the proxy that it
    concerns: the name of an upstream or of a list, else empty; in reports of pools `POOL` or `POOL/UPSTREAM`. `serves`
    is False when no client can be served while it lasts.
    """

    reason: str
    detail: str
    since: float
    subject: str = ""
    serves: bool = True


@message
class ReportProblems:
    """Forwarding actor, TLS terminator or pools → supervisor, when configured and at each change. Nothing replies.

    `problems` are all that it has now. `over` are those that have ended since the report before, each with a sentence
    that says how. `certificate_ends` is when the certificate that it serves ends, 0 without one. `instance` is the
    process that reports.
    """

    instance: int
    problems: tuple[Problem, ...]
    over: tuple[Problem, ...] = ()
    certificate_ends: float = 0.0
