"""JSON schemas of bodies and answers, and the references to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

_TEMPLATE = "#/components/schemas/{model}"
_NULLABLE = frozenset(
    (
        ("ApiKeyCreate", "expires_at"),
        ("ApiKeyCreate", "scope"),
        ("AccountInput", "expires_at"),
        ("AccountUpdate", "expires_at"),
        ("EntryAuth", "password"),
        ("EntryAccount", "password"),
        ("EntryAccount", "expires_at"),
        ("EntryUpstreamAuth", "password"),
        ("UserEntry", "email"),
        ("UserEntry", "oauth"),
        ("UserEntry", "password"),
        ("UserEntry", "permissions"),
        ("WebhookEntry", "secret"),
    )
)
"""Members of bodies that may be null; the others are left out when there is nothing to say."""
_NULL = {"type": "null"}

Mode = Literal["validation", "serialization"]


class Schemas:
    """Every schema that the document needs."""

    def __init__(self, bodies: Iterable[type[BaseModel]], answers: Iterable[type[BaseModel]]) -> None:
        self._references: dict[type[BaseModel], dict[str, Any]] = {}
        self.all: dict[str, Any] = {}
        for name, schema in self._add(bodies, "validation").items():
            _without_nulls(name, schema)
        for schema in self._add(answers, "serialization").values():
            _open(schema)

    def reference(self, model: type[BaseModel]) -> dict[str, Any]:
        """The `$ref` of a model."""
        return dict(self._references[model])

    def _add(self, models: Iterable[type[BaseModel]], mode: Mode) -> dict[str, Any]:
        wanted = sorted(set(models), key=lambda model: model.__name__)
        references, whole = models_json_schema([(each, mode) for each in wanted], ref_template=_TEMPLATE)
        made: dict[str, Any] = whole.get("$defs", {})
        for schema in made.values():
            schema.pop("examples", None)  # it stands with the operation
        clash = self.all.keys() & made.keys()
        if clash:
            raise ValueError(f"a body and an answer have the same name: {', '.join(sorted(clash))}")
        self._references |= {model: references[model, mode] for model in wanted}
        self.all |= made
        return made


def _without_nulls(name: str, schema: dict[str, Any]) -> None:
    """A body says nothing by leaving a member out; pydantic would tell of null as the default."""
    for member, told in schema.get("properties", {}).items():
        if (name, member) in _NULLABLE:
            continue
        if told.get("default", "") is None:
            del told["default"]
        choices = [each for each in told.get("anyOf", ()) if each != _NULL]
        if len(choices) == 1:
            del told["anyOf"]
            told.update(choices[0])
        elif choices:
            told["anyOf"] = choices


def _open(schema: dict[str, Any]) -> None:
    """Later versions may answer with more members."""
    schema.pop("additionalProperties", None)
