"""Life cycles as tables: what may happen in which state, and the state that follows.

A table is a dict from (state, event) to state. An event that a table does not list for a state is a mistake in the
supervisor itself: it raises and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


class IllegalTransitionError(Exception):
    """The table of `subject` lists no such event for its state."""

    def __init__(self, subject: str, state: StrEnum, event: StrEnum) -> None:
        super().__init__(f"{event} can't happen to {subject} that is {state}")
        self.state = state
        self.event = event


def next_state(table: Mapping[tuple[S, E], S], subject: str, state: S, event: E) -> S:
    """The state after `event`. Raises `IllegalTransitionError`; `subject` names the kind of thing, with its article."""
    try:
        return table[state, event]
    except KeyError:
        raise IllegalTransitionError(subject, state, event) from None
