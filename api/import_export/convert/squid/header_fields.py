"""`via`, `forwarded_for` and `request_header_…`, as `headers` of a proxy."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from api.import_export.convert.report import Effect
from api.import_export.convert.squid.gathered import Gathered
from api.import_export.convert.squid.lexer import plain
from api.import_export.convert.statements import Statement
from config.model.header_fields import HeaderName, HeaderValue
from config.net.field_names import OWN_FIELDS, canonical_name

_NAME: TypeAdapter[str] = TypeAdapter(HeaderName)
_VALUE: TypeAdapter[str] = TypeAdapter(HeaderValue)
XFF = "X-Forwarded-For"
FOR_SOME = "a rule of the policy with headers can do it for some requests"


def deny(gathered: Gathered, statement: Statement) -> None:
    """`request_header_access NAME allow|deny ACL…`."""
    name, *rest = statement.words or ("",)
    if rest[:1] == ["allow"] and name != "All":
        if rest[1:] != ["all"]:
            gathered.report.add(Effect.LOST, statement, "fields are kept or removed for all requests", FOR_SOME)
        return
    if name in ("All", "Other") or rest[:1] != ["deny"]:
        why = f"{name} stands for many fields, and fields can be removed by their names only"
        gathered.report.add(Effect.LOST, statement, why, "name each field that is to be removed: headers.remove")
    elif rest[1:] != ["all"]:
        gathered.report.add(Effect.LOST, statement, "the field would be removed for some requests only", FOR_SOME)
    elif name.lower() == "via":
        gathered.switches["via"] = "off"
    elif canonical_name(name) in OWN_FIELDS:
        gathered.report.add(Effect.UNNEEDED, statement, f"{name} is of one hop, and never passed on")
    elif _is_good(gathered, statement, name, None):
        gathered.removed_headers[name] = None


def replace(gathered: Gathered, statement: Statement) -> None:
    """`request_header_replace NAME VALUE`: what a field that is denied gets instead."""
    name, value = (statement.words or ("",))[0], " ".join(plain(word) for word in statement.words[1:])
    if _is_good(gathered, statement, name, value):
        gathered.set_headers[name] = value
        why = "squid replaces the field where there is one, a proxy here sets it in each request"
        gathered.report.add(Effect.DIFFERS, statement, why)


def add(gathered: Gathered, statement: Statement) -> None:
    """`request_header_add NAME VALUE [ACL…]`."""
    name, value, *acls = (plain(word) for word in (*statement.words, "", "")[: max(2, len(statement.words))])
    if acls not in ([], ["all"]):
        gathered.report.add(Effect.LOST, statement, "the field would be added to some requests only", FOR_SOME)
    elif "%" in value:
        gathered.report.add(Effect.LOST, statement, "values with % codes can't be made", "set a value without them")
    elif _is_good(gathered, statement, name, value):
        gathered.set_headers[name] = value
        why = "squid adds a field beside those that are there, a proxy here replaces them"
        gathered.report.add(Effect.DIFFERS, statement, why)


def _is_good(gathered: Gathered, statement: Statement, name: str, value: str | None) -> bool:
    try:
        _NAME.validate_python(name)
        if value is not None:
            _VALUE.validate_python(value)
    except ValidationError as error:
        gathered.report.add(Effect.LOST, statement, f"{name}: {error.errors()[0]['msg']}", "see docs/api.md, headers")
        return False
    return True


def headers_of(gathered: Gathered) -> dict[str, Any]:
    """`headers` of every proxy."""
    found: dict[str, Any] = {}
    via = gathered.switches.get("via")
    if via in ("on", "off"):
        found["via"] = via
    found["forwarded"] = _forwarded(gathered)
    kept = {canonical_name(name) for name in gathered.set_headers}
    if removed := [name for name in gathered.removed_headers if canonical_name(name) not in kept]:
        found["remove"] = removed
    if gathered.set_headers:
        found["set"] = gathered.set_headers
    return found


def _forwarded(gathered: Gathered) -> str:
    """squid adds the client's address unless it is forbidden to; a proxy here only if it is asked to."""
    mode = gathered.switches.get("forwarded_for", "on")
    own = {canonical_name(each) for each in (*gathered.set_headers, *gathered.removed_headers)}
    if mode in ("delete", "truncate"):
        gathered.removed_headers[XFF] = None
    if mode == "off":
        why = f"squid sends {XFF}: unknown, and a proxy here adds no field"
        gathered.report.add(Effect.DIFFERS, None, why, about="forwarded_for")
    return "x-forwarded-for" if mode in ("on", "truncate") and XFF.lower() not in own else "off"
