"""Webhooks: `kind` declares them, `changes` has what becomes of one, `sender` asks and tells the process that sends,
`actions` has what can be done with one, `link` what the sender asks.
"""
