"""Accounts of the fleet and of one proxy, their plans and credentials, and what their holders do (`self_service`)."""
