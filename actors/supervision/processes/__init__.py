"""The processes that the supervisor starts: what each should be, how it is started, watched, restarted and reaped.

`managed_actor` is one actor over all its processes (`instance`), driven by the table in `actors.supervision.lifecycle`;
`actor_specs` says how processes of each are made. `spawner` starts them by way of `zygote`, and the first API
by way of `api_process`.
"""
