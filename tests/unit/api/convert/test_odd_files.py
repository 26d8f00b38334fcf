"""Whatever a file has, it is converted to a document that an import takes, or lines are reported; nothing fails."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from api.import_export.convert import Converted, converted
from api.import_export.convert.squid import TABLE as DIRECTIVES
from api.import_export.convert.squid_acls import KINDS
from api.import_export.convert.threeproxy import TABLE as COMMANDS
from tests.kit.tables import table

WORDS = [
    "allow", "deny", "all", "!all", "a", "b", "!b", "localhost", "none", "", "0", "1", "-1", "65536", "3128",
    "10.0.0.0/8", "10.0.0.1", "::1", "[::1]:80", "*", "*:3128", "localhost:3128", ".example.com", "example.com",
    "*.example.com", "-i", "-n", "--", "REQUIRED", "GET", "CONNECT", "443", "1-65535", "0-0", "MTWHF",
    "9:00-17:00", "99:99-99:99", "^/a/", "^http://a/b", "(", "[", "\\", "a|b", "(^|\\.)a\\.example$",
    "\"missing\"", "\"", "parent", "sibling", "0", "login=a:b", "login=:", "login=a:", "name=", "name=a",
    "weight=0", "tls", "round-robin", "basic", "program", "/bin/basic_ncsa_auth", "on", "off", "delete", "X-A",
    "Via", "All", "Host", "%un", "é", "x" * 300, "a\tb", "-p80", "-p0", "-i::1", "-e1.2.3.4", "-H", "strong",
    "iponly", "a:CL:b", "a:CL:", ":CL:x", "a", "x:CR:$1$", "1000", "500", "socks5", "http", "0.0.0.0", "HTTP",
    "UDPASSOC", "1-5", "08:00:00-17:00:00", "$missing", "8000/8000", "none/none", "second", "seconds",
]  # fmt: skip
word = st.one_of(st.sampled_from(WORDS), st.text('ab.:/-*!"$ ', max_size=6))


def texts(names: list[str]) -> st.SearchStrategy[str]:
    line = st.builds(lambda name, words: " ".join([name, *words]), st.sampled_from(names), st.lists(word, max_size=6))
    return st.lists(line, max_size=12).map("\n".join)


ACLS = st.builds(
    lambda name, kind, words: " ".join(["acl", name, kind, *words]),
    st.sampled_from(["a", "b"]),
    st.sampled_from([*KINDS, "any-of", "unknown"]),
    st.lists(word, max_size=4),
)


def convert_text(text: str, kind: Any) -> Converted:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        file.write_text(text)
        return converted(file, kind)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(ACLS, max_size=6).map("\n".join),
    texts([*DIRECTIVES, "odd"]),
)
def test_any_lines_of_squid(acls: str, lines: str) -> None:
    assert convert_text(f"{acls}\n{lines}\nhttp_access deny a !b\nhttp_port 1\n", "squid").problems == []


@settings(max_examples=50, deadline=None)
@given(texts([*COMMANDS, "end", "odd"]))
@example("auth strong\nallow :")
@example("auth strong\ndeny tag:ci\nallow *")
def test_any_lines_of_3proxy(lines: str) -> None:
    assert convert_text(f"{lines}\nproxy\n", "3proxy").problems == []


@table("content", [b"", b"\x00\xff\xfe", b"http_port", b"\\\n\\\n", b"acl\nhttp_access\n" * 10])
@table("kind", ["squid", "3proxy"])
def test_files_without_sense(tmp_path: Path, content: bytes, kind: Any) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert converted(file, kind).problems == []
