"""squid: `squid.conf`, as version 5 and 6 read it."""
