"""How actors are started, watched and ended; the parts that `supervisor.py` puts together.

`zygote` forks them cheaply, `sockets` keeps the listening sockets, `restarts` is the back-off, `reconcile` decides
what is to be done, `states` is the life of one actor as a table.
"""
