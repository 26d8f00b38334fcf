"""Lines of keys in TOML files, whatever a value goes on over."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from config.text.toml_positions import line_of, lines_of
from tests.kit.tables import table

FILE = '''# [server] is no table here
[server] # but here it is
port = 8080 # port = 1
"host" = "a # b = [c]"
list = [ # [x]
    "one", # port = 2
    "]",
]
text = """
port = 3
[proxy]
"""
tls.enabled = true

[auth.jwt]
access_token_ttl = 1
table = { inner = { deep = 1 } }
literal = \'\'\'
[metrics]\'\'\'
[[parents]]
name = "x"
'''


OF_FILE = [
    (("server",), 2),
    (("server", "port"), 3),
    (("server", "host"), 4),
    (("server", "list"), 5),
    (("server", "list", 1), 5),
    (("server", "text"), 9),
    (("server", "tls", "enabled"), 13),
    (("auth", "jwt", "access_token_ttl"), 16),
    (("auth", "jwt", "table", "inner", "deep"), 17),
    (("parents", "name"), 21),
    (("parents",), 20),
    (("proxy",), None),
    (("metrics", "publish"), None),
    (("server", "unsaid"), 2),
]
ARRAYS = """[[proxies]]
name = "a"
upstreams = [
  {host = "x"},
]
[proxies.auth]
username = "u"
[[proxies]]
name = "b"
[[proxies.accounts]]
username = "c"
[[proxies.accounts]]
username = "d"
[[proxies]]
[[proxies.accounts]]
username = "e"
"""


OF_ARRAYS = [
    (("proxies", 0, "name"), 2),
    (("proxies", 0, "upstreams", 0, "host"), 4),
    (("proxies", 0, "auth", "username"), 7),
    (("proxies", 1), 8),
    (("proxies", 1, "name"), 9),
    (("proxies", 1, "accounts", 1, "username"), 13),
    (("proxies", 2, "name"), 14),
    (("proxies", 2, "accounts", 0, "username"), 16),
    (("proxies", 2, "accounts", 1, "username"), 15),  # there is no second one: where they begin
    (("proxies", "name"), 2),
]
INLINE = """\
[[pools]]
name = "a"
upstreams = [
  { host = "h", auth = { username = "u" }, ports = [{ x = 1 }] },
  # one more
  { host = "i" }, { host = "j" },
]
check = { url = "x", of = [{}] }
"""


OF_INLINE = [
    (("pools", 0, "upstreams"), 3),
    (("pools", 0, "upstreams", 0, "auth", "username"), 4),
    (("pools", 0, "upstreams", 1, "host"), 6),
    (("pools", 0, "upstreams", 2), 6),
    (("pools", 0, "upstreams", 3), 3),  # there is none
    (("pools", 0, "check", "url"), 8),
]


@table(("text", "found"), [(FILE, OF_FILE), (ARRAYS, OF_ARRAYS), (INLINE, OF_INLINE)], ids=["file", "arrays", "inline"])
def test_a_key_has_the_line_that_it_begins_on(text: str, found: list[tuple[tuple[Any, ...], int | None]]) -> None:
    lines = lines_of(text)
    assert [(path, line_of(lines, path)) for path, _ in found] == found


@given(
    some.lists(
        some.sampled_from(['a = "[#"', "b = [\n1,\n2]", "c = '''\n'''", "# [x", "", '"d.e" = {f = "}"}', "g.h = 1"])
    )
)
def test_every_key_of_a_good_file_is_found(statements: list[str]) -> None:
    text = "\n".join(dict.fromkeys(statements))
    lines = lines_of(text)
    for key in tomllib.loads(text):
        line = line_of(lines, [key])
        assert line is not None
        assert text.splitlines()[line - 1].lstrip('"').startswith(key)
