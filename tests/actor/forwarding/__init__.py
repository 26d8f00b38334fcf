"""A forwarding actor with real clients and origins."""
