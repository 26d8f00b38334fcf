"""The domain: proxies, users, keys, settings, webhooks, and what is asked of other processes about them."""
