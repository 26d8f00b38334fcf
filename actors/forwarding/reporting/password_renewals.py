"""Tells the API of new hashes: the right password has come for an account whose hash is foreign."""

from __future__ import annotations

import logging
from typing import Any

from actors.bus.mailbox import Mailbox
from actors.bus.messages.accounts import RenewPassword
from actors.bus.messages.common import API, Done

log = logging.getLogger(__name__)

REPLY_TIMEOUT = 10.0
UNDER_WAY_MAX = 16
"""Renewals that wait for a reply; those beyond come with a later sign-in."""


class PasswordRenewals:
    """Sends renewals, once each while they wait. What fails is tried again when the password comes again."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._under_way: set[str] = set()

    def send(self, account_id: str, previous: bytes, renewed: bytes) -> None:
        """See `ClientAuthenticator.on_renewed`."""
        if account_id in self._under_way or len(self._under_way) >= UNDER_WAY_MAX:
            return
        self._under_way.add(account_id)

        def on_reply(reply: Any) -> None:
            self._under_way.discard(account_id)
            if not isinstance(reply, Done):
                log.debug("the password of %s keeps its hash for now: %r", account_id, reply)

        message = RenewPassword(account_id, previous.decode("ascii"), renewed.decode("ascii"))
        self._mailbox.ask(API, message, on_reply, REPLY_TIMEOUT)
