"""The session word of a user name: `alice-session-42` is the account `alice`, and `42` chooses the upstream.

The word keeps one client of many on one upstream (and so on one external address) for as long as it is used; another
word leads to another upstream. It is part of the user name since that is all that every client can set.
"""

from __future__ import annotations

MARK = "-session-"


def split_session(username: str) -> tuple[str, str | None]:
    """The account and the session word in `username`, None without one.

    An account of that very name comes first: split only what is no account as it stands.
    """
    account, mark, word = username.rpartition(MARK)
    return (account, word) if mark and account and word else (username, None)
