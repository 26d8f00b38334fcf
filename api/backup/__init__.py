"""Backups: one archive with everything that must outlive the product, and the way back.

A backup is made while the product runs, by reading what it has on the disk. Files of the configuration store are only
ever replaced, never altered; so when none of them was replaced while all were read, they are the configuration of one
moment (`snapshot`). The databases, that of accounts among them, are copied in a transaction each, after the store: the
audit trail has the row of every change that the copied store has. Left out are the responses that are kept for
`Idempotency-Key`, and access records unless they are asked for.

The archive (made by `create`, read by `archive`) is a gzipped tar: `manifest.json` first, with the SHA-256 of each
file, then the files. The key files are sealed under a passphrase (`sealed_keys`), and the seal covers the manifest, so
that any alteration of the archive is detected; or they are left out, and such an archive can be restored where the
keys still are.

A restore reads and checks the whole archive beside the data (`restore`), reports what differs (`current_state`,
`differences`), and then replaces whole folders (`atomic_swap`). Until one rename nothing has happened, and after it the
next start completes the rest; so a restore that is killed leaves the old state or the new one, and nothing between.
"""
