"""JSON schemas of bodies and responses, and the references to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from config.model.fields import NULL

_TEMPLATE = "#/components/schemas/{model}"

Mode = Literal["validation", "serialization"]


class _BodySchema(GenerateJsonSchema):
    """None stands for "not given" in the models of bodies, so only `NULLABLE` fields may be null or default to it."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        described = super().default_schema(schema)
        if described.get("default", NULL) is None and NULL not in described.get("anyOf", ()):
            del described["default"]
        return described


class Schemas:
    """Every schema that the document needs."""

    def __init__(self, bodies: Iterable[type[BaseModel]], responses: Iterable[type[BaseModel]]) -> None:
        self._references: dict[type[BaseModel], dict[str, Any]] = {}
        self.all: dict[str, Any] = {}
        self._add(bodies, "validation", _BodySchema)
        for schema in self._add(responses, "serialization", GenerateJsonSchema).values():
            schema.pop("additionalProperties", None)  # later versions may respond with more members

    def reference(self, model: type[BaseModel]) -> dict[str, Any]:
        """The `$ref` of a model."""
        return dict(self._references[model])

    def _add(
        self, models: Iterable[type[BaseModel]], mode: Mode, generator: type[GenerateJsonSchema]
    ) -> dict[str, Any]:
        wanted = sorted(set(models), key=lambda model: model.__name__)
        references, whole = models_json_schema(
            [(each, mode) for each in wanted], ref_template=_TEMPLATE, schema_generator=generator
        )
        made: dict[str, Any] = whole.get("$defs", {})
        for schema in made.values():
            schema.pop("examples", None)  # it stands with the operation
        clash = self.all.keys() & made.keys()
        if clash:
            raise ValueError(f"a body and a response have the same name: {', '.join(sorted(clash))}")
        self._references |= {model: references[model, mode] for model in wanted}
        self.all |= made
        return made
