"""Who sends a request: by its credentials, by the client's certificate, or by no more than a name.

The outcome is a `ClientIdentity`. One that is known at once is reported to the session in the same call, and the
commands that follow are returned; a later one is reported when it is known, and the commands are executed then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.forwarding.connections.client_connection import ClientConnection
from actors.forwarding.decision import ANONYMOUS, ClientIdentity, understood, unknown_parameters
from actors.forwarding.isolation import isolated
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import Authorize, Command, is_secret
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.reporting import trace

if TYPE_CHECKING:
    from actors.accounts.records import CredentialRecord
    from actors.bus.messages.specs import ClientTlsSpec
    from actors.forwarding.access.authenticator import Tester


class Check:
    """A check of credentials that is under way. It references the client only while the client waits for it."""

    __slots__ = ("_client", "_immediate", "client_ip", "commands", "name_alone", "tester")

    def __init__(self, client: ClientConnection, tester: Tester | None, name_alone: str | None) -> None:
        """`tester` is the test that has sent it. `name_alone`: the name that came where the protocol has no passwords;
        None elsewhere."""
        self._client: ClientConnection | None = client
        self._immediate = True
        self.tester = tester
        self.name_alone = name_alone
        self.client_ip = client.client_ip
        self.commands: list[Command] | None = None
        """The commands that follow from a result that was known at once."""

    @property
    def waits(self) -> bool:
        """See `Requester`."""
        client = self._client
        return client is not None and client.pending_auth is self and client.waits

    def __call__(
        self, user: str | None, credential: CredentialRecord | None = None, failure: Failure | None = None, /
    ) -> None:
        """The result: the user, or None for no, and the credential if one was used; or why there is no result."""
        client = self._end()
        # A late result must not count for a later request.
        if client is None or client.closed or not client.session.authorizing:
            return
        if self._immediate:
            self.commands = _on_result(client, self, user, credential, failure)
        else:
            _on_late_result(client, self, user, credential, failure)

    def gone(self) -> None:
        """End the connection: nothing was checked, since the client no longer waited at its turn."""
        client = self._end()
        if client is not None:
            client.end("connection_terminated")

    def defer(self) -> None:
        """Execute what follows from the result when it comes, instead of returning it."""
        self._immediate = False

    def cancel(self) -> None:
        """Ignore the result: the client has gone."""
        self._client = None

    def _end(self) -> ClientConnection | None:
        """The client, if it is still this check that it waits for."""
        client, self._client = self._client, None
        if client is None or client.pending_auth is not self:
            return None
        client.pending_auth = None
        return client


def authorize(client: ClientConnection, command: Authorize) -> list[Command] | None:
    """Have the credentials checked; `authorized` may be called at once or later."""
    context = client.context
    wants_credentials = context.policy.session.wants_credentials
    if context.client_tls is not None and command.user is None and wants_credentials:
        commands = _authorize_by_certificate(client, context.client_tls)
        if commands is not None:
            return commands
    tester = context.testers.redeem(command.user, command.password)
    user = command.user if tester is not None or context.names is None else _account_in(client, command)
    name_alone = user if command.password is None and tester is None and wants_credentials else None
    check = client.pending_auth = Check(client, tester, name_alone)
    if tester is not None:
        check(tester.user)
    elif wants_credentials:
        context.authenticator.check(user, command.password, check, check, check.gone, command.target)
    else:
        check("")
    check.defer()
    return check.commands


def _account_in(client: ClientConnection, command: Authorize) -> str | None:
    """The user name without its parameters, which the request keeps; None without a user name."""
    if command.user is None:
        return None
    account, parameters, problem = understood(client.context, command.user, command.password is None)
    named = "" if is_secret(account.encode()) else account
    client.request.identity = ClientIdentity(named=named, parameters=parameters)
    if client.context.debug and (parameters.text or parameters.unknown or problem):
        trace.note(client.id, "user name: %s", problem or f"parameters {parameters.recorded}")
    return account


def _on_result(
    client: ClientConnection,
    check: Check,
    user: str | None,
    credential: CredentialRecord | None,
    failure: Failure | None,
) -> list[Command]:
    context, read = client.context, client.request.identity
    if user is None and not context.policy.session.wants_credentials:
        user, failure = "", None  # no credentials are wanted here, or not any more
    if read.parameters.unknown and user is not None:
        failure = unknown_parameters(context, read.parameters)
    if failure is not None:
        return client.session.unchecked(failure, client.loop.now)
    if context.debug:
        trace.note(
            client.id,
            "authenticated as %r" if user is not None else "wrong or no credentials%s",
            user or "",
        )
    if user or check.tester is not None or read is not ANONYMOUS:
        client.request.identity = ClientIdentity(
            user or "",
            context.authenticator.stored(user or ""),
            credential,
            tester=check.tester,
            by_name=bool(user) and check.name_alone == user,
            named=read.named,
            parameters=read.parameters,
        )
    return client.session.authorized(user, client.loop.now)


@isolated
def _on_late_result(
    client: ClientConnection,
    check: Check,
    user: str | None,
    credential: CredentialRecord | None,
    failure: Failure | None,
) -> None:
    client.execute(_on_result(client, check, user, credential, failure))
    client.pump()


def _authorize_by_certificate(client: ClientConnection, wanted: ClientTlsSpec) -> list[Command] | None:
    """Authenticate the client by its certificate. None: that says nothing, and credentials are needed as ever."""
    from actors.forwarding.access.directory import read_peer

    context, session = client.context, client.session
    if client.peer_certificate is None:
        client.peer_certificate = read_peer(client.sock)
    peer = client.peer_certificate
    if peer is None:
        return None
    found = context.directory.certified_user(peer, context.clock())
    if isinstance(found, Failure):
        if found is failures.ACCOUNTS_UNAVAILABLE:
            return session.unchecked(found, client.loop.now)
        if context.debug:
            trace.note(client.id, "%s%s", found.detail, "" if wanted.required else ": it needs other credentials")
        return session.unchecked(found, client.loop.now) if wanted.required else None
    if context.debug:
        trace.note(client.id, "authenticated as %r%s", found, " by its certificate")
    client.request.identity = ClientIdentity(found, context.authenticator.stored(found), certificate=peer)
    return session.authorized(found, client.loop.now)
