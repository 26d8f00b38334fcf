"""What is done to the header fields of a plain request, for `explain`: by what does it to real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.bus.messages.forwarding import ExplainedHeaders
from actors.forwarding.context import ForwardingContext
from actors.forwarding.protocols.http.targets import Authority
from actors.forwarding.protocols.http.via import extended_via
from config.net.field_names import canonical_name

if TYPE_CHECKING:
    from actors.forwarding.policies.judge import Verdict


def explained_headers(
    context: ForwardingContext, target: Authority, client_ip: str, verdict: Verdict | None
) -> ExplainedHeaders:
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
    return ExplainedHeaders(pairs, tuple(sorted(named - {canonical_name(name) for name, _value in pairs})))
