"""The sign-ins and keys that end when a user is deleted or disabled, or has a new password: revoked in the same commit.

With two commits, a crash between them would leave a new password, and tokens that were issued for the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from api.security import api_keys, tokens
from api.security.api_keys import ApiKey
from api.store import NotStored, Store, Write


def commit_and_revoke(
    store: Store, writes: Sequence[Write], signed_out: Iterable[str], gone: Iterable[str] = ()
) -> tuple[list[int], list[ApiKey]]:
    """Commit `writes`, delete all sign-ins of the users `signed_out` and `gone` (ids), and all keys of `gone`.

    Returns the revisions of `writes`, and the keys that were revoked. The caller holds `users.one_change`, so that no
    sign-in or key is added meanwhile. Raises as `Store.commit`.
    """
    without_keys = tuple(gone)
    users = (*signed_out, *without_keys)
    while True:
        families = [each.id for user in users for each in store.find(tokens.COLLECTION, user_id=user)]
        keys = [each for user in without_keys for each in store.find(api_keys.COLLECTION, user_id=user)]
        ended = [Write(tokens.COLLECTION, family, None) for family in families]
        ended += [Write(api_keys.COLLECTION, key.id, None) for key in keys]
        try:
            revisions = store.commit([*writes, *ended])
        except NotStored as error:
            if any((each.collection, each.id) == (error.collection, error.identifier) for each in writes):
                raise
            continue  # a sign-in or a key has ended in the meantime
        return revisions[: len(writes)], [api_keys.load(key) for key in keys]
