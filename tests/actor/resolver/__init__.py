"""The resolver."""
