"""The check of an event's data before it is published, for processes that seldom publish one and load no models."""

from __future__ import annotations

from typing import Any


def checked(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """`data`, if they are those of an event of this kind. Raises `KeyError` or `pydantic.ValidationError`."""
    from config.model.events import EVENT_DATA  # 5 MB and 60 ms, for a process that publishes

    EVENT_DATA[kind].model_validate(data)
    return data
