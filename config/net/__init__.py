"""Addresses as configuration and requests write them."""
