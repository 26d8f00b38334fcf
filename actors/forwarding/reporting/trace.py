"""One line of the log for each decision about a connection, at the level `debug`.

Who calls `note` looks at `Serving.debug` first, so that nothing is made up for lines that nobody reads. No line has a
password or more of a URL than its host and port, since the rest of it may be a secret.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from actors.forwarding.protocols.commands import Report
from actors.forwarding.protocols.http.targets import Authority
from actors.net.transport import Transport

if TYPE_CHECKING:
    from actors.forwarding.context import Serving

log = logging.getLogger(__name__)


def enabled() -> bool:
    """Whether the lines are wanted at the level that the log has now."""
    return log.isEnabledFor(logging.DEBUG)


def note(serving: Serving, number: int, message: str, *values: object) -> None:
    """Log `message` % `values` about the connection with this number."""
    log.debug("connection %s: " + message, serving.book.id_of(number), *values)


def note_peer(serving: Serving, number: int, sock: Transport) -> None:
    """Log the address that was dialled."""
    try:
        host, port = sock.getpeername()[:2]
    except OSError:
        note(serving, number, "connected, and ended by the other side since")
    else:
        note(serving, number, "connected to %s port %d", host, port)


def note_report(serving: Serving, number: int, report: Report, target: Authority | None) -> None:
    """Log how a request ended, with what refused it."""
    where = "-" if target is None else target.text.decode("ascii")
    method = report.method.decode("ascii") or "-"
    why = f", {report.reason}" if report.reason else ""
    why += f": {report.detail}" if report.detail else ""
    why += f" (by {report.rule})" if report.rule else ""
    moved = f"{report.bytes_in} bytes in, {report.bytes_out} out"
    note(serving, number, "%s %s: status %d%s; %s", method, where, report.status, why, moved)
