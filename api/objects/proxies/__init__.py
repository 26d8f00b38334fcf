"""Proxies: `proxy_kind` is how they come and go with a document, `proxy_service` reads and changes them,
`proxy_changes` and `proxy_views` have what a change passes and what a response has; `supervisor_link` sends them
to the supervisor, `runtime_view` and `condition` say how they are.
"""
