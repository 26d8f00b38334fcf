"""Tables and decisions of the supervisor."""
