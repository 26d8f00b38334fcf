"""Backups: one archive with everything that must outlive the product, and the way back.

A backup is made while the product runs, by reading what it has on the disk. Each database is copied by SQLite in one
step, the fleet's file between two readings of the keys that are alike, so that they open what it has sealed. Left out
are the responses that are kept for `Idempotency-Key`, and access records unless they are asked for.

The archive (made by `create`, read by `archive`) is a gzipped tar: `manifest.json` first, with the SHA-256 of each
file, then the files. The key files are sealed under a passphrase, and the seal covers the manifest, so
that any alteration of the archive is detected; or they are left out, and such an archive can be restored where the
keys still are. Of a node of a fleet there is the replica, and nothing of `data/cluster`, which no other machine may be:
what is restored stands alone, as after `cluster leave`.

A restore reads and checks the whole archive beside the data and reports what differs (`restore`), and then replaces
whole folders (`atomic_swap`). Until one rename nothing has happened, and after it the
next start completes the rest; so a restore that is killed leaves the old state or the new one, and nothing between.
"""
