"""What ends with a user's password, their being active, or themself: in one step with the change that ends it.

Two steps would leave a crash between them: a password that is changed, and tokens of who knew the old one still good.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from api.security import api_keys, tokens
from api.security.api_keys import ApiKey
from api.store import NotStored, Store, Write


def commit_and_revoke(
    store: Store, writes: Sequence[Write], signed_out: Iterable[str], gone: Iterable[str] = ()
) -> tuple[list[int], list[ApiKey]]:
    """All of `writes`, and the end of all sign-ins of `signed_out`, users' ids, and `gone`, of these with their keys.

    The revisions of `writes`, and the keys that were revoked. The caller holds `users.one_change`, so that nobody signs
    in or makes a key meanwhile. Raises as `Store.commit`.
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
            continue  # somebody has signed out or revoked a key at this moment
        return revisions[: len(writes)], [api_keys.load(key) for key in keys]
