"""What a client connection makes of a user name that may have parameters: the account, and what the request gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.forwarding.access.username_parameters import Understood, UsernameReader
from actors.forwarding.connections.client_connection import ClientConnection
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import Authorize, is_secret
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.reporting import trace

if TYPE_CHECKING:
    from actors.forwarding.context import ForwardingContext


def account_in(client: ClientConnection, command: Authorize) -> str | None:
    """The user name without its parameters, which the request keeps; None without a user name."""
    if command.user is None:
        return None
    account, parameters, problem = understood(client.context, command.user, command.password is None)
    request = client.request
    request.parameters = parameters
    request.named = "" if is_secret(account.encode()) else account
    if client.context.debug and (parameters.text or parameters.unknown or problem):
        trace.note(client.id, "user name: %s", problem or f"parameters {parameters.recorded}")
    return account


def understood(
    context: ForwardingContext, username: str, name_alone: bool = False, names: UsernameReader | None = None
) -> Understood:
    """How a user name is read; `name_alone`: there is no password, and a credential's secret may stand for the account.

    `names` is another reader than that of now.

    Users that a back end may know have their parameters behind the first known name, as names of no account have.
    """
    names = names or context.names
    if names is None:
        return Understood(username)
    if not context.policy.session.wants_credentials:
        return names.understood(username, None, True)
    known = context.directory.exists

    def exists(name: str) -> bool:
        return known(name) or (name_alone and is_secret(name.encode()))

    return names.understood(username, exists, context.authenticator.backend.configured)


def unknown_parameters(client: ClientConnection) -> Failure | None:
    """Why a request with unknown parameters is refused; None where they have no effect."""
    names, unknown = client.context.names, client.request.parameters.unknown
    return failures.unknown_parameters(" ".join(unknown)) if names is not None and names.reject_unknown else None
