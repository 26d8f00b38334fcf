"""The webhook sender with real targets."""
