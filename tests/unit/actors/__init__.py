"""Modules of the actors."""
