"""What becomes of each of the configurations in `configurations`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).with_name("configurations")
Lines = list[int | str]


@dataclass(frozen=True)
class Expected:
    """How many proxies and rules there are, and the lines in the report by what became of them."""

    proxies: int
    rules: int
    refuses: Lines = field(default_factory=list)
    accepted: Lines = field(default_factory=list)
    lost: Lines = field(default_factory=list)
    differs: Lines = field(default_factory=list)
    unneeded: Lines = field(default_factory=list)


EXPECTED = {
    "3proxy-chroot.cfg": Expected(2, 2, lost=[13], differs=[10], unneeded=[1, 2, 3, 4]),
    "3proxy-parents.cfg": Expected(3, 14, refuses=[1, 2, 9, 11, 14, 16], differs=[15]),
    "3proxy-sample.cfg": Expected(2, 6, refuses=[5], lost=[14, 15, 16, 28], differs=[33], unneeded=[3, 4, 6, 7, 8, 9]),
    "squid-allowlist.conf": Expected(1, 4),
    "squid-anonymous.conf": Expected(1, 2, lost=[8, 10, 11, 12, 13]),
    "squid-default.conf": Expected(1, 4, lost=[19], differs=[22], unneeded=[1, 23, 24, 25, 26, 27]),
    "squid-directory.conf": Expected(1, 1, refuses=[1, 3, 9], unneeded=[2, 4, 8]),
    "squid-filters.conf": Expected(1, 6, refuses=[5, 9, 14, 17], lost=[1, 3, 7, 8, 11, 12], unneeded=[6, 10, 13]),
    "squid-localnet.conf": Expected(2, 6, unneeded=[13, 16]),
    "squid-many-parents.conf": Expected(1, 3, lost=[3], unneeded=[4, 10, 15]),
    "squid-one-parent.conf": Expected(1, 3),
    "squid-outgoing.conf": Expected(1, 3, lost=[3, 4, 10], differs=[5]),
    "squid-passwords-or-office.conf": Expected(
        1, 4, refuses=["passwords:2", "passwords:3", 7], differs=[6], unneeded=[2]
    ),
    "squid-passwords.conf": Expected(1, 1, refuses=["passwords:2", "passwords:3"], unneeded=[2, 3, 4]),
    "squid-working-hours.conf": Expected(1, 3, refuses=[7, 8], differs=[5]),
}
