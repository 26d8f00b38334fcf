"""`proxyfleet` with forwarding actors that log their longest turns to the run directory (`python -m …`)."""

from __future__ import annotations

import os
import socket
from functools import partial

from actors.forwarding.actor import ForwardingActor
from actors.forwarding.reporting.turn_log import TracedLoop
from actors.process import Boot

PERIOD = 1.0
"""Seconds between two writes of the log."""


class TracedActor(ForwardingActor):
    """Writes `turns-PID.json`."""

    loop_type = TracedLoop

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        assert isinstance(self.loop, TracedLoop)
        file = self.run_dir.path / f"turns-{os.getpid()}.json"
        self.loop.call_every(PERIOD, partial(self.loop.log.write, file))


def main() -> None:
    """The command line of the product."""
    import supervisor
    from actors.supervision import supervisor as process
    from actors.supervision.actor_classes import ActorClasses

    traced = partial(ActorClasses, forwarding="benchmarks.traced_program:TracedActor")
    process.ActorClasses = traced  # type: ignore[assignment,misc]
    supervisor.main()


if __name__ == "__main__":
    main()
