"""What request and response smugglers do: named messages, and ways of spoiling good ones.

The named ones are checked by the differential test and are the seeds of the fuzz corpus; the strategies spoil good
messages in places and ways drawn at random.
"""

from __future__ import annotations

from hypothesis import strategies as st

GET = b"GET http://a.example/x?y=1 HTTP/1.1\r\nHost: a.example\r\n\r\n"
_POST = b"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n"
_CHUNKS = b"5\r\nhello\r\n0\r\n\r\n"
_NEXT = b"GET http://a.example/next HTTP/1.1\r\nHost: a.example\r\n\r\n"


def _post(*fields: bytes, body: bytes = _CHUNKS) -> bytes:
    return _POST + b"".join(field + b"\r\n" for field in fields) + b"\r\n" + body + _NEXT


def _chunked(body: bytes) -> bytes:
    return _post(b"Transfer-Encoding: chunked", body=body)


def _start(line: bytes) -> bytes:
    return line + b"\r\nHost: a.example\r\n\r\n" + _NEXT


LENGTHS = {
    "plus": b"+5",
    "minus": b"-5",
    "minus zero": b"-0",
    "underscore": b"0_5",
    "hex": b"0x5",
    "octal": b"0o5",
    "leading zeros": b"005",
    "fraction": b"5.0",
    "exponent": b"5e0",
    "list of equals": b"5, 5",
    "list of others": b"5, 6",
    "list with empty": b"5,",
    "empty": b"",
    "space within": b"1 0",
    "trailing space": b"5 ",
    "leading tab": b"\t5",
    "trailing tab": b"5\t",
    "vertical tab": b"\x0b5",
    "form feed": b"5\x0c",
    "no-break space": b"\xa05",
    "next line": b"5\x85",
    "file separator": b"5\x1c",
    "NUL": b"5\x00",
    "Arabic digit": "\u0665".encode(),
    "full-width digit": "\uff15".encode(),
    "superscript in Latin-1": b"\xb2",
    "quoted": b'"5"',
    "over 64 bits": b"18446744073709551621",
    "over 63 bits": b"9223372036854775813",
    "many digits": b"0" * 100 + b"5",
    "parameter": b"5;x=1",
}
CODINGS = {
    "capitals": b"CHUNKED",
    "mixed": b"cHuNkEd",
    "trailing space": b"chunked ",
    "trailing tab": b"chunked\t",
    "leading tab": b"\tchunked",
    "two spaces": b"  chunked",
    "vertical tab": b"\x0bchunked",
    "form feed behind": b"chunked\x0c",
    "NUL behind": b"chunked\x00",
    "no-break space": b"\xa0chunked",
    "next line": b"chunked\x85",
    "quoted": b'"chunked"',
    "parameter": b"chunked;q=1",
    "prefix": b"xchunked",
    "suffix": b"chunkedx",
    "short": b"chunk",
    "identity": b"identity",
    "chunked, identity": b"chunked, identity",
    "identity, chunked": b"identity, chunked",
    "chunked, chunked": b"chunked, chunked",
    "gzip, chunked": b"gzip, chunked",
    "chunked, gzip": b"chunked, gzip",
    "comma before": b",chunked",
    "comma behind": b"chunked,",
    "empty": b"",
    "space instead of comma": b"gzip chunked",
    "long s": b"chunked\xc5\xbf",
    "Kelvin sign": "chun\u212aed".encode(),
}
CHUNKED_BODIES = {
    "extension": b"5;a=b\r\nhello\r\n0\r\n\r\n",
    "extension without value": b"5;a\r\nhello\r\n0\r\n\r\n",
    "quoted extension": b'5;a="b;c"\r\nhello\r\n0\r\n\r\n',
    "open quote": b'5;a="b\r\nhello\r\n0\r\n\r\n',
    "quoted CRLF": b'5;a="\r\n"\r\nhello\r\n0\r\n\r\n',
    "escaped quote": b'5;a="\\""\r\nhello\r\n0\r\n\r\n',
    "empty extension": b"5;\r\nhello\r\n0\r\n\r\n",
    "two extensions": b"5;a;b=c\r\nhello\r\n0\r\n\r\n",
    "space before extension": b"5 ;a\r\nhello\r\n0\r\n\r\n",
    "space behind semicolon": b"5; a\r\nhello\r\n0\r\n\r\n",
    "bad extension name": b"5;a b\r\nhello\r\n0\r\n\r\n",
    "bare LF in extension": b"5;a\nhello\r\n0\r\n\r\n",
    "bare CR in extension": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "obs-text in extension": b"5;a=\xe9\r\nhello\r\n0\r\n\r\n",
    "extension on the last": b"5\r\nhello\r\n0;a=b\r\n\r\n",
    "space behind size": b"5 \r\nhello\r\n0\r\n\r\n",
    "tab behind size": b"5\t\r\nhello\r\n0\r\n\r\n",
    "space before size": b" 5\r\nhello\r\n0\r\n\r\n",
    "hex prefix": b"0x5\r\nhello\r\n0\r\n\r\n",
    "plus": b"+5\r\nhello\r\n0\r\n\r\n",
    "minus": b"-5\r\nhello\r\n0\r\n\r\n",
    "minus zero": b"5\r\nhello\r\n-0\r\n\r\n",
    "underscore": b"0_5\r\nhello\r\n0\r\n\r\n",
    "leading zeros": b"0005\r\nhello\r\n0\r\n\r\n",
    "many zeros": b"0" * 30 + b"5\r\nhello\r\n0\r\n\r\n",
    "several zeros at the end": b"5\r\nhello\r\n000\r\n\r\n",
    "capital hex": b"A\r\nhellohello\r\n0\r\n\r\n",
    "not hex": b"g\r\nhello\r\n0\r\n\r\n",
    "empty size": b"\r\nhello\r\n0\r\n\r\n",
    "64 bits and more": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "32 bits and more": b"100000005\r\nhello\r\n0\r\n\r\n",
    "LF behind size": b"5\nhello\r\n0\r\n\r\n",
    "LF behind data": b"5\r\nhello\n0\r\n\r\n",
    "no CRLF behind data": b"5\r\nhello0\r\n\r\n",
    "other bytes behind data": b"5\r\nhelloxx0\r\n\r\n",
    "CR CR LF": b"5\r\r\nhello\r\n0\r\n\r\n",
    "LF at the end": b"5\r\nhello\r\n0\r\n\n",
    "LF behind the last": b"5\r\nhello\r\n0\n\r\n",
    "no empty line": b"5\r\nhello\r\n0\r\n",
    "Arabic digit": "\u0665\r\nhello\r\n0\r\n\r\n".encode(),
    "trailer": b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
    "folded trailer": b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n 2\r\n\r\n",
    "space in trailer name": b"5\r\nhello\r\n0\r\nX-Sum : 1\r\n\r\n",
    "trailer without colon": b"5\r\nhello\r\n0\r\nX-Sum\r\n\r\n",
    "trailer with bare CR": b"5\r\nhello\r\n0\r\nX-Sum: 1\rY: 2\r\n\r\n",
    "request in place of a trailer": b"0\r\nGET /admin HTTP/1.1\r\nX: y\r\n\r\n",
    "one-byte chunks": b"1\r\nh\r\n1\r\ni\r\n0\r\n\r\n",
}
_LINES = {
    "bare LF": b"X: 1\nTransfer-Encoding: chunked",
    "bare CR": b"X: 1\rTransfer-Encoding: chunked",
    "CR CR LF": b"X: 1\r\r\nTransfer-Encoding: chunked",
    "LF CR": b"X: 1\n\rTransfer-Encoding: chunked",
    "obs-fold with space": b"X: 1\r\n Transfer-Encoding: chunked",
    "obs-fold with tab": b"X: 1\r\n\tTransfer-Encoding: chunked",
    "folded coding": b"Transfer-Encoding:\r\n chunked",
    "space before colon": b"Transfer-Encoding : chunked",
    "tab before colon": b"Transfer-Encoding\t: chunked",
    "space before name": b" Transfer-Encoding: chunked",
    "NUL in name": b"Transfer\x00-Encoding: chunked",
    "vertical tab before colon": b"Transfer-Encoding\x0b: chunked",
    "underscore for hyphen": b"Transfer_Encoding: chunked",
    "no colon": b"Transfer-Encoding chunked",
    "no name": b": chunked",
    "two colons": b"Transfer-Encoding:: chunked",
    "no space": b"Transfer-Encoding:chunked",
    "envelope line": b"From me\r\nTransfer-Encoding: chunked",
    "line separator in a value": b"X: 1\x85Transfer-Encoding: chunked",
    "vertical tab in a value": b"X: 1\x0bTransfer-Encoding: chunked",
    "information separator in a value": b"X: 1\x1eTransfer-Encoding: chunked",
    "encoded line end": b"X: 1%0d%0aTransfer-Encoding: chunked",
    "control in a value": b"X: \x01",
    "DEL in a value": b"X: \x7f",
    "obs-text in a value": b"X: \xe9\xff",
    "quoted-pair in a value": b'X: "a\\"b"',
    "empty value": b"X:",
    "length and coding": b"Content-Length: 5\r\nTransfer-Encoding: chunked",
    "coding and length": b"Transfer-Encoding: chunked\r\nContent-Length: 5",
    "two equal lengths": b"Content-Length: 5\r\nContent-Length: 5",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 15",
    "length of another case": b"content-LENGTH: 5\r\nContent-Length: 6",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "coding and identity": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "identity and coding": b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    "connection names the length": b"Content-Length: 5\r\nConnection: content-length",
    "connection names the coding": b"Transfer-Encoding: chunked\r\nConnection: Transfer-Encoding",
    "second Host": b"Host: b.example",
    "TE in place of the coding": b"TE: chunked",
    "expectation": b"Expect: 100-continue\r\nContent-Length: 5",
    "upgrade with a body": b"Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 5",
}
_STARTS = {
    "absolute": b"GET http://a.example/ HTTP/1.1",
    "HTTP/1.0": b"GET http://a.example/ HTTP/1.0",
    "HTTP/0.9": b"GET http://a.example/",
    "HTTP/1.2": b"GET http://a.example/ HTTP/1.2",
    "HTTP/2.0": b"GET http://a.example/ HTTP/2.0",
    "HTTP/1.01": b"GET http://a.example/ HTTP/1.01",
    "HTTP/01.1": b"GET http://a.example/ HTTP/01.1",
    "HTTP/1": b"GET http://a.example/ HTTP/1",
    "HTTP/+1.1": b"GET http://a.example/ HTTP/+1.1",
    "small letters": b"GET http://a.example/ http/1.1",
    "another protocol": b"GET http://a.example/ ICE/1.0",
    "two spaces": b"GET  http://a.example/ HTTP/1.1",
    "tab": b"GET\thttp://a.example/ HTTP/1.1",
    "space at the end": b"GET http://a.example/ HTTP/1.1 ",
    "space before": b" GET http://a.example/ HTTP/1.1",
    "space in the target": b"GET http://a.example/a b HTTP/1.1",
    "no-break space in the target": b"GET http://a.example/a\xa0b HTTP/1.1",
    "control in the target": b"GET http://a.example/a\x01 HTTP/1.1",
    "DEL in the target": b"GET http://a.example/a\x7f HTTP/1.1",
    "obs-text in the target": b"GET http://a.example/\xe9 HTTP/1.1",
    "fragment": b"GET http://a.example/#x HTTP/1.1",
    "userinfo": b"GET http://me:pw@a.example/ HTTP/1.1",
    "empty userinfo": b"GET http://@a.example/ HTTP/1.1",
    "backslash": b"GET http://a.example\\@b.example/ HTTP/1.1",
    "query at once": b"GET http://a.example?x HTTP/1.1",
    "two slashes in the path": b"GET http://a.example//x HTTP/1.1",
    "one slash": b"GET http:/a.example/ HTTP/1.1",
    "no host": b"GET http:///x HTTP/1.1",
    "another scheme": b"GET ftp://a.example/ HTTP/1.1",
    "origin-form": b"GET / HTTP/1.1",
    "asterisk-form": b"OPTIONS * HTTP/1.1",
    "empty port": b"GET http://a.example:/ HTTP/1.1",
    "port 0": b"GET http://a.example:0/ HTTP/1.1",
    "port over 16 bits": b"GET http://a.example:65537/ HTTP/1.1",
    "port with sign": b"GET http://a.example:+80/ HTTP/1.1",
    "port with zeros": b"GET http://a.example:00080/ HTTP/1.1",
    "percent in the host": b"GET http://a%2eexample/ HTTP/1.1",
    "IPv6": b"GET http://[2001:db8::1]:81/ HTTP/1.1",
    "IPv6 with a zone": b"GET http://[fe80::1%25eth0]/ HTTP/1.1",
    "IPv6 without brackets": b"GET http://2001:db8::1/ HTTP/1.1",
    "unknown method": b"BREW http://a.example/ HTTP/1.1",
    "small method": b"get http://a.example/ HTTP/1.1",
    "method with a separator": b"G(T http://a.example/ HTTP/1.1",
    "method with a slash": b"GE/T http://a.example/ HTTP/1.1",
    "CONNECT": b"CONNECT a.example:443 HTTP/1.1",
    "CONNECT without port": b"CONNECT a.example HTTP/1.1",
    "CONNECT of a URL": b"CONNECT http://a.example:443/ HTTP/1.1",
    "CONNECT with userinfo": b"CONNECT me@a.example:443 HTTP/1.1",
    "CONNECT with length": b"CONNECT a.example:443 HTTP/1.1\r\nContent-Length: 5",
    "CONNECT with zero length": b"CONNECT a.example:443 HTTP/1.1\r\nContent-Length: 0",
    "CONNECT with coding": b"CONNECT a.example:443 HTTP/1.1\r\nTransfer-Encoding: chunked",
    "OPTIONS of a host": b"OPTIONS http://a.example HTTP/1.1",
    "TRACE with a body": b"TRACE http://a.example/ HTTP/1.1\r\nContent-Length: 5",
    "empty line before": b"\r\nGET http://a.example/ HTTP/1.1",
    "two empty lines before": b"\r\n\r\nGET http://a.example/ HTTP/1.1",
    "bare LF before": b"\nGET http://a.example/ HTTP/1.1",
    "HTTP/1.0 with coding": b"POST http://a.example/ HTTP/1.0\r\nTransfer-Encoding: chunked",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "NUL in the line": b"GET http://a.example/\x00 HTTP/1.1",
    "line ends early": b"GET http://a.example/ HTTP/1.1\n",
}
_HOSTS = {
    "none": b"",
    "empty": b"Host:\r\n",
    "userinfo": b"Host: me@a.example\r\n",
    "path": b"Host: a.example/x\r\n",
    "list": b"Host: a.example, b.example\r\n",
    "space within": b"Host: a.example b.example\r\n",
    "port": b"Host: a.example:80\r\n",
    "bad port": b"Host: a.example:8o\r\n",
    "another": b"Host: b.example\r\n",
    "obs-text": b"Host: \xe9.example\r\n",
    "two": b"Host: a.example\r\nHost: a.example\r\n",
    "two of another case": b"Host: a.example\r\nhost: b.example\r\n",
    "IPv6": b"Host: [::1]:80\r\n",
}

REQUESTS: dict[str, bytes] = {
    **{f"length: {name}": _post(b"Content-Length: " + value, body=b"hello") for name, value in LENGTHS.items()},
    **{f"coding: {name}": _post(b"Transfer-Encoding: " + value) for name, value in CODINGS.items()},
    **{f"chunks: {name}": _chunked(body) for name, body in CHUNKED_BODIES.items()},
    **{f"line: {name}": _post(line) for name, line in _LINES.items()},
    **{f"start: {name}": _start(line) for name, line in _STARTS.items()},
    **{
        f"host: {name}": b"GET http://a.example/ HTTP/1.1\r\n" + line + b"\r\n" + _NEXT for name, line in _HOSTS.items()
    },
}


def _response(*fields: bytes, start: bytes = b"HTTP/1.1 200 OK", body: bytes = _CHUNKS) -> bytes:
    return b"\r\n".join((start, *fields)) + b"\r\n\r\n" + body


_RESPONSE_STARTS = {
    "plain": b"HTTP/1.1 200 OK",
    "HTTP/1.0": b"HTTP/1.0 200 OK",
    "HTTP/1.2": b"HTTP/1.2 200 OK",
    "HTTP/2.0": b"HTTP/2.0 200 OK",
    "no phrase": b"HTTP/1.1 200",
    "empty phrase": b"HTTP/1.1 200 ",
    "two spaces": b"HTTP/1.1  200 OK",
    "tab": b"HTTP/1.1\t200 OK",
    "status of two digits": b"HTTP/1.1 20 OK",
    "status of four digits": b"HTTP/1.1 2000 OK",
    "status with a sign": b"HTTP/1.1 +20 OK",
    "status with an underscore": b"HTTP/1.1 2_0 OK",
    "status 000": b"HTTP/1.1 000 No",
    "status 099": b"HTTP/1.1 099 No",
    "status 600": b"HTTP/1.1 600 Odd",
    "status 999": b"HTTP/1.1 999 Odd",
    "status and text in one": b"HTTP/1.1 200OK",
    "ICY": b"ICY 200 OK",
    "nothing of HTTP": b"hello",
    "small letters": b"http/1.1 200 OK",
    "NUL in the phrase": b"HTTP/1.1 200 O\x00K",
    "bare CR in the phrase": b"HTTP/1.1 200 OK\rContent-Length: 0",
    "obs-text in the phrase": b"HTTP/1.1 200 \xe9",
    "space before": b" HTTP/1.1 200 OK",
    "empty line before": b"\r\nHTTP/1.1 200 OK",
    "204": b"HTTP/1.1 204 No Content",
    "205": b"HTTP/1.1 205 Reset Content",
    "304": b"HTTP/1.1 304 Not Modified",
    "100 and end": b"HTTP/1.1 100 Continue",
    "101 unasked": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade",
    "100 before": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK",
    "100 with a length": b"HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK",
    "100 with a coding": b"HTTP/1.1 100 Continue\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK",
    "103 before": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK",
    "many 100": b"HTTP/1.1 100 Continue\r\n\r\n" * 40 + b"HTTP/1.1 200 OK",
    "204 with a coding": b"HTTP/1.1 204 No\r\nTransfer-Encoding: chunked",
    "304 with a coding": b"HTTP/1.1 304 No\r\nTransfer-Encoding: chunked",
    "HTTP/1.0 with a coding": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked",
}

RESPONSES: dict[str, bytes] = {
    **{f"length: {name}": _response(b"Content-Length: " + value, body=b"hello") for name, value in LENGTHS.items()},
    **{f"coding: {name}": _response(b"Transfer-Encoding: " + value) for name, value in CODINGS.items()},
    **{f"chunks: {n}": _response(b"Transfer-Encoding: chunked", body=body) for n, body in CHUNKED_BODIES.items()},
    **{f"line: {name}": _response(line) for name, line in _LINES.items()},
    **{
        f"start: {name}": _response(b"Content-Length: 5", start=s, body=b"hello")
        for name, s in _RESPONSE_STARTS.items()
    },
    **{f"bare start: {name}": _response(start=s, body=b"hello") for name, s in _RESPONSE_STARTS.items()},
    "bytes behind the end": _response(b"Content-Length: 5", body=b"hello" + _response()),
    "cut short": _response(b"Content-Length: 9", body=b"hello"),
    "chunks cut short": _response(b"Transfer-Encoding: chunked", body=b"5\r\nhello\r\n"),
    "until the end": _response(body=b"hello"),
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nA: b",
}

# --- spoiling ---

_ODD_BYTES = [bytes((code,)) for code in b'\x00\t\n\x0b\x0c\r\x1c\x1e !",-:;=@[\\_\x7f\x80\x85\xa0\xff0'] + [b"\r\n"]
_LINE_ENDS = [
    b"\n",
    b"\r",
    b"\r\r\n",
    b"\n\r\n",
    b"\r\n\r\n",
    b"\r\n ",
    b"\r\n\t",
    b" \r\n",
    b"\x0b\r\n",
    b"\x85\r\n",
    b"",
]
_VERSIONS = [b"HTTP/0.9", b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/1.1 ", b"HTTP/1.11", b"http/1.1"]
_LINES_TO_ADD = [
    *_LINES.values(),
    *(b"Content-Length: " + value for value in LENGTHS.values()),
    *(b"Transfer-Encoding: " + value for value in CODINGS.values()),
    b"Connection: close",
    b"Connection: keep-alive, X",
    b"Keep-Alive: 5",
    b"Trailer: X",
    b"Via: 1.0 x",
    b"Max-Forwards: 3",
    b"Proxy-Connection: close",
]


@st.composite
def spoiled(draw: st.DrawFn, good: st.SearchStrategy[bytes]) -> bytes:
    """A good message with up to three things done to it."""
    data = draw(good)
    for _ in range(draw(st.integers(0, 3))):
        data = _spoil(draw, data)
    return data


def _spoil(draw: st.DrawFn, data: bytes) -> bytes:
    way = draw(st.sampled_from(["line end", "add a line", "odd byte", "version", "cut", "twice", "swap"]))
    at = draw(st.integers(0, len(data)))
    line_end = data.find(b"\r\n", at)
    if way == "odd byte":
        return data[:at] + draw(st.sampled_from(_ODD_BYTES)) + data[at:]
    if way == "swap":
        return data[:at] + draw(st.sampled_from(_ODD_BYTES)) + data[at + 1 :]
    if way == "cut":
        return data[:at] + data[at + draw(st.integers(1, 12)) :]
    if way == "version":
        return data.replace(b"HTTP/1.1", draw(st.sampled_from(_VERSIONS)), 1)
    if line_end < 0:
        return data
    if way == "line end":
        return data[:line_end] + draw(st.sampled_from(_LINE_ENDS)) + data[line_end + 2 :]
    if way == "add a line":
        line = draw(st.sampled_from(_LINES_TO_ADD))
        return data[: line_end + 2] + line + b"\r\n" + data[line_end + 2 :]
    line_start = data.rfind(b"\r\n", 0, line_end) + 2
    return data[: line_end + 2] + data[line_start : line_end + 2] + data[line_end + 2 :]


_METHODS = st.sampled_from([b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"DELETE", b"CONNECT", b"BREW"])
_TARGETS = st.sampled_from(
    [line.split()[1] for line in _STARTS.values() if len(line.split()) > 1] + [b"http://a.example/"]
)
_FRAMINGS = st.sampled_from(
    [
        (b"", b""),
        (b"Content-Length: 5\r\n", b"hello"),
        (b"Content-Length: 0\r\n", b""),
        (b"Transfer-Encoding: chunked\r\n", _CHUNKS),
        *((b"Transfer-Encoding: chunked\r\n", body) for body in CHUNKED_BODIES.values()),
    ]
)
_PLAIN_FIELDS = st.lists(
    st.sampled_from(
        [b"Accept: */*\r\n", b"X-Odd:\tv \xe9 \r\n", b"Cookie: a=b; c=d\r\n", b"Connection: keep-alive\r\n"]
    ),
    max_size=3,
).map(b"".join)


@st.composite
def _good_request(draw: st.DrawFn) -> bytes:
    framing, body = draw(_FRAMINGS)
    start = draw(_METHODS) + b" " + draw(_TARGETS) + b" HTTP/1.1\r\nHost: a.example\r\n"
    return start + draw(_PLAIN_FIELDS) + framing + b"\r\n" + body


@st.composite
def _good_response(draw: st.DrawFn) -> bytes:
    framing, body = draw(_FRAMINGS)
    status = draw(st.sampled_from([b"200 OK", b"200", b"204 No", b"206 P", b"304 ", b"404 Not", b"500 \xe9", b"599 x"]))
    interim = draw(st.sampled_from([b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 E\r\nLink: x\r\n\r\n"]))
    return interim + b"HTTP/1.1 " + status + b"\r\n" + draw(_PLAIN_FIELDS) + framing + b"\r\n" + body


SPOILED_REQUESTS = spoiled(st.lists(_good_request(), min_size=1, max_size=2).map(b"".join))
"""One or two requests behind each other, perhaps spoiled."""
SPOILED_RESPONSES = spoiled(_good_response())
"""A response, perhaps with an interim one before it, perhaps spoiled."""
