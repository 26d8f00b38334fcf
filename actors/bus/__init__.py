"""The bus: three planes with three promises.

==========  =============================================  ====================================================
plane       sockets                                        when the other side is gone
==========  =============================================  ====================================================
mailbox     DEALER → ROUTER star, bound by the supervisor  the sender gets a typed `Unreachable` at once
events      PUB → XSUB/XPUB → SUB, bound by the            lost; so only what repeats or can be asked for again
            supervisor
records     DEALER → ROUTER, bound by the log indexer,     kept by the sender up to a bound, then dropped and
            acknowledged after commit                      counted; never blocks traffic
==========  =============================================  ====================================================

`messages` has all messages of the mailbox and the events plane; `codec` encodes them;
`loop` joins ZeroMQ with plain sockets in one thread; `mailbox`, `events` and `records` are the three planes.
"""
