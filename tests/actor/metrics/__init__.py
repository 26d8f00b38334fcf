"""The live feed with real subscribers."""
