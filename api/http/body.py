"""Bodies of requests: JSON, strictly, into a pydantic model.

Rejected with 400: a body that isn't UTF-8 or JSON (RFC 8259; NaN and Infinity aren't), has a member twice, is nested
deeper than `_DEEPEST`, or contains half of a surrogate pair, which can't be written as UTF-8.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, TypeVar

import falcon
from pydantic import BaseModel

from api.errors import Invalid, TooBusy
from api.http.body_limits import SMALL, BodyAwaited, BodyGate
from api.http.environ import BODY_GATE
from api.http.errors import ApiError, invalid
from api.http.validation import validated

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
