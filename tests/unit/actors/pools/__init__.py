"""Tests of what processes share about the upstreams of pools."""
