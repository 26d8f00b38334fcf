"""How actors are started, watched and ended; `supervisor` puts the parts together.

`actor_supervisor` has all actors; `proxies` are those that there should be and their processes, `settings_updates` the
changes of the settings. `processes` has the processes of one actor, `listeners` the listening sockets. `lifecycle` has
the lives of an actor and of the program as tables. `upgrade` replaces the program without closing a listener or a
tunnel: it checks that the new program would start, and `handover` passes listeners, locks and processes over
`execve(2)`.
"""
