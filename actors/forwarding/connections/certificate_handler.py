"""Authentication by the client's certificate, for requests without credentials. Loaded only where one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.forwarding.access.peer_certificate import PeerCertificate, read_peer
from actors.forwarding.limits.held_accounts import UnreadableError
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import Command
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.reporting import trace

if TYPE_CHECKING:
    from actors.bus.messages.specs import ClientTlsSpec
    from actors.forwarding.connections.client_connection import ClientConnection


def authorize_by_certificate(client: ClientConnection, wanted: ClientTlsSpec) -> list[Command] | None:
    """Authenticate the client by its certificate. None: that says nothing, and credentials are needed as ever."""
    peer = _peer_of(client)
    if peer is None:
        return None
    try:
        found = _account_of(client, peer)
    except UnreadableError:
        return client.session.unchecked(failures.ACCOUNTS_UNAVAILABLE, client.loop.now)
    if isinstance(found, Failure):
        if client.context.debug:
            trace.note(client.id, "%s%s", found.detail, "" if wanted.required else ": it needs other credentials")
        return client.session.unchecked(found, client.loop.now) if wanted.required else None
    if client.context.debug:
        trace.note(client.id, "authenticated as %r%s", found, " by its certificate")
    request = client.request
    request.user, request.certificate = found, peer
    request.verified_hash = client.context.authenticator.stored(found)
    return client.session.authorized(found, client.loop.now)


def still_certified(client: ClientConnection, peer: PeerCertificate, user: str) -> bool:
    """Whether the certificate is still that of this account."""
    try:
        return _account_of(client, peer) == user
    except UnreadableError:
        return False


def _peer_of(client: ClientConnection) -> PeerCertificate | None:
    if client.peer_certificate is None:
        client.peer_certificate = read_peer(client.sock)
    return client.peer_certificate


def _account_of(client: ClientConnection, peer: PeerCertificate) -> str | Failure:
    """The name of the account, or why the certificate is none's. Raises `UnreadableError`."""
    if peer.ends <= client.context.clock():
        return failures.certificate_unmatched("has expired")
    names = client.context.directory.certified(peer)
    if len(names) > 1:
        return failures.certificate_unmatched("matches several accounts", ", ".join(names))
    return names[0] if names else failures.certificate_unmatched("matches no account", " ".join(peer.entries))
