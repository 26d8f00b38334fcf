"""Counters, series and alerts."""
