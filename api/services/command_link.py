"""What the command line asks of the running API over the bus: a new password for a user who has lost theirs.

Nobody signs in for it. The run directory, which is the product's own user's (0700), is the protection.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from actors.bus.mailbox import Answer
from actors.bus.messages.common import Failed
from actors.bus.messages.users import PasswordReset, ResetPassword
from api.audit.context import on_behalf_of
from api.bus_bridge import LoopBridge
from api.container import Services
from api.operator.bootstrap import ADMINISTRATOR, WeakPassword
from api.services import users
from api.services.password_reset import OPERATION, UnknownUser, reset
from api.services.users import User
from api.store import StoreError
from config.files.paths import forget_initial_password

log = logging.getLogger(__name__)


class CommandLink:
    """For the loop thread of the API's process."""

    def __init__(self, services: Services, bridge: LoopBridge) -> None:
        self._services = services
        self._bridge = bridge

    def receive(self, message: Any, answer: Answer) -> bool:
        """Take a message of the command line; False when it is none."""
        if not isinstance(message, ResetPassword):
            return False
        # A new password is hashed and waits for the disk, which the loop's own thread must not do.
        threading.Thread(target=self._answer, args=(message, answer), name="reset-password", daemon=True).start()
        return True

    def _answer(self, message: ResetPassword, answer: Answer) -> None:
        reply = self._reset(message)
        self._bridge.call(lambda: answer(reply))

    def _reset(self, message: ResetPassword) -> PasswordReset | Failed:
        services = self._services
        try:
            with on_behalf_of("command_line", OPERATION):
                user, password = reset(services.store, message.username, message.password)
                self._after(user)
        except UnknownUser as error:
            return Failed(str(error), "username")
        except (WeakPassword, StoreError) as error:
            return Failed(str(error))
        return PasswordReset(user.status != "active", password)

    def _after(self, user: User) -> None:
        """The password is stored: what else comes with another one."""
        self._services.attempts.forget(user.username)
        self._services.publish("user.updated", users.about(user))
        log.warning("the password of %s was reset from the command line", user.username)
        if user.username == ADMINISTRATOR:
            try:
                forget_initial_password(self._services.data)
            except OSError as error:
                log.error("cannot remove the file with the first password: %s", error)
