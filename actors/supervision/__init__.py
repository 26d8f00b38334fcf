"""How actors are started, watched and ended; `supervisor` puts the parts together.

`actor_supervisor` has all actors and carries out what `reconcile` decides from desired (`desired_proxies`) and actual
state; `proxy_commands` are the API's commands, `settings_updates` its changes of the settings. `processes` has the life
of one actor, `listeners` the listening sockets, `upgrade` the handover to the next program. `program_lifecycle` is the
life of the program itself, as a table of `transitions`.
"""
