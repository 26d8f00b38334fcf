"""The forwarding actor: one process for one proxy. Decisions in Python, bytes in the kernel.

Read in this order:

- `http.heads`, `http.fields`, `http.bodies`: bytes to meaning, strictly, and back.
- `http.session`: the conversation of one client connection as a state machine without sockets; bytes and events go
  in, `commands` come out.
- `guard`: which addresses may be connected to; `resolve` and `dial`: from a name to a connected, checked socket.
- `flow`: bulk bytes from socket to socket through a pipe (`splice(2)`); `tunnel`: two flows with half-close.
- `client`: carries the commands of a session out on real sockets; `pool` keeps origin connections for reuse.
- `actor`: accepts, configures, counts, drains.
"""
