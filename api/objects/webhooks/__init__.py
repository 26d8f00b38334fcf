"""Webhooks: `webhook_kind` declares them, `webhook_sender` has the messages of the process that sends,
`webhook_operations` what can be done with one.
"""
