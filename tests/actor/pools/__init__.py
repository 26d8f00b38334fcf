"""Tests of the checks of pools, with real sockets."""
