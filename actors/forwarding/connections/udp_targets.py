"""The targets of one UDP association with the bytes of each, for its records and for live connections.

An association has one record for each target, so that each can be searched for. The first has the bytes of the control
connection, and of datagrams that could not be read, as well, so that the sum over the records is what was moved. From
the 257th target on all share one record.
"""

from __future__ import annotations

from actors.forwarding.protocols.commands import Report
from actors.forwarding.protocols.failures import Failure

TARGETS_MAX = 256
NAMED_MAX = 8
"""Targets that a live connection names."""
FURTHER = "further targets"
"""In place of a target: all those above `TARGETS_MAX`."""


class Share:
    """Of one target: bytes of datagrams to it and back, and why none could be sent."""

    __slots__ = ("bytes_in", "bytes_out", "failure", "left_from", "reached")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.reached = False
        self.left_from = ""
        """The address that datagrams have left from last, where the configuration gives one."""
        self.failure: Failure | None = None


class Targets:
    """In the order in which they were first sent to."""

    __slots__ = ("_further", "_shares")

    def __init__(self) -> None:
        self._shares: dict[bytes, Share] = {}
        self._further: Share | None = None

    def share(self, target: bytes) -> Share:
        """That of a target as `host:port`."""
        share = self._shares.get(target)
        if share is not None:
            return share
        if len(self._shares) < TARGETS_MAX:
            share = self._shares[target] = Share()
            return share
        if self._further is None:
            self._further = Share()
        return self._further

    def __str__(self) -> str:
        """For live connections: the first targets, and how many more there are."""
        named = ", ".join(target.decode("ascii") for target in list(self._shares)[:NAMED_MAX])
        more = len(self._shares) - NAMED_MAX
        return f"{named} and {more} more" if more > 0 else named

    @property
    def left_from(self) -> str:
        """For live connections: the address that datagrams to the first target have left from last."""
        return next((share.left_from for share in self._shares.values()), "")

    def reports(self, whole: Report) -> list[Report]:
        """One for each target. `whole` is that of the association: all its bytes, and why it ended."""
        named = [(target.decode("ascii"), share) for target, share in self._shares.items()]
        if self._further is not None:
            named.append((FURTHER, self._further))
        reports = [_report(whole, target, share) for target, share in named]
        if not reports:
            return [whole]
        rest_in = whole.bytes_in - sum(report.bytes_in for report in reports)
        rest_out = whole.bytes_out - sum(report.bytes_out for report in reports)
        first = reports[0]
        first.bytes_in += rest_in
        first.bytes_out += rest_out
        return reports


def _report(whole: Report, target: str, share: Share) -> Report:
    report = whole.copy()
    report.url, report.source_address = target, share.left_from
    report.bytes_in, report.bytes_out = share.bytes_in, share.bytes_out
    failure = None if share.reached else share.failure
    if failure is not None:
        report.status, report.reason = failure.status, failure.reason
        report.because(failure)
    return report
