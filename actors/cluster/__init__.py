"""The database that the nodes of a fleet share: PostgreSQL 13 or newer, reached so that its failure stops nothing here.

Imported in a fleet alone: one machine needs no database, and loads nothing of this. `psycopg` is imported here and
nowhere else.

| module | what |
|---|---|
| `errors` | what can go wrong, translated once |
| `connection` | a connection whose every call has a deadline on this side |
| `database` | the connections of a process, whether the database responds, and its time |
| `doorbell` | a connection that listens for what the database announces |

**A deadline on this side.** A server that is stopped, or behind a cable that was cut, still acknowledges what it gets
or says nothing at all: keepalives, `tcp_user_timeout` and `statement_timeout` don't end that. So the wait itself ends
here, and the socket is shut down. On the server's side `lock_timeout`, `statement_timeout` and
`idle_in_transaction_session_timeout` are set within each transaction, since poolers refuse them at the start: so a
node that hangs gives back what it holds.

**One round trip.** A transaction is one text of several statements by the simple protocol, `BEGIN` and `COMMIT`
included, or two with a decision between. That works with poolers in transaction mode, too.

**An outage costs nothing once it is known.** After two failures in a row calls fail at once, and a thread looks once a
second, with jitter, whether the database is back.
"""
