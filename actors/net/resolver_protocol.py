"""How actors ask the resolver: packets on a Unix socket (SOCK_SEQPACKET) in the run directory, each a msgpack array.

=========================================  ===================================================================
packet                                     meaning
=========================================  ===================================================================
`[0, servers, min_ttl, max_ttl, proxy]`    actor: how its names are resolved from now on; `servers` empty: as the
                                           system does. `proxy` is whose servers they are, empty where they are
                                           those of all. First of all, and again when it changes
`[number, name, client]`                   actor: a request; `client` is whose turn it costs
`[-1]`                                     actor: are you there?
`[0]`                                      resolver: yes
`[number, status, ttl, addresses]`         resolver: `FOUND`, or `SOME` of the addresses when the rest is late
`[number, status, ttl, detail]`            resolver: why there are none; `BUSY`: for this client alone, `NEGATIVE`:
                                           by what a name server says
`[-1, name]`                               resolver: forget this name, all names if it is empty
=========================================  ===================================================================

Numbers of requests are greater than 0. `ttl` is the seconds for which the reply holds.
"""

from __future__ import annotations

PROFILE, PING, PONG, FORGET = 0, -1, 0, -1
SOME, FOUND, FAILED, TIMED_OUT, BUSY, SYSTEM, NEGATIVE = range(7)
"""The status of a reply. `SYSTEM`: the name has to be resolved by the system's own means."""
PACKET_MAX = 16 * 1024
