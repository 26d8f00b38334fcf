"""Is a change one? What stays as it is keeps its revision (its ETag) and its `updated_at`, and nobody is told."""

from __future__ import annotations

from pydantic import BaseModel

MOMENT = "updated_at"


def is_same(before: BaseModel, after: BaseModel) -> bool:
    """Whether two records of one document differ in nothing but the time of the change."""
    return before.model_dump(mode="json", exclude={MOMENT}) == after.model_dump(mode="json", exclude={MOMENT})
