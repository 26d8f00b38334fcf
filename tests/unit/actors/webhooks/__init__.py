"""What webhooks keep on disk."""
