"""Proxies, their parts, and webhooks: what is accepted, what is stored, and the errors that name a field."""
