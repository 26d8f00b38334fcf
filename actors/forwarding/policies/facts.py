"""What a rule may ask about a request.

Paths of URLs are compared with unreserved characters decoded and dot segments removed (RFC 3986 6.2.2). Servers
differ in how they read some paths. `readings` returns what a path may mean: one reading for most; a strict and a
lenient one where servers differ about parameters of segments (`;x=1`), about empty segments (`//`) and about escapes of
characters that need none (`%3A` for `:`, which RFC 3986 doesn't take for the same, and file servers do); none for a
path that has no certain meaning, such as one with an encoded slash.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

from actors.forwarding.protocols.commands import NO_PARAMS
from config.net.addresses import Address, plain

_ENCODED = re.compile(r"%([0-9A-Fa-f]{2})")
_UNCERTAIN = re.compile(r"%(?![0-9A-Fa-f]{2})|%(?:2[Ff]|5[Cc]|25|[01][0-9A-Fa-f]|7[Ff])|[^\x21-\x7e]|\\")
"""An incomplete escape; an encoded slash, backslash, percent sign or control character; what no path has."""
_UNCERTAIN_QUERY = re.compile(r"%(?![0-9A-Fa-f]{2})|%(?:[01][0-9A-Fa-f]|7[Ff])|[^\x21-\x7e]")
"""Servers leave out what it matches, end there, or refuse it."""
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PLAIN = re.compile(r"(?:/(?!\.)[A-Za-z0-9\-._~!$&'()*+,=:@]+)*+/?")
"""A path that is its own and only reading: no escapes, parameters, empty or dot segments."""
_MEANT: Final = frozenset(map(chr, range(0x21, 0x7F))) - frozenset("%/\\?#;") - _UNRESERVED
"""What the lenient reading decodes beside those: neither what divides a URL nor what has no certain meaning."""
_VISIBLE: Final = "".join(map(chr, range(0x21, 0x7F)))
_PARAMETERS = re.compile(r"(?:;|%3[Bb])[^/]*")
_SLASHES = re.compile(r"//+")


def readings(path: str) -> tuple[str, ...]:
    """What `path` (without its query) may mean; empty when that is uncertain."""
    if _PLAIN.fullmatch(path):
        return (path or "/",)
    if _UNCERTAIN.search(path) or not _is_utf8(path):
        return ()
    decoded = normal_escapes(path)
    strict = without_dots(decoded)
    lenient = without_dots(_SLASHES.sub("/", _PARAMETERS.sub("", _all_escapes(decoded))))
    return (strict,) if strict == lenient else (strict, lenient)


def normal_escapes(path: str) -> str:
    """`path` with unreserved characters decoded and the other escapes in upper case."""
    return _ENCODED.sub(_decoded, path)


def _all_escapes(path: str) -> str:
    """`path` as servers read it that take an escape for its character wherever they can."""
    return _ENCODED.sub(_meant, path) if "%" in path else path


def _meant(match: re.Match[str]) -> str:
    char = chr(int(match[1], 16))
    return char if char in _MEANT else match[0]


def _decoded(match: re.Match[str]) -> str:
    char = chr(int(match[1], 16))
    return char if char in _UNRESERVED else match[0].upper()


def _is_utf8(path: str) -> bool:
    """Whether escapes of octets above 127 are UTF-8 in its shortest form."""
    try:
        _ENCODED.sub(lambda match: chr(int(match[1], 16)), path).encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def without_dots(path: str) -> str:
    """`path` without `.` and `..` segments (RFC 3986 5.2.4); it begins with a slash."""
    if "/." not in path:
        return path or "/"
    resolved: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del resolved[-1:]
        elif segment != ".":
            resolved.append(segment)
    if segments[-1] in (".", ".."):
        resolved.append("")
    return "/" + "/".join(resolved)


def query_reading(query: str) -> str | None:
    """What a query means as rules compare it: all escapes decoded, once; None when that is uncertain."""
    return None if _UNCERTAIN_QUERY.search(query) else unquote(query, "latin-1")


def _matches(pieces: list[str], text: str) -> bool:
    """Whether `text` is these pieces with anything in between; linear in its length for each of them."""
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return text == first
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    start, end = len(first), len(text) - len(last)
    for piece in pieces[1:-1]:
        start = text.find(piece, start, end)
        if start < 0:
            return False
        start += len(piece)
    return True


class PathPattern:
    """One pattern: `*` stands for any characters, slashes as well, or for none.

    Behind a `?` it is for queries, which don't matter to one without.

    It is for strict readings, `lenient` is what it is for lenient ones: itself unless it has escapes these decode.
    """

    __slots__ = ("_pieces", "_query", "exact", "lenient", "prefix")

    def __init__(self, written: str) -> None:
        """`written` is the text of a rule."""
        path, mark, query = quote(written, safe=_VISIBLE).partition("?")
        self._query = [unquote(each, "latin-1") for each in query.split("*")] if mark else None
        self._set([normal_escapes(each) for each in path.split("*")])
        decoded = [_all_escapes(each) for each in self._pieces]
        self.lenient = self
        if decoded != self._pieces:
            self.lenient = PathPattern("/")
            self.lenient._set(decoded)

    def _set(self, pieces: list[str]) -> None:
        self._pieces = pieces
        self.prefix = pieces[0]
        """What a path that matches begins with."""
        self.exact = len(pieces) == 1

    @property
    def is_prefix(self) -> bool:
        """Whether every path that begins with `prefix` matches."""
        return len(self._pieces) == 2 and not self._pieces[1]

    @property
    def is_for_queries(self) -> bool:
        """Whether a query is needed, too."""
        return self._query is not None

    def matches(self, path: str) -> bool:
        """Whether it holds for a strict reading of a path."""
        return _matches(self._pieces, path)

    def query_matches(self, query: str | None, otherwise: bool) -> bool:
        """Whether it holds for what follows the `?`, None without one; `otherwise` where its meaning is uncertain."""
        if self._query is None:
            return True
        if query is None:
            return False
        reading = query_reading(query)
        return otherwise if reading is None else _matches(self._query, reading)


class Facts:
    """One request. `host` is a name as it was asked for, or an address, with `literal` then.

    `method` is empty for a tunnel, an association and all else that is not plain HTTP; `path` is that of the URL, with
    its query. `user` is the account's name, empty without one, `tags` are those of the account, `params` the
    parameters of the user name. `listen_port` is the port of the proxy that the client came to. `now` is Unix seconds:
    a request is judged at one moment.
    """

    __slots__ = ("_readings", "address", "client_ip", "host", "listen_port", "literal", "method", "name", "now",
    "params", "path", "port", "tags", "user")  # fmt: skip

    def __init__(
        self,
        host: str,
        port: int,
        literal: bool,
        client_ip: str,
        now: float,
        user: str = "",
        tags: tuple[str, ...] = (),
        method: str = "",
        path: str = "",
        params: Mapping[str, str] = NO_PARAMS,
        listen_port: int = 0,
    ) -> None:
        self.host = host
        self.port = port
        self.literal = literal
        self.client_ip = client_ip
        self.now = now
        self.user = user
        self.tags = tags
        self.method = method
        self.path = path
        self.params = params
        self.listen_port = listen_port
        self.name = host.lower().removesuffix(".")
        """The name of the target as entries are compared with it: lower case, no dot at the end."""
        self.address: Address | None = plain(host) if literal else None
        """The address of the target where it was asked for by that."""
        self._readings: tuple[str, ...] | None = None

    @property
    def client(self) -> Address:
        """The client's address."""
        return plain(self.client_ip)

    @property
    def query(self) -> str | None:
        """What follows the `?` of the URL, None without one."""
        _path, mark, query = self.path.partition("?")
        return query if mark else None

    @property
    def readings(self) -> tuple[str, ...]:
        """What the path may mean (`paths.readings`)."""
        if self._readings is None:
            self._readings = readings(self.path.partition("?")[0] or "/")
        return self._readings

    def __repr__(self) -> str:
        return f"<Facts: {self.user or self.client_ip} {self.method} {self.host}:{self.port} {self.path!r}>"
