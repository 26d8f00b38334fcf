"""State machines as tables: what may happen in each state, and the state that follows.

A table is written with one row per event and one column per state, in the order of the states' class; `None` marks an
event that can't happen in that state. `TABLE[state][event]` is the state that follows. Looking up an impossible event
raises `IllegalEventError`, and since the caller assigns only what the look-up returns, nothing has changed then.

Measured on CPython 3.11 on a keep-alive GET: within the noise of plain assignments, since the look-ups also replace
checks. Sessions name states and events by module constants, because an attribute of an `Enum` class costs more there
than the look-up itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


class IllegalEventError(Exception):
    """An event that the table excludes in this state: a defect of the session or its driver, whatever a peer sent.

    It ends the connection it belongs to, and no other (`actors.forwarding.isolation`).
    """

    def __init__(self, state: StrEnum, event: StrEnum) -> None:
        super().__init__(f"{event.name} can't happen in the state {state.name}")
        self.state = state
        self.event = event


class StateRow(dict[E, S], Generic[E, S]):
    """The events of one state, each with the state that follows."""

    def __init__(self, state: S, following: dict[E, S]) -> None:
        super().__init__(following)
        self._state = state

    def __missing__(self, event: E) -> S:
        raise IllegalEventError(self._state, event)


def transitions(states: type[S], table: Mapping[E, tuple[S | None, ...]]) -> dict[S, StateRow[E, S]]:
    """The table by states. Raises `ValueError` when a row has not one column for each state."""
    columns: dict[S, dict[E, S]] = {state: {} for state in states}
    for event, row in table.items():
        for state, following in zip(states, row, strict=True):
            if following is not None:
                columns[state][event] = following
    return {state: StateRow(state, following) for state, following in columns.items()}
