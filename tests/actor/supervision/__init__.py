"""The supervisor as a process, and what it starts."""
