"""The nodes of a fleet: `proxyfleet nodes …`."""

from __future__ import annotations

from api.cli.commands import Given, Session, command, new_group
from api.cli.documents import body_of
from api.cli.options import argument, choice, text, texts
from api.cli.quantities import seconds
from api.cli.terminal import titled
from config.model.nodes import NodeRole


def _ttl(given: str) -> int:
    return seconds(given, "--ttl")


nodes = new_group("nodes", "Nodes of a fleet.")
_TOKEN = {
    "name": text("--name", "The name of the node; without one it names itself."),
    "role": choice("--role", "A full node has the management API, an edge node only forwards.", NodeRole),
    "tags": texts("--tag", "A tag of the node, by which proxies select it; may be given several times."),
    "ttl": text("--ttl", "How long it is good: 30m, 2d, at most 7d; by default 1h.", metavar="SPAN", parse=_ttl),
}


@command(nodes, "token", _TOKEN)
def create_token(session: Session, fields: Given) -> None:
    """Make a token: one line by which one machine can join, `proxyfleet cluster join`."""
    data = session.api.post("/nodes/tokens", body_of(fields))
    session.out.data(data, lambda: session.out.line(data["line"]))


@command(nodes, "tokens")
def list_tokens(session: Session) -> None:
    """List tokens; none has its secret."""
    data = session.api.get("/nodes/tokens")
    columns = titled("id", "role", "name", "tags", "expires_at", "used_by")
    session.out.data(data, lambda: session.out.table(columns, data["tokens"], "There are no tokens."))


@command(nodes, "revoke-token", {"token": argument("TOKEN_ID", "The id of a token, tok_…")})
def revoke_token(session: Session, token: str) -> None:
    """Revoke a token: no machine can join by it any more."""
    data = session.api.delete(f"/nodes/tokens/{token}")
    session.out.done(data, f"{token} is revoked.")
