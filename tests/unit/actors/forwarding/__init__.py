"""Sessions, parsers, rules and limits of forwarding actors, without a connection."""
