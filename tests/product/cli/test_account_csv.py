"""Accounts as lines of a CSV file: what is written is read again, and no cell is a formula."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from api.cli.remote.account_csv import BadLine, read, write
from tests.kit.tables import table

RULES: dict[str, Any] = {"allow_destinations": None, "deny_destinations": None, "schedule": None, "quota": None}


def account(**fields: Any) -> dict[str, Any]:
    """As a response of the API has it."""
    return {
        "id": "acc_1",
        "username": "alice",
        "enabled": True,
        "plan": None,
        "expires_at": None,
        "proxies": {"all": True},
        "allow_clients": [],
        "limits": {"connections": None},
        "tags": [],
        "metadata": {},
        **RULES,
        **fields,
    }


def written(*accounts: dict[str, Any], metadata: tuple[str, ...] = ()) -> str:
    return "".join(write(accounts, metadata))


def bodies(text: str) -> list[dict[str, Any]]:
    return [line.body for line in read(text)]


def test_an_account_that_was_written_is_read_as_a_body_of_the_same() -> None:
    windows = [{"days": ["mon"], "from": "08:00", "to": "18:00"}]
    fields: dict[str, Any] = {
        "proxies": {"ids": ["prx_1", "prx_2"], "tags": ["eu"]},
        "limits": {"connections": 5, "bandwidth_in": 0},
        "quota": {"bytes": 1000, "period": "month"},
        "schedule": {"timezone": "Europe/Berlin", "windows": windows},
        "allow_destinations": ["*.example", "10.0.0.0/8"],
        "deny_destinations": [],
        "allow_clients": ["192.0.2.0/24"],
        "tags": ["a b", "c"],
        "metadata": {"customer.id": "4711"},
        "expires_at": "2030-01-01T00:00:00.000Z",
        "plan": "basic",
    }
    (body,) = bodies(written(account(**fields), metadata=("customer.id",)))
    assert body == {"id": "acc_1", "username": "alice", "enabled": True, **fields}


@table("value", ["=1+1", "+1", "-1", "@x", "\tx", "\r=x", "\n=x", "'=1", "''", "'", "\uff1d1", '"x', "a,b", "a;b"])
def test_no_cell_is_a_formula_and_reading_gives_the_text_again(value: str) -> None:
    text = written(account(username=value, tags=[value], metadata={"note": value}), metadata=("note",))
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    assert not [cell for cell in cells if cell[:1] in "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20" and cell]
    (body,) = bodies(text)
    assert (body["username"], body["metadata"]["note"]) == (value, value)
    assert body["tags"] == [value]


def test_a_text_that_only_begins_with_an_apostrophe_is_taken_as_it_is() -> None:
    assert bodies("username\n'tis\n") == [{"username": "'tis"}]


def test_an_empty_cell_says_nothing_and_null_is_null() -> None:
    assert bodies("username,plan,limits.connections,tags\nalice,,,\nbob,null,null,[]\n") == [
        {"username": "alice"},
        {"username": "bob", "plan": None, "limits": {"connections": None}, "tags": []},
    ]


@table(
    ("text", "line", "field"),
    [
        ("", 1, None),
        ("username,nonsense\na,b\n", 1, "nonsense"),
        ("username,username\na,b\n", 1, "username"),
        ("username,metadata.\na,b\n", 1, "metadata."),
        (f"username,password\na,pfc_{'x' * 40}\n", 2, "password"),
        ("username,plan\na,b\nc\n", 3, None),
        ("username,plan\na,b,c\n", 2, None),
        (f"username,password\na,{'x' * 128}\nb,{'x' * 129}\n", 3, "password"),
        ("username,enabled\na,maybe\n", 2, "enabled"),
        ("username,quota.bytes\na,1GB\n", 2, "quota.bytes"),
        ("username,quota.bytes\na,\u0661\n", 2, "quota.bytes"),
        ("username,schedule.windows\na,[\n", 2, "schedule.windows"),
        (f"username,schedule.windows\na,{'[' * 100_000}\n", 2, "schedule.windows"),
        ('username,plan\n"a\nb",x\nc,d,e\n', 4, None),
        ('username,plan\na,"b\n', 2, None),
    ],
)
def test_a_line_that_can_t_be_read_is_named_with_its_column(text: str, line: int, field: str | None) -> None:
    with pytest.raises(BadLine) as raised:
        list(read(text))
    assert (raised.value.line, raised.value.field) == (line, field)


def test_a_file_with_semicolons_between_columns_says_so() -> None:
    with pytest.raises(BadLine, match="separate columns with commas"):
        list(read("username;plan\na;basic\n"))


def test_lines_are_counted_as_an_editor_does_and_empty_ones_are_left_out() -> None:
    lines = list(read('\ufeffusername,metadata.note\r\na,"two\r\nlines"\r\n\r\n,\r\nb,x\r\n'))
    assert [(line.number, line.body["username"]) for line in lines] == [(2, "a"), (6, "b")]
