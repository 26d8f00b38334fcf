"""The key of the fleet: every node has it in its key file, follows it when it is replaced, and a full one replaces it.

The key seals what is in documents, in the history and in files of each node (`config.files.secret_box`). Which key that
is, `fleet.key_fingerprint` says; `retired_keys` are those that were, and with `is_rekeying` something in the database
may still be sealed with the last of them.

    the full node that is asked                          every other node that is connected
      new key behind the old one in its file
      POST /key: the new key ────────────────────────────► behind the old one in its file
        one that doesn't confirm ends it here
      one commit: every document sealed anew,
        key_fingerprint, retired_keys, is_rekeying
      new key first in its file: it seals                  the same, as it reads that commit
      history of the database sealed anew
      is_rekeying ends
      its own history and files sealed anew,               the same
        the old key out of its file

Until the commit nothing is sealed with the new key; after it the old one stays in each file for as long as something
there, or in the database, is sealed with it. So it may be killed between any two steps: `cluster rekey` then begins
with a new key, or finishes what it had begun.

**A node that was away** gets documents that are sealed with a key that it lacks. It takes no such commit, and makes
none, before it has asked a full node for the key, with its certificate. Nor is a document taken that was sealed with a
retired key meanwhile: the database refuses it (`migrations/0009_rekeying.sql`).

An edge node gets the key as it does when it joins, since it opens the passwords of upstreams.
"""
