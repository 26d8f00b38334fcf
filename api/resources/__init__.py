"""The handlers of the operations: each takes a `Call` and gives a `Reply`."""
