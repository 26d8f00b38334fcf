"""Query parameters, read strictly: a value that isn't allowed is 400 with the name of the parameter."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import falcon

from api.errors import Invalid
from api.http.query_schema import Parameter
from config.model.access import one_address
from config.text.formatting import parse_moment

_INTEGER = re.compile(r"-?[0-9]{1,10}", re.ASCII)


class Query:
    """The query of one request. All methods raise `Invalid`.

    `declared` is what the operation says that it reads (`api.operations.query_parameters`); reading another name is a
    bug: `KeyError`.
    """

    def __init__(self, request: falcon.Request, declared: Mapping[str, Parameter]) -> None:
        self._params = request.params
        self._declared = declared

    def refuse_others(self) -> None:
        """Refuse parameters that mean nothing here: an answer that ignored a filter would be taken for filtered."""
        for name in self._params:
            if name not in self._declared:
                raise Invalid(name, f"unknown parameter; allowed: {', '.join(sorted(self._declared))}")

    def text(self, name: str) -> str | None:
        """The value of a parameter that may occur once; None when it doesn't occur."""
        if name not in self._declared:
            raise KeyError(f"the operation does not declare the parameter {name}")
        value = self._params.get(name)
        if isinstance(value, list):
            raise Invalid(name, "must not be given twice")
        if value is not None:
            _check_length(name, value, self._declared[name].schema)
        return value

    def address(self, name: str) -> str | None:
        """One IP address, in the usual form."""
        value = self.text(name)
        try:
            return None if value is None else one_address(value)
        except ValueError as error:
            raise Invalid(name, str(error)) from error

    def one_of(self, name: str, allowed: Collection[str]) -> str | None:
        """A value out of a few."""
        value = self.text(name)
        if value is not None and value not in allowed:
            raise Invalid(name, f"must be one of {', '.join(allowed)}")
        return value

    def integer(self, name: str, default: int, lowest: int, highest: int) -> int:
        """A whole number within limits."""
        value = self.text(name)
        if value is None:
            return default
        if not _INTEGER.fullmatch(value) or not lowest <= int(value) <= highest:
            raise Invalid(name, f"must be an integer from {lowest} to {highest}")
        return int(value)

    def moment(self, name: str, default: float) -> float:
        """An ISO 8601 date and time, as Unix seconds."""
        value = self.text(name)
        if value is None:
            return default
        try:
            return parse_moment(value.replace(" ", "+") if "T" in value.upper() else value)
        except ValueError as error:
            raise Invalid(name, str(error)) from error


def _check_length(name: str, value: str, schema: Mapping[str, Any]) -> None:
    if len(value) < schema.get("minLength", 0):
        raise Invalid(name, "must not be empty")
    if len(value) > schema.get("maxLength", len(value)):
        raise Invalid(name, f"must have at most {schema['maxLength']} characters")
