"""One real actor, or the supervisor, with stand-ins for the others."""
