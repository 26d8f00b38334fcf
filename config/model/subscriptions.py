"""Subscriptions to events: an event's name, all below a group (`proxy.*`) or everything (`*`)."""

from __future__ import annotations

from collections.abc import Iterable

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
