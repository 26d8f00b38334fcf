"""Field types and checks that several parts of a configuration share.

Names of users: which are allowed, and which two are the same.

A name must not be confusable with another. Unicode's advice for that (UTS #39, "highly restrictive") is followed as far
as the standard library knows characters: compatibility forms are folded (NFKC), invisible characters are refused, and
letters are of one script, or of those that are written together in Chinese, Japanese and Korean, with Latin beside
them. Names that are stored already stay good.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Any

from annotated_types import GroupedMetadata, MaxLen, MinLen
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    StrictInt,
    StrictStr,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from config.model import json_patterns
from config.model.choices import WORKERS_FORM
from config.net.addresses import is_plain_address
from config.net.names import FORM, PORTS_MAX, Ports, is_host_name

SOCKS5_TEXT_MAX = 255


class _Several(GroupedMetadata):
    """Metadata that stands for several."""

    _parts: tuple[Any, ...]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts)


class Text(_Several):
    """Metadata of a text of `least` to `most` characters: the functions of `reads` refuse or write it otherwise.

    In the description of the API it has the `pattern`, and the lengths unless that says them (`lengths` False).
    """

    def __init__(
        self, least: int, most: int, *reads: Callable[[str], str], pattern: str, lengths: bool = True, **schema: Any
    ) -> None:
        bounds = (least, most) if lengths else (0, None)
        described = json_patterns.text(pattern, *bounds, **schema)
        self._parts = (MinLen(least), MaxLen(most), *map(AfterValidator, reads), described)


class TextList(_Several):
    """Metadata of a list of `least` to `most` texts which `read` takes; each is kept as `written` makes it."""

    def __init__(
        self,
        most: int,
        read: Callable[[str], object],
        pattern: str,
        written: Callable[[str], str] = str,
        least: int = 0,
    ) -> None:
        self._parts = (
            MinLen(least),
            MaxLen(most),
            BeforeValidator(each_entry(read, written)),
            json_patterns.texts(pattern, most, least),
        )


def each_entry(read: Callable[[str], object], written: Callable[[str], str] = str) -> Callable[[Any], Any]:
    """A check of a list that names the entry at fault. What it has is kept as `written` makes it."""

    def check(given: Any) -> Any:
        if not isinstance(given, (list, tuple)):
            return given
        kept = []
        for index, entry in enumerate(given):
            if not isinstance(entry, str):
                raise PydanticCustomError("bad_entry", "must be a string", {"index": index})
            try:
                kept.append(written(entry))
                read(kept[-1])
            except ValueError as error:
                raise PydanticCustomError("bad_entry", "{why}", {"index": index, "why": str(error)}) from error
        return kept

    return check


class Distinct(_Several):
    """Metadata of a list that names each `what` once."""

    def __init__(self, what: str) -> None:
        self._parts = (AfterValidator(partial(_distinct, what)), Field(json_schema_extra={"uniqueItems": True}))


def _distinct(what: str, entries: list[Any]) -> list[Any]:
    if len(set(entries)) != len(entries):
        raise ValueError(f"must not name a {what} twice")
    return entries


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_TURNS = re.compile(rf"[{json_patterns.TURNS}]")


def plain_text(text: str) -> str:
    """`text`, if it has no control characters and isn't blank; else `ValueError`."""
    if _CONTROL.search(text):
        raise ValueError("control characters are not allowed")
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def user_name(text: str) -> str:
    """`text`, if it may be the user name of HTTP Basic; else `ValueError`."""
    if ":" in plain_text(text):
        raise ValueError("must not contain a colon (RFC 7617)")
    return text


def name_text(text: str) -> str:
    """`text`, if it may be a name; else `ValueError`. Names that are stored already are not asked.

    Characters that turn the direction of writing show another name in a list that people click in.
    """
    found = _TURNS.search(plain_text(text))
    if found:
        raise ValueError(f"must not have characters that turn the direction of writing, as U+{ord(found[0]):04X}")
    return text


_OBJECT_NAME = re.compile(json_patterns.OBJECT_NAME, re.ASCII)


def object_name(text: str) -> str:
    """`text`, if it may be the name of a pool, a list or a policy; else `ValueError`."""
    if _OBJECT_NAME.fullmatch(text) is None:
        raise ValueError(
            "must be 1 to 64 letters, digits, '.', '_' and '-', beginning with a letter or a digit, and no id"
        )
    return text


def _absolute_path(text: str) -> str:
    if not PurePosixPath(plain_text(text)).is_absolute():
        raise ValueError("must be an absolute path")
    return text


def _host(text: str) -> str:
    if is_plain_address(text) or is_host_name(text):
        return text
    raise ValueError("must be an IP address or a host name of this machine")


Host = Annotated[StrictStr, Text(1, 253, _host, pattern=json_patterns.HOST, lengths=False)]
Username = Annotated[StrictStr, Text(1, 128, user_name, name_text, pattern=json_patterns.CLIENT_NAME)]
Password = Annotated[StrictStr, Field(min_length=1, max_length=128)]
Name = Annotated[StrictStr, Text(1, 100, name_text, pattern=json_patterns.NAME)]
Port = Annotated[StrictInt, Field(ge=1, le=65535)]
SOME_PORTS_MAX = 64
SomePorts = Annotated[list[Port], Field(max_length=SOME_PORTS_MAX), Distinct("port")]
"""Distinct ports; none is allowed as well."""


def _port_or_range(given: Any) -> int | str:
    if type(given) is int:
        return _number_of_port(given)
    if not isinstance(given, str) or "-" not in given:
        raise ValueError(FORM)
    ports = Ports.read(given)
    if len(ports) > PORTS_MAX:
        raise ValueError(f"must be a range of at most {PORTS_MAX} ports")
    return ports.written


def _number_of_port(given: int) -> int:
    if not 1 <= given <= 65535:
        raise ValueError(FORM)
    return given


PortOrRange = Annotated[
    int | str,
    PlainValidator(_port_or_range),
    json_patterns.any_of(json_patterns.PORT, json_patterns.text(json_patterns.PORTS)),
]
"""A port, or consecutive ones as `20000-20999` (`config.net.addresses`); a range of one is that port."""


def _workers(given: Any, read: ValidatorFunctionWrapHandler) -> int | str:
    try:
        workers: int | str = read(given)
    except ValidationError:
        raise ValueError(WORKERS_FORM) from None
    return workers


WORKERS = WrapValidator(_workers)
"""What a number of workers may be, in one sentence for both forms: pydantic has an error for each."""
FilePath = Annotated[StrictStr, Text(0, 4096, _absolute_path, pattern=json_patterns.FILE_PATH, lengths=False)]


class Input(BaseModel):
    """A part of a request's body: fields that aren't named are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class _Nullable:
    """Metadata; see `NULLABLE`."""

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        if "anyOf" not in schema or "type" in schema:  # of which the type would hold for null, too
            return {"anyOf": [schema, NULL]}
        return {**schema, "anyOf": [*(each for each in schema["anyOf"] if each != NULL), NULL]}


NULL = {"type": "null"}
"""The JSON schema of null."""
NULLABLE = _Nullable()
"""Metadata of a field of a body in which null has a meaning. In the others None is how "not given" is written."""


class Body(Input):
    """A body, or a part of one, in which null is refused but in its `NULLABLE` fields."""

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_null(cls, given: Any, info: ValidationInfo) -> Any:
        if given is None and NULLABLE not in cls.model_fields[str(info.field_name)].metadata:
            raise PydanticCustomError("null_field", "must not be null")
        return given


def example(fields: dict[str, Any], **schema: Any) -> ConfigDict:
    """`model_config` of the body of a request: an example for the description of the API, and what `schema` adds."""
    return ConfigDict(json_schema_extra={"examples": [fields], **schema})


def example_of(body: type[BaseModel]) -> dict[str, Any]:
    """The example of such a model. Raises `KeyError` when it has none."""
    extra: Any = body.model_config["json_schema_extra"]
    return dict(extra["examples"][0])


class InvalidResource(ValueError):
    """The whole that would result is not allowed; `field` is at fault."""

    def __init__(self, field: str, error: str) -> None:
        super().__init__(f"{field}: {error}")
        self.field = field
        self.error = error


class InvalidProxy(InvalidResource):
    """The whole that would result is not a proxy."""


def field_path(parts: Iterable[str | int]) -> str:
    """How errors write where something stands: `accounts[0].password`. A key of an object is named without a mark."""
    named = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts if part != "[key]")
    return "".join(named).removeprefix(".")


def refuse_long(field: str, text: str | None) -> None:
    """RFC 1929 counts names and passwords in one octet. Raises `InvalidProxy`."""
    if text is not None and len(text.encode()) > SOCKS5_TEXT_MAX:
        raise InvalidProxy(field, f"must be at most {SOCKS5_TEXT_MAX} bytes in UTF-8 with socks5")


_INVISIBLE = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
"""Categories of characters that have no shape of their own."""
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters, marks and symbols that show nothing."""
_TOGETHER = (
    frozenset(("LATIN", "CJK", "HIRAGANA", "KATAKANA")),
    frozenset(("LATIN", "CJK", "HANGUL")),
    frozenset(("LATIN", "CJK", "BOPOMOFO")),
)
_SCRIPTS = {"IDEOGRAPHIC": "CJK", "KATAKANA-HIRAGANA": "KATAKANA"}
"""First words of names of letters that are no script's."""


def new_name(text: str) -> str:
    """The name as it is stored. Raises `ValueError` for a name that is not allowed."""
    name = unicodedata.normalize("NFKC", text)
    if name != name.strip():
        raise ValueError("must not begin or end with a blank")
    if any(_is_invisible(character) for character in name):
        raise ValueError("must not have characters that are not seen, as format characters")
    scripts = {_script(character) for character in name if unicodedata.category(character).startswith("L")}
    if len(scripts) > 1 and not any(scripts <= group for group in _TOGETHER):
        raise ValueError(f"must not mix letters of several scripts: {', '.join(sorted(map(str.title, scripts)))}")
    return name


def name_key(text: str) -> str:
    """What is equal for two spellings of one name: case and compatibility forms make no other name."""
    if text.isascii():
        return text.lower()  # every request by HTTP Basic compares with all users
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _is_invisible(character: str) -> bool:
    selector = "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
    mongolian = "\u180b" <= character <= "\u180f"
    return unicodedata.category(character) in _INVISIBLE or character in _FILLERS or selector or mongolian


def _script(letter: str) -> str:
    """The script of a letter is the first word of its name in the Unicode database."""
    word = unicodedata.name(letter, "UNKNOWN").partition(" ")[0]
    return _SCRIPTS.get(word, word)
