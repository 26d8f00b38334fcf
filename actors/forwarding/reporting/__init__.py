"""What a forwarding actor reports: counters (`counter_publisher`), at its end all that is left, and at the level
`debug` a line of the log for each decision (`trace`)."""
