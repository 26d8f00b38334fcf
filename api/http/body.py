"""Bodies of requests: JSON, strictly, into a pydantic model.

Rejected with 400: a body that isn't UTF-8 or JSON (RFC 8259; NaN and Infinity aren't), has a member twice, is nested
deeper than `_DEEPEST`, or contains half of a surrogate pair, which can't be written as UTF-8.

**Limits** of the bodies that are held in memory, in all and of one user. A body of at most `SMALL` bytes is read before
the client has been authenticated. Of a larger one nothing more is read until the application has decided: it is called
with a `BodyGate` in place of the body, and either rejects the request like any other (401 before 403 before 413), or
opens the gate and is called again when all of the body is there. No thread waits in between.

**Everything that is wrong** with a body is reported at once.

**Lines**: a body of a JSON object in each line (NDJSON) is read line by line, since all of them would not fit into
memory. It may be compressed (`Content-Encoding: gzip`). Lines count from 1, as an editor shows them; empty ones are
left out.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import re
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import falcon
from pydantic import BaseModel, ValidationError

from api.concurrency_limit import Allowance, Reservation
from api.errors import Invalid, InvalidMany, TooBusy
from api.http.error_table import ApiError, invalid
from config.model.fields import field_path
from config.text.formatting import worded

BODY_GATE = "proxyfleet.body_gate"
"""Key of the WSGI environment: the `BodyGate` of a request with a large body."""
SMALL = 64 * 1024
SMALL_TOTAL = 64 * 1024 * 1024
"""Bytes of small bodies in memory at the same time, of all connections."""
LARGE_TOTAL, LARGE_EACH = 64 * 1024 * 1024, 32 * 1024 * 1024
"""Bytes of larger ones: in all, and of one user."""


class BodyAwaited(Exception):
    """The gate was opened: there is no response before the body is here."""


class BodyGate:
    """Delays the body of one request until the application has decided to read it.

    `length` is the `Content-Length`, None of a chunked body. `rate_headers` are those of the first call, so that a
    request counts once.
    """

    def __init__(self, length: int | None, allowance: Allowance, reservation: Reservation) -> None:
        self.length = length
        self.most: int | None = None
        self.body_is_here = False
        self.rate_headers: dict[str, str] | None = None
        self._allowance = allowance
        self._reservation = reservation

    @property
    def opened(self) -> bool:
        """Whether the application has asked for the body, and it is not complete yet."""
        return self.most is not None and not self.body_is_here

    def open(self, most: int, holder: str) -> bool:
        """Have the body read, up to `most` bytes beside the framing of chunks; False when too much of `holder` or of
        all is being read already."""
        if not self._reservation.reserve(self._allowance, holder, self.length or 2 * most):
            return False
        self.most = most
        return True


MAX_BODY = 1024 * 1024
IMPORT_PATH = "/api/v1/config/import"
MAX_IMPORT = 8 * 1024 * 1024
"""Bytes of a whole configuration, which only this path accepts."""
RETRY_AFTER = 1
"""Seconds after which a large body may be sent again when there was no room."""
_DEEPEST = 64
_SURROGATE = re.compile(r"[\ud800-\udfff]")

M = TypeVar("M", bound=BaseModel)


def read_body(request: falcon.Request, most: int = MAX_BODY) -> bytes:
    """All of the body. Raises `ApiError` 413 when there are more than `most` bytes of it.

    Raises `BodyAwaited` when it has not been read from the connection yet, and `TooBusy` when it can't be now.
    """
    gate: BodyGate | None = request.env.get(BODY_GATE)
    if (request.content_length or 0) > most or (gate is not None and most <= SMALL):
        raise too_large(most)
    if gate is not None and not gate.body_is_here:
        caller = request.context.caller
        if not gate.open(most, caller.user.id if caller else request.context.address):
            raise TooBusy(RETRY_AFTER, "Too many large bodies are being received at once")
        raise BodyAwaited
    if not request.content_length:
        return b""
    content: bytes = request.bounded_stream.read(most + 1)
    if len(content) > most:
        raise too_large(most)
    return content


def too_large(most: int) -> ApiError:
    """413."""
    return invalid(None, f"the body is larger than {most} bytes", 413)


def read_model(
    request: falcon.Request,
    model: type[M],
    read_only: frozenset[str],
    optional: bool = False,
    most: int = MAX_BODY,
) -> M:
    """The body as a `model`; with `optional` an empty body is an empty object. Raises `Invalid`, `ApiError` 413,
    415."""
    content = read_body(request, most)
    if content.strip():
        _require_json_type(request)
    elif optional:
        content = b"{}"
    given = parse_object(content)
    return validated(model, given, read_only)


def parse_object(content: bytes) -> dict[str, Any]:
    """The JSON object in `content`. Raises `Invalid`."""
    if not content.strip():
        raise Invalid(None, "a JSON object is required as the body")
    try:
        value = json.loads(
            content.decode("utf-8"), object_pairs_hook=_object, parse_float=_number, parse_constant=_no_constant
        )
    except RecursionError as error:
        raise Invalid(None, "the body is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise Invalid(None, "the body is not UTF-8") from error
    except ValueError as error:
        raise Invalid(None, f"the body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise Invalid(None, "the body must be a JSON object")
    _refuse_the_unwritable(value, 0)
    return value


def _require_json_type(request: falcon.Request) -> None:
    kind = (request.content_type or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise invalid("Content-Type", "must be application/json", 415)
    if (request.get_header("Content-Encoding") or "").strip().lower() not in ("", "identity"):
        raise invalid("Content-Encoding", "is not supported: send the body as it is", 415)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) != len(pairs):
        raise ValueError("a member occurs twice in an object")
    return built


def _number(text: str) -> float | int:
    """1.0 is an integer (JSON Schema, section 4.2.3); a number beyond the range of floats is an error."""
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number is too large")
    return int(value) if value.is_integer() else value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _refuse_the_unwritable(value: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise Invalid(None, "the body is nested too deeply")
    if isinstance(value, str):
        if _SURROGATE.search(value):
            raise Invalid(None, "the body holds half of a surrogate pair")
    elif isinstance(value, dict):
        for name, item in value.items():
            _refuse_the_unwritable(name, depth + 1)
            _refuse_the_unwritable(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _refuse_the_unwritable(item, depth + 1)


_ORDER = {"null_field": 0, "extra_forbidden": 2}
"""In which order problems are named, by their type; others are between."""


def validated(model: type[M], given: dict[str, Any], read_only: frozenset[str]) -> M:
    """`given` as a `model`. Raises `InvalidMany` that names everything that is wrong."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        problems = sorted(error.errors(include_url=False), key=lambda each: _ORDER.get(each["type"], 1))
        raise InvalidMany([_problem(each, read_only) for each in problems]) from error


def _problem(error: Any, read_only: frozenset[str]) -> tuple[str, str]:
    field = field_path(error["loc"])
    if error["type"] == "extra_forbidden":
        return field, "is read-only" if field in read_only else "is not a known field"
    if error["type"] == "bad_entry":
        return f"{field}[{error['ctx']['index']}]", str(error["msg"])
    return field, worded(error)


NDJSON = "application/x-ndjson"
LINE_MAX = 256 * 1024
"""Bytes of one line."""
LINES_MAX = 200_000
UNPACKED_MAX = 256 * 1024 * 1024
"""Bytes of all lines."""


class Line(NamedTuple):
    """One object, or what is wrong with the line."""

    number: int
    content: dict[str, Any] | Invalid


class Lines:
    """The lines of a body; they can be read several times."""

    def __init__(self, content: bytes, packed: bool) -> None:
        self._content = content
        self._packed = packed

    @property
    def digest(self) -> str:
        """By which two bodies are compared."""
        return hashlib.sha256(self._content).hexdigest()

    def __iter__(self) -> Iterator[Line]:
        """Raises `Invalid` for what is wrong with the body as a whole."""
        unread = UNPACKED_MAX
        for number, line in enumerate(self._raw(), start=1):
            unread -= len(line)
            if number > LINES_MAX or unread < 0:
                raise Invalid(None, f"the body has more than {LINES_MAX} lines or {UNPACKED_MAX} bytes")
            if len(line) > LINE_MAX:
                raise Invalid(f"lines[{number}]", f"has more than {LINE_MAX} bytes")
            if line.strip():
                yield Line(number, _parsed(number, line))

    def _raw(self) -> Iterator[bytes]:
        raw = io.BytesIO(self._content)
        stream = gzip.GzipFile(fileobj=raw) if self._packed else raw
        try:
            while line := stream.readline(LINE_MAX + 1):
                yield line
        except (OSError, EOFError, zlib.error) as error:
            raise Invalid(None, f"the body is not gzip: {error}") from error


def has_lines(request: falcon.Request) -> bool:
    """Whether the body is said to be NDJSON."""
    return (request.content_type or "").partition(";")[0].strip().lower() == NDJSON


def read_lines(request: falcon.Request) -> Lines:
    """The body of a request. Raises `ApiError` 413, 415."""
    coding = (request.get_header("Content-Encoding") or "").strip().lower()
    if coding not in ("", "identity", "gzip"):
        raise invalid("Content-Encoding", "must be gzip, or left out", 415)
    most = LARGE_EACH if request.content_length is not None else LARGE_EACH // 2  # of which chunks may double the bytes
    return Lines(read_body(request, most), coding == "gzip")


def _parsed(number: int, line: bytes) -> dict[str, Any] | Invalid:
    try:
        return parse_object(line)
    except Invalid as error:
        return Invalid(f"lines[{number}]", error.error.replace("the body", "it"))
