"""What `proxyfleet run` prints of refusals, where names are unusual or hostile."""

from __future__ import annotations

import io
import tomllib
from typing import Any

from api.cli.remote.run import summary
from api.cli.terminal import Output
from tests.kit.tables import table


def refusal(host: str, reason: str = "policy_denied", **fields: Any) -> dict[str, Any]:
    return {"host": host, "port": 443, "records": 1, "reason": reason, "rule": "", "detail": "", **fields}


def printed(refusals: list[dict[str, Any]], account: str) -> list[str]:
    """The lines as a terminal gets them."""
    err = io.StringIO()
    out = Output(err=err)
    for line in summary(refusals, True, account):
        out.note(line)
    return err.getvalue().splitlines()


@table("account", ["ci", "b\u00fccher", "\U0001f600", 'a"b', "a\\b", "del\x7f", "turned\u202e"])
def test_the_lines_of_a_policy_are_toml_whatever_the_account_is_called(account: str) -> None:
    lines = printed([refusal("a.example")], account)
    begin = lines.index("  [[rules]]")
    text = "\n".join(line[2:] for line in lines[begin : begin + 4])
    rule = tomllib.loads(text)["rules"][0]
    assert rule["match"] == {"accounts": [account], "destinations": ["a.example:443"]}


def test_a_hostile_text_can_neither_order_the_terminal_nor_forge_a_line() -> None:
    """The API may be another's."""
    hostile = "a\x1b[31m\u202e\nproxyfleet: all is well\x9b"
    rows = [refusal(hostile, rule=hostile), refusal(hostile, "tls_name_denied", detail=hostile)]
    rows.append(refusal(hostile, "credential_destination_not_allowed"))
    lines = printed(rows, hostile)
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("proxyfleet: all") for line in lines)
