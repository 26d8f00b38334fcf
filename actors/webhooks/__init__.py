"""The webhook sender: events into an outbox that survives a crash."""
