"""The first message of a TLS handshake: which name, protocols and version a client offers, read without decryption.

Pure: nothing here waits or sends. After RFC 8446 (sections without a number of their own are of it) and RFC 6066.

```
record, 5.1:        | 22 | 3 | any | length, 2 | fragment, 1 to 2^14 octets |    a message may be in many of them
message, 4:         | 1 | length, 3 | body |
body, 4.1.2:        | legacy_version, 2 | random, 32 | session id, <0..32> | cipher suites, <2..2^16-2> |
                    | compression methods, <1..2^8-1> | extensions, <..2^16-1>, or nothing |
extension, 4.2:     | type, 2 | length, 2 | value |

type  value
   0  server_name (RFC 6066 section 3)          | length, 2 | 0 | length, 2 | host name, 0 to 255 octets |
  16  ALPN (RFC 7301 section 3.1)               | length, 2 | { length, 1 | protocol } ... |
  41  pre_shared_key (4.2.11)                   the last one; its value is not read
  43  supported_versions (4.2.1)                | length, 1 | { version, 2 } ... |
```

OpenSSL's server is the reference: what it refuses because of one of these fields is malformed here, too. These are
refused here only, since no client sends them and other servers read them in another way: a second extension of any
type, empty handshake records, records of another type within the message, a message over `HELLO_MAX`, and octets of a
further message in its last record. Where an SSL 3.0 hello has extensions, they mean nothing, as they do to OpenSSL. A
hello in the form of SSLv2, which OpenSSL still reads and which can't have a name, is no TLS here.

What a hello can't show: a client that resumes a session of TLS 1.2 or before may send another name than the one that
the session was made for, and OpenSSL's server then acts on the session's.
"""

from __future__ import annotations

from typing import Final, NamedTuple

NOT_TLS: Final = "not_tls"
MALFORMED: Final = "malformed"

HELLO_MAX: Final = 16_384
"""Octets of a message with its first four, all records together. A hello with post-quantum shares has some 1,800."""

NAME_MAX: Final = 255
"""Characters of `ClientHello.name`: a longer one has octets that no host name has, and is cut off."""

ALPN_MAX: Final = 255
"""Characters of `ClientHello.alpn`."""

UNRECOGNIZED_NAME_ALERT: Final = b"\x15\x03\x03\0\x02\x02\x70"
"""A record with the fatal alert `unrecognized_name` (6.2; RFC 6066 section 3), which may come before a ServerHello."""

_CHANGE_CIPHER_SPEC, _ALERT, _HANDSHAKE, _APPLICATION_DATA = 20, 21, 22, 23
_MAJOR = 3
_RECORD_HEADER = 5
_FRAGMENT_MAX = 1 << 14
_SEALED_MAX = _FRAGMENT_MAX + 2048
"""Octets of a protected record: 256 more than a fragment in TLS 1.3 (5.2), 2,048 more before (RFC 5246 6.2.3)."""

_MESSAGE_HEADER = 4
_CLIENT_HELLO, _SERVER_HELLO = 1, 2
_RANDOM_END = _MESSAGE_HEADER + 2 + 32
_SERVER_NAME, _ALPN, _PRE_SHARED_KEY, _SUPPORTED_VERSIONS = 0, 16, 41, 43
_SSL3, _TLS12, _TLS13 = 0x0300, 0x0303, 0x0304
_DRAFTS = 0x7F
"""The first octet of a draft of TLS 1.3 (RFC 8446 4.2.1 in its drafts): its servers ask for a second hello as well."""
_VERSIONS: Final = {0x0300: "ssl3", 0x0301: "1.0", 0x0302: "1.1", 0x0303: "1.2", 0x0304: "1.3"}
_RETRY_RANDOM: Final = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""Of a ServerHello that is a HelloRetryRequest (4.1.3)."""
_SERVER_START_MAX = 1024
"""Octets within which a server's first message has begun, even in records of one octet."""


class BadHello(Exception):
    """These octets begin no ClientHello; the text says why. `kind` is `NOT_TLS` or `MALFORMED`."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(problem)
        self.kind = kind


class ClientHello(NamedTuple):
    """What a client offers. Texts are printable ASCII: other octets, spaces and `\\` are written as `\\x20`."""

    name: str
    """The host name as sent, in A-labels, but in lower case and without a final dot (two are kept: they end no name);
    `""` without one."""

    alpn: str
    """The protocols, joined by commas: as many as fit into `ALPN_MAX` characters. `""` without any."""

    version: str
    """The highest one: `1.3`, `1.2`, `1.1`, `1.0`, `ssl3`."""

    size: int
    """Octets from the beginning of the stream to the end of the record that the hello ends with."""


class HelloReader:
    """Reads a ClientHello from the pieces that a stream comes in; the work is linear in their length and number."""

    __slots__ = ("_hello", "_message", "_record", "_size", "data")

    def __init__(self) -> None:
        self.data = bytearray()
        """All that was fed, as it came."""
        self._message = bytearray()
        """The fragments so far; in one piece, since records of one octet would else take fifty octets each."""
        self._record = 0
        """Where the next record begins."""
        self._size = 0
        """Octets of the message; 0 before they are known."""
        self._hello: ClientHello | None = None

    def feed(self, data: bytes) -> ClientHello | None:
        """The hello; None when more is to come. Raises `BadHello` with the first octet that can't be one's."""
        self.data += data
        while self._hello is None:
            if not self._take_record():
                return None
            if len(self._message) == self._size:
                self._hello = _parse(bytes(self._message), self._record)
        return self._hello

    def _take_record(self) -> bool:
        """Append the next record's fragment to the others; False when it isn't here as a whole."""
        start = self._record
        have = len(self.data) - start
        first = bytes(self.data[start : start + _RECORD_HEADER + _MESSAGE_HEADER])
        if have > 0 and first[0] != _HANDSHAKE:
            raise self._other(f"a record of type {first[0]} is where a handshake record would be")
        if have > 1 and first[1] != _MAJOR:
            raise self._other(f"a record is of version {first[1]}.x, not 3.x")
        if have < _RECORD_HEADER:
            return False
        length = _u16(first, 3)
        if not 0 < length <= _FRAGMENT_MAX:
            raise _malformed(f"a handshake record has {length} octets, not 1 to {_FRAGMENT_MAX}")
        if self._size == 0:
            self._begin_message(first[_RECORD_HEADER : _RECORD_HEADER + length])
        if self._size and len(self._message) + length > self._size:
            raise _malformed("the record that it ends with has octets of a further message")
        if have < _RECORD_HEADER + length:
            return False
        begin = start + _RECORD_HEADER
        self._message += self.data[begin : begin + length]
        self._record = begin + length
        return True

    def _begin_message(self, more: bytes) -> None:
        """Check type and length of the message as soon as they are here; `more` follows what was taken."""
        header = bytes(self._message) + more
        if header and header[0] != _CLIENT_HELLO:
            raise _malformed(f"the first handshake message is of type {header[0]}, no ClientHello")
        if len(header) >= _MESSAGE_HEADER:
            size = _MESSAGE_HEADER + (header[1] << 16 | _u16(header, 2))
            if not _RANDOM_END < size <= HELLO_MAX:
                raise _malformed(f"the message has {size} octets, not {_RANDOM_END + 1} to {HELLO_MAX}")
            self._size = size

    def _other(self, problem: str) -> BadHello:
        """For what is no handshake record: the first one shows that it isn't TLS at all."""
        return BadHello(MALFORMED if self._record else NOT_TLS, problem)


def _malformed(problem: str) -> BadHello:
    return BadHello(MALFORMED, problem)


def _u16(data: bytes, at: int) -> int:
    return data[at] << 8 | data[at + 1]


def _parse(message: bytes, size: int) -> ClientHello:
    at = _extensions_start(message)
    version = _u16(message, _MESSAGE_HEADER)
    if version < _SSL3:
        raise _malformed(f"legacy_version is 0x{version:04x}")
    name = alpn = ""
    offered = 0
    end = len(message)
    seen: set[int] = set()
    while at < end:
        start = at + 4
        if start > end:
            raise _malformed("an extension is cut off")
        kind = _u16(message, at)
        at = start + _u16(message, at + 2)
        if at > end:
            raise _malformed(f"extension {kind} is longer than all of them")
        if kind in seen:
            raise _malformed(f"extension {kind} is there twice")
        seen.add(kind)
        if kind == _SERVER_NAME:
            name = _server_name(message[start:at])
        elif kind == _ALPN:
            alpn = _protocols(message[start:at])
        elif kind == _SUPPORTED_VERSIONS:
            offered = _highest(message[start:at])
        elif kind == _PRE_SHARED_KEY and at < end:
            raise _malformed("pre_shared_key is not the last extension")
    if version == _SSL3:
        if offered:
            raise _malformed("legacy_version is SSL 3.0 where supported_versions says more")
        return ClientHello("", "", _VERSIONS[_SSL3], size)
    return ClientHello(name, alpn, _VERSIONS[offered or min(version, _TLS12)], size)


def _extensions_start(message: bytes) -> int:
    """Where the first extension is; the end of the message without any."""
    end = len(message)
    length = message[_RANDOM_END]
    at = _RANDOM_END + 1 + length
    if length > 32 or at + 2 > end:
        raise _malformed(f"the session id of {length} octets is longer than 32 octets or the message")
    length = _u16(message, at)
    at += 2 + length
    if length == 0 or length & 1 or at + 1 > end:
        raise _malformed(f"the list of cipher suites has {length} octets: none, half a suite, or more than the message")
    length = message[at]
    at += 1 + length
    if at > end or 0 not in message[at - length : at]:
        raise _malformed("the compression methods don't have the null method or are longer than the message")
    if at == end:
        return end
    if at + 2 > end or at + 2 + _u16(message, at) != end:
        raise _malformed("the extensions don't end with the message")
    return at + 2


def _server_name(value: bytes) -> str:
    """The only name there may be in the list: OpenSSL takes no second one, whatever its type."""
    size = len(value)
    if size < 5 or _u16(value, 0) != size - 2 or value[2] != 0 or _u16(value, 3) != size - 5:
        raise _malformed("server_name is not a list of one host_name")
    if size > 5 + 255:
        raise _malformed("the host name is over 255 octets")
    name = value[5:]
    if 0 in name:
        raise _malformed("the host name has a NUL")
    if name.endswith(b".") and not name.endswith(b".."):  # two of them end no name
        name = name[:-1]
    return _printable(name.lower())[:NAME_MAX]


def _protocols(value: bytes) -> str:
    end = len(value)
    if end < 4 or _u16(value, 0) != end - 2:
        raise _malformed("ALPN is not a list of protocols")
    joined = ""
    at = 2
    while at < end:
        start = at + 1
        at = start + value[at]
        if at == start or at > end:
            raise _malformed("a protocol of ALPN is empty or longer than the list")
        protocol = _printable(value[start:at]).replace(",", "\\x2c")
        longer = f"{joined},{protocol}" if joined else protocol
        if len(longer) <= ALPN_MAX:
            joined = longer
    return joined


def _highest(value: bytes) -> int:
    """The highest version that is known; 0 without one (GREASE, RFC 8701)."""
    size = len(value)
    if size < 3 or value[0] != size - 1 or not size & 1:
        raise _malformed("supported_versions is not a list of versions")
    highest = 0
    for at in range(1, size, 2):
        version = _u16(value, at)
        if version >> 8 == _DRAFTS:
            version = _TLS13
        if version > highest and version in _VERSIONS:
            highest = version
    return highest


def _printable(octets: bytes) -> str:
    text = octets.decode("latin-1")
    if text.isascii() and text.isprintable() and " " not in text and "\\" not in text:
        return text
    return "".join(chr(each) if 0x20 < each < 0x7F and each != 0x5C else f"\\x{each:02x}" for each in octets)


def is_retry_request(data: bytes) -> bool | None:
    """Whether a server's stream begins with a HelloRetryRequest (4.1.4): the client then sends a second ClientHello.

    None when more octets are needed. Alerts that are warnings, which a server may send first, are skipped.
    """
    begin = bytearray()
    at = 0
    while at + _RECORD_HEADER <= len(data) and at < _SERVER_START_MAX:
        start = at + _RECORD_HEADER
        at = start + _u16(data, at + 3)
        if data[start - 4] != _MAJOR:
            return False
        if data[start - 5] == _HANDSHAKE:
            begin += data[start:at]
            if begin and begin[0] != _SERVER_HELLO:
                return False
            if len(begin) >= _RANDOM_END:
                return bytes(begin[_MESSAGE_HEADER + 2 : _RANDOM_END]) == _RETRY_RANDOM
        elif data[start - 5] != _ALERT or data[start : start + 1] not in (b"", b"\x01"):
            return False
    return False if at >= _SERVER_START_MAX or data[at : at + 1] not in (b"", b"\x15", b"\x16") else None


class HandshakeWatch:
    """Follows the records that a client sends behind its hello, until a further handshake record begins.

    A client sends none before the server has responded, only change_cipher_spec (appendix D.4) and early data (4.2.10);
    after a HelloRetryRequest such a record is its second hello.
    """

    __slots__ = ("_found", "_header", "_left")

    def __init__(self) -> None:
        self._header = b""
        self._left = 0
        self._found = False

    def feed(self, data: bytes) -> int:
        """Where in `data` a record begins that is of the handshake, or none; -1 when all of `data` may be passed on.

        After such a record has begun nothing more may be passed on: 0.
        """
        at = 0 if self._found else self._begin(data)
        self._found = at >= 0
        return at

    def _begin(self, data: bytes) -> int:
        at, end = 0, len(data)
        while True:
            skipped = min(self._left, end - at)
            self._left -= skipped
            at += skipped
            if at == end:
                return -1
            if not self._header and data[at] not in (_CHANGE_CIPHER_SPEC, _ALERT, _APPLICATION_DATA):
                return at
            taken = min(_RECORD_HEADER - len(self._header), end - at)
            self._header += data[at : at + taken]
            if len(self._header) > 1 and self._header[1] != _MAJOR:
                return at
            at += taken
            if len(self._header) == _RECORD_HEADER:
                self._left = _u16(self._header, 3)
                if self._left > _SEALED_MAX:
                    return at - taken
                self._header = b""
