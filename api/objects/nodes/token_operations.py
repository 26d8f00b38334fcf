"""What can be done with the tokens by which machines join the fleet. Only the response to a create has the secret."""

from __future__ import annotations

from typing import Any

from api.call import Call, Reply
from api.engine.operation import V1, create, delete, get, resource
from api.engine.records import view_of
from api.engine.responses import ResponseModel, Revoked, all_of, shows
from api.errors import Invalid, NotFound
from api.security.permissions import ADMIN
from api.store import Write
from config.model.nodes.tokens import (
    COLLECTION,
    LONGEST,
    MAX_TOKENS,
    NodeTokenCreate,
    NodeTokenRecord,
    TokenLine,
    new_token,
)


@shows(NodeTokenRecord)
class NodeTokenView(ResponseModel):
    """A token by which one machine can join the fleet. `used_by` is the id of the node that has."""


class NewNodeToken(ResponseModel):
    """A new token; `line` is what `proxyfleet cluster join` takes, in this response only."""

    token: NodeTokenView
    line: str


def list_tokens(call: Call) -> Reply:
    """List tokens for joining.

    Returns the tokens that were made, also those that are used or over, a week long. None has its secret.
    """
    call.services.nodes.all()  # which raises `NotAFleet`
    views = [view_of(each) for each in _all(call)]
    return Reply({"tokens": views, "total": len(views)})


def create_token(call: Call) -> Reply:
    """Create a token for joining.

    One machine can join the fleet by it, as a node of this role and with these tags, until its time is over. The line
    is in this response only.
    """
    call.services.nodes.all()  # which raises `NotAFleet`
    now, body = call.services.node.clock(), call.body
    fingerprint, address = call.services.node.invitation()
    if not address:
        raise Invalid(None, "the asked node has no address `internal`, at which another machine could ask it: set one")
    record, secret = new_token(body, now)
    known = _all(call)
    old = [each for each in known if each.expires_at < now - LONGEST]
    if len(known) - len(old) >= MAX_TOKENS:
        raise Invalid(None, f"there are at most {MAX_TOKENS} tokens: revoke one first")
    call.services.store.commit(
        [
            Write(COLLECTION, record.id, record.model_dump(mode="json"), 0),
            *(Write(COLLECTION, each.id, None) for each in old),
        ]
    )
    line = TokenLine(fingerprint, record.id, secret, address).text
    return Reply({"token": view_of(record), "line": line}, 201, headers={"Cache-Control": "no-store"})


def revoke_token(call: Call) -> Reply:
    """Revoke a token for joining.

    No machine can join by it any more. A node that has joined by it stays.
    """
    call.services.nodes.all()  # which raises `NotAFleet`
    document = call.services.store.get(COLLECTION, call.params["token_id"])
    if document is None:
        raise NotFound("The token")
    call.services.store.delete(COLLECTION, document.id)
    return Reply({"id": document.id, "revoked": True})


def _all(call: Call) -> list[NodeTokenRecord]:
    found: list[Any] = call.services.store.find(COLLECTION)
    return sorted((NodeTokenRecord.model_validate(each.body) for each in found), key=lambda each: each.created_at)


ROWS = resource(f"{V1}/nodes/tokens", read=ADMIN, write=ADMIN)(
    get("", "listNodeTokens", list_tokens, all_of("NodeTokens", "tokens", NodeTokenView), errors=(409,)),
    create("", "createNodeToken", create_token, NewNodeToken, body=NodeTokenCreate, errors=(409,)),
    delete("/{token_id}", "revokeNodeToken", revoke_token, Revoked, errors=(409,)),
)
