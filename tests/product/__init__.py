"""The whole product as real processes: over its ports, its command line and systemd."""
