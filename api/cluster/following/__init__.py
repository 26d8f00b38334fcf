"""How a node has what all nodes have, and all know that it is there.

| module | what |
|---|---|
| `heartbeat` | each 4 s: this node is there, what it has, what is wrong with it; the reply says what there is |
| `follower` | takes what other nodes have committed, soon; a node *serves* a commit when its effects are made |
| `unapplied` | what this node could not apply: it serves the previous state of that |
| `rereading` | reads everything anew when the database has lost commits, or forgotten those that this node lacks |
| `presence` | what is known of the other nodes by their heartbeats |
"""
