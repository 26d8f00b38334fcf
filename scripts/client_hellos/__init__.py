"""Collects ClientHellos from the clients of this machine, for the tests of the parser: `scripts/client-hellos`."""
