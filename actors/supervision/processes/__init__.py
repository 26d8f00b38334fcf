"""The processes that the supervisor starts: what each should be, how it is started, watched, restarted and reaped.

`managed_actor` is one actor over all its processes (`instance`), driven by the table in `lifecycle`; `proxy_actors` are
those of proxies, `actor_spec` says how processes of each are made. `spawner` starts them, forwarding actors by way of
`zygote`; `fd_limit` refuses a start that would run out of descriptors.
"""
