"""Files of lists that have their entries themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.lists.compiled import CompiledList
from actors.lists.files import compile_entries, file_of_entries, remove_outdated


def test_the_same_entries_are_compiled_once(tmp_path: Path) -> None:
    folder = tmp_path / "lists"
    name = compile_entries(folder, "list_1", "domains", ["example.com"])
    first = CompiledList(folder / name)
    assert name == file_of_entries("list_1", "domains", ["example.com"])
    assert compile_entries(folder, "list_1", "domains", ["example.com"]) == name
    assert CompiledList(folder / name).identity == first.identity
    assert first.by_name("www.example.com") == "example.com"


def test_another_content_has_another_file(tmp_path: Path) -> None:
    names = {
        compile_entries(tmp_path, "list_1", "domains", ["example.com"]),
        compile_entries(tmp_path, "list_1", "domains", ["example.com", "example.net"]),
        compile_entries(tmp_path, "list_1", "networks", ["192.0.2.0/24"]),
        compile_entries(tmp_path, "list_2", "domains", ["example.com"]),
    }
    assert len(names) == len(list(tmp_path.iterdir())) == 4
    kept = file_of_entries("list_1", "networks", ["192.0.2.0/24"])
    remove_outdated(tmp_path, "list_1", [kept])
    assert {each.name for each in tmp_path.iterdir()} == {kept, file_of_entries("list_2", "domains", ["example.com"])}


def test_a_damaged_file_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / compile_entries(tmp_path, "list_1", "domains", ["example.com"])
    path.write_bytes(path.read_bytes()[:-1])
    compile_entries(tmp_path, "list_1", "domains", ["example.com"])
    assert CompiledList(path).by_name("example.com") == "example.com"


def test_an_entry_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a domain"):
        compile_entries(tmp_path, "list_1", "domains", ["192.0.2.1"])
    assert list(tmp_path.iterdir()) == []
