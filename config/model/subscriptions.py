"""Events, for processes that seldom publish one and load no models: subscriptions, and the check of an event's data.

A subscription is an event's name, all below a group (`proxy.*`) or everything (`*`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

EVERYTHING = "*"
ABOUT_PEOPLE = ("user.", "api_key.", "auth.")
"""Beginnings of the events about users, their keys and their sign-ins."""


def matches(subscribed: Iterable[str], event: str) -> bool:
    """Does one of the subscriptions take this event?"""
    group = f"{event.partition('.')[0]}.*" if "." in event else None
    return any(pattern in (event, group, EVERYTHING) for pattern in subscribed)


def is_about_people(subscribed: Iterable[str]) -> bool:
    """Does one of the subscriptions take events about users, their keys or their sign-ins?"""
    return any(pattern == EVERYTHING or pattern.startswith(ABOUT_PEOPLE) for pattern in subscribed)


def load_models() -> None:
    """Load what `checked` needs, which takes 0.15 s of a processor: for a process that has a thread for that."""
    import config.model.events  # noqa: F401


def checked(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """`data`, if they are those of an event of this kind. Raises `KeyError` or `pydantic.ValidationError`."""
    from config.model.events import EVENT_DATA  # 5 MB, for a process that publishes

    EVENT_DATA[kind].model_validate(data)
    return data
