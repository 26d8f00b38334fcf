"""Replacing the running program without closing a listener or a tunnel.

`preflight` is its course up to the handover, and checks that the new program would start. `handover` passes listeners,
locks and processes over `execve(2)`, and `predecessors` are the old program's forwarding actors, which drain under the
new one.
"""
