"""What a window of requests has counted, in the form in which it outlives its process.

It is packed and read by its types, which a compiled module doesn't keep: so this is none.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeptWindow:
    """What a window has counted: the times of its requests, and the two numbers with the start of this minute."""

    start: float
    count: int
    before: int
    times: tuple[float, ...]
