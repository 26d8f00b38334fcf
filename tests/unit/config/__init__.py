"""Settings and models."""
