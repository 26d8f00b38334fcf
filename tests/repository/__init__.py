"""The checkout itself: imports, documents, scripts, benchmarks."""
