"""Users of the management API, how they sign in, their sessions and keys."""
