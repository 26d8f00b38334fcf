"""Proxies: which there should be, what is done about the difference, and what is published of them.

`desired_proxies` is what the API has sent (`proxy_commands`), `proxy_actors` the processes that there are. `reconcile`
compares the two; `sleepers` have no process. `proxy_events` has what subscribers get to know.
"""
