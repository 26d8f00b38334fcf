"""Lists of destinations, fetched from real servers."""
