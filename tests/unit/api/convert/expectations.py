"""What becomes of each of the configurations in `configurations`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).with_name("configurations")
WHOLE = {"egress guard", "forwarded_for", "http_port"}
"""Remarks on no line."""

Lines = list[int | str]


@dataclass(frozen=True)
class Expected:
    """How many proxies and rules there are, and the lines in the report by what became of them."""

    proxies: int
    rules: int
    refuses: Lines = field(default_factory=list)
    accepted: Lines = field(default_factory=list, kw_only=True)
    lost: Lines = field(default_factory=list)
    differs: Lines = field(default_factory=list)
    unneeded: Lines = field(default_factory=list)


EXPECTED = {
    "3proxy-chroot.cfg": Expected(2, 2, [], [13], [10], [1, 2, 3, 4]),
    "3proxy-counters.cfg": Expected(1, 0, [5], [6, 7, 16], [9, 11], [4]),
    "3proxy-parents.cfg": Expected(3, 9, [9, 14, 16], [], [15], []),
    "3proxy-sample.cfg": Expected(2, 6, [5], [14, 15, 16, 28], [33], [3, 4, 6, 7, 8, 9]),
    "squid-accelerator.conf": Expected(0, 0, [], [1, 2], [], [3, 5]),
    "squid-allowlist.conf": Expected(1, 3),
    "squid-anonymous.conf": Expected(
        1,
        2,
        [],
        [10, 13],
        [11, 12],
        [8],
    ),
    "squid-cache-parent.conf": Expected(1, 3, [], [], [1], [6, 7]),
    "squid-default.conf": Expected(1, 4, [], [], [22], [1, 19, 23, 24, 25, 26, 27]),
    "squid-delay.conf": Expected(1, 2, [], [8], [5], [2, 3]),
    "squid-directory.conf": Expected(1, 1, [1, 3, 9], [], [], [2, 4, 8]),
    "squid-expressions.conf": Expected(1, 5, [11, 12, 13], [3]),
    "squid-filters.conf": Expected(2, 5, [5, 9, 14, 17], [1, 7, 8, 11, 12], [], [6, 10]),
    "squid-localnet.conf": Expected(2, 5, [], [], [], [13, 16]),
    "squid-many-parents.conf": Expected(1, 3, [], [3], [], [4, 10, 15]),
    "squid-one-parent.conf": Expected(1, 3),
    "squid-outgoing.conf": Expected(1, 3, [3, 4, 5], [10]),
    "squid-passwords-or-office.conf": Expected(1, 4, ["passwords:2", "passwords:3", 7], [], [2, 6]),
    "squid-passwords.conf": Expected(1, 1, ["passwords:2", "passwords:3"], [], [], [2, 3, 4]),
    "squid-ports.conf": Expected(2, 4),
    "squid-working-hours.conf": Expected(1, 5, [], [], [5]),
}
