"""The sign-ins and keys that end when a user is deleted or disabled, or has a new password: revoked in the same commit.

With two commits, a crash between them would leave a new password, and tokens that were issued for the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from api.engine.commit import Engine, size_of
from api.security import api_keys, tokens
from api.security.api_keys import ApiKey
from api.store import Write


def commit_and_revoke(
    engine: Engine, writes: Sequence[Write], signed_out: Iterable[str], gone: Iterable[str] = ()
) -> tuple[int, list[ApiKey]]:
    """Commit `writes`, delete all sign-ins of the users `signed_out` and `gone` (ids), and all keys of `gone`.

    Returns the number of the commit, and the keys that were revoked. The caller holds `users.one_change`, so that no
    sign-in or key is added meanwhile. Raises as `Store.commit`.
    """
    without_keys = tuple(gone)
    users = (*signed_out, *without_keys)
    with engine.exclusive(size_of(writes)):
        families = [each.id for user in users for each in engine.find(tokens.COLLECTION, user_id=user)]
        keys = [each for user in without_keys for each in engine.find(api_keys.COLLECTION, user_id=user)]
        ended = [Write(tokens.COLLECTION, family, None) for family in families]
        ended += [Write(api_keys.COLLECTION, key.id, None) for key in keys]
        return engine.commit([*writes, *ended]), [api_keys.load(key) for key in keys]
