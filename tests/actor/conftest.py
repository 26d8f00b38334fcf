"""The bench of the bus, for actors that are tested as processes."""

from tests.actor.bus import conftest

bench = conftest.bench
