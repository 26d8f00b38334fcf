"""Networks as disjoint ranges: one binary search finds the most specific network of an address."""

from __future__ import annotations

from collections.abc import Iterable

from actors.lists.layout import NO_NETWORK

WIDTHS = {4: 32, 6: 128}


def disjoint(networks: Iterable[tuple[int, int]], width: int) -> tuple[list[int], list[int]]:
    """Where each range begins, and the length of the most specific network in it; `NO_NETWORK` for none.

    `networks` are pairs of first address and length, sorted. Two networks are disjoint or one has the other, so those
    that are open at an address are a stack.
    """
    sweep = _Sweep(width)
    for start, length in networks:
        sweep.begin(start, length)
    sweep.close_until(1 << width)
    return sweep.starts, sweep.lengths


class _Sweep:
    def __init__(self, width: int) -> None:
        self._width = width
        self._open: list[tuple[int, int]] = []  # first address behind it, and length
        self.starts: list[int] = []
        self.lengths: list[int] = []

    def begin(self, start: int, length: int) -> None:
        self.close_until(start)
        self._open.append((start + (1 << (self._width - length)), length))
        self._mark(start, length)

    def close_until(self, address: int) -> None:
        """End the networks that end at or before this address."""
        while self._open and self._open[-1][0] <= address:
            end, _length = self._open.pop()
            if end < 1 << self._width:
                self._mark(end, self._open[-1][1] if self._open else NO_NETWORK)

    def _mark(self, start: int, length: int) -> None:
        """A range begins. One of the same length goes on: the address tells the networks in it apart."""
        if self.starts and self.starts[-1] == start:
            self.starts.pop()
            self.lengths.pop()
        if (self.lengths[-1] if self.lengths else NO_NETWORK) != length:
            self.starts.append(start)
            self.lengths.append(length)
