"""One line of the log for each decision about a connection, at the level `debug`.

Callers check `ForwardingContext.debug` first, so that no text is made for lines that are not written. No line has a
password or more of a URL than its host and port, since the rest of it may be a secret.
"""

from __future__ import annotations

import logging

from actors.forwarding.protocols.commands import Report
from actors.forwarding.protocols.http.targets import Authority
from actors.net.transport import Transport

log = logging.getLogger(__name__)


def enabled() -> bool:
    """Whether the level of the log lets such lines through."""
    return log.isEnabledFor(logging.DEBUG)


def note(connection_id: str, message: str, *values: object) -> None:
    """Log `message` % `values` about one connection."""
    log.debug("connection %s: " + message, connection_id, *values)


def note_peer(connection_id: str, sock: Transport) -> None:
    """Log the address that was dialled."""
    try:
        host, port = sock.getpeername()[:2]
    except OSError:
        note(connection_id, "connected, but the peer has closed since")
    else:
        note(connection_id, "connected to %s port %d", host, port)


def note_report(connection_id: str, report: Report, target: Authority | None) -> None:
    """Log how a request ended, and what refused it."""
    where = "-" if target is None else target.text.decode("ascii")
    method = report.method.decode("ascii") or "-"
    why = f", {report.reason}" if report.reason else ""
    why += f": {report.detail}" if report.detail else ""
    why += f" (by {report.rule})" if report.rule else ""
    moved = f"{report.bytes_in} bytes in, {report.bytes_out} out"
    note(connection_id, "%s %s: status %d%s; %s", method, where, report.status, why, moved)
