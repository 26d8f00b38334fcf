"""What a forwarding actor reports: counters (`counter_publisher`), usage of accounts (`usage_reporter`), and a line of
the log for each decision at the level `debug` (`trace`)."""
