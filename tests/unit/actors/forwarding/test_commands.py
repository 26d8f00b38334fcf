from __future__ import annotations

from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import (
    CloseClient,
    LeaveOrigin,
    Open,
    Report,
    ToClient,
    ToOrigin,
    Tunnel,
    Value,
)
from actors.forwarding.protocols.http.targets import parse_authority
from tests.kit.tables import table

REPORT = Report(
    b"GET", "u", 200, "a", "b", 1.0, 2.0, 3, 4, "c", "d", "e", "f", "g", "h", "i", "j", {"k": "v"}, "l", "m"
)


@table(
    "command",
    [
        ToClient(b"x"),
        ToOrigin(b"x"),
        Open(parse_authority(b"x:1", None), True, False, True, b"via"),
        LeaveOrigin(True, False),
        REPORT,
        Tunnel(REPORT),
        CloseClient(True),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_command_is_equal_to_one_that_is_made_of_its_values(command: Value) -> None:
    same = type(command)(*command.values())
    assert same == command
    assert hash(LeaveOrigin(True)) == hash(LeaveOrigin(True))
    assert repr(same) == repr(command)


def test_commands_of_two_kinds_or_with_other_values_differ() -> None:
    assert ToClient(b"x") != ToOrigin(b"x")
    assert ToClient(b"x") != ToClient(b"y")
    assert ToClient(b"x") != b"x"


def test_a_copy_of_a_report_goes_its_own_way() -> None:
    copy = REPORT.copy()
    assert copy == REPORT
    copy.because(failures.RESPONSE_TIMED_OUT)
    assert copy.detail == failures.RESPONSE_TIMED_OUT.detail
    assert copy != REPORT
