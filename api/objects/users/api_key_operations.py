"""The operations on API keys. Callers with an API key may not use them."""

from __future__ import annotations

from typing import Any

from api.call import Call, Reply
from api.engine.kind import Kind
from api.engine.operation import PERSON, V1, create, delete, get, resource
from api.engine.records import moment
from api.engine.responses import Moment, ResponseModel, Revoked, shows
from api.errors import Denied, Invalid, MissingPermission, NotFound, Unauthenticated
from api.objects.kinds import NAMED
from api.objects.named.list_kind import LISTS
from api.security import api_keys, users
from api.security.api_keys import ApiKey
from api.security.caller import Caller
from api.security.permissions import ADMIN, first_missing, holds
from api.store import RevisionConflict, Write, repeated
from api.store.accounts import ACCOUNTS


class KeyScope(ResponseModel):
    """The scope of a key; null or absent is no limit."""

    proxies: list[str] | None = None
    accounts: list[str] | None = None
    pools: list[str] | None = None
    policies: list[str] | None = None
    lists: list[str] | None = None
    ip_whitelist: list[str] | None = None


@shows(ApiKey)
class ApiKeyView(ResponseModel):
    """An API key without the key itself, which is only in the response to its creation."""

    scope: KeyScope | None


class ApiKeys(ResponseModel):
    """API keys, oldest first."""

    api_keys: list[ApiKeyView]
    total: int


class NewApiKey(ResponseModel):
    """A new API key and its text."""

    api_key: ApiKeyView
    key: str


class PreviousApiKey(ResponseModel):
    """The rotated key: revoked, or valid until `expires_at`."""

    id: str
    revoked: bool
    expires_at: Moment | None


class RotatedApiKey(NewApiKey):
    """The key that replaces the rotated one, and its text."""

    previous: PreviousApiKey


def list_keys(call: Call) -> Reply:
    """List API keys.

    Returns the API keys of the caller, and those of all users for an administrator. Of a key, only the prefix is
    returned.
    """
    found = call.services.store.find(api_keys.COLLECTION)
    keys = [api_keys.load(document) for document in found]
    own = [key for key in keys if _may_manage(call.caller, key)]
    own.sort(key=lambda key: (key.created_at, key.id))
    used = call.services.last_used.of
    views = [key.model_copy(update={"last_used": used(key.id)}).view() for key in own]
    return Reply({"api_keys": views, "total": len(own)})


def create_key(call: Call) -> Reply:
    """Create an API key.

    Creates a key with some of the permissions of its owner, optionally limited to proxies and client networks. The key
    is in this response only; it cannot be retrieved again.
    """
    caller = call.caller
    missing = first_missing(caller.permissions(), call.body.permissions or ())
    if missing is not None:
        raise MissingPermission(missing, by_key=False)
    _check_scope(call)
    record, text = api_keys.new_key(call.body, caller.user.id, caller.user.granted(), call.services.clock())
    store = call.services.store

    def check() -> None:
        owner = users.by_id(store, caller.user.id)
        if owner is None or owner.status != "active":
            raise Unauthenticated  # deleted or disabled since the request was authenticated
        _check_key_limit(call, owner.id)

    with users.one_change, store.rechecked(check):
        check()
        store.put(api_keys.COLLECTION, record.model_dump(mode="json"), expect=0)
    call.services.publish("api_key.created", api_keys.about(record))
    return Reply({"api_key": record.view(), "key": text}, 201, headers={"Cache-Control": "no-store"})


def rotate_key(call: Call) -> Reply:
    """Rotate an API key.

    Creates a key with the name, the permissions, the scope and the lifetime of this one, and revokes this one at once
    or after `grace` seconds. Only its owner can rotate a key. The new key is in this response only.
    """
    grace = call.body.grace
    with users.one_change:
        while True:
            document = call.services.store.get(api_keys.COLLECTION, call.params["key_id"])
            if document is None or not _may_manage(call.caller, key := api_keys.load(document)):
                raise NotFound("The API key")
            if key.user_id != call.caller.user.id:
                # With a new key of another user an administrator could act in that user's name.
                raise Denied("only its owner can rotate an API key")
            try:
                record, text, ends = _replaced(call, key, document.revision, grace)
                break
            except RevisionConflict:
                continue  # it was revoked at this moment
    call.services.publish("api_key.created", api_keys.about(record))
    if ends is None:
        call.services.publish("api_key.revoked", api_keys.about(key))
    previous = {"id": key.id, "revoked": ends is None, "expires_at": moment(ends)}
    data = {"api_key": record.view(), "key": text, "previous": previous}
    return Reply(data, 201, headers={"Cache-Control": "no-store"})


def _replaced(call: Call, key: api_keys.ApiKey, revision: int, grace: int) -> tuple[api_keys.ApiKey, str, float | None]:
    """The new key, its text, and when the old one ends; None: it is revoked. Raises as `Store.commit`."""
    now = call.services.clock()
    record, text = api_keys.rotated(key, now)
    ends = None if grace == 0 else min(now + grace, key.expires_at or now + grace)

    def check() -> None:
        if ends is not None:
            _check_key_limit(call, key.user_id)

    check()
    rest = None if ends is None else key.model_copy(update={"expires_at": ends}).model_dump(mode="json")
    collection = api_keys.COLLECTION
    new = Write(collection, record.id, record.model_dump(mode="json"), expect=0)
    with call.services.store.rechecked(check):
        call.services.store.commit([new, Write(collection, key.id, rest, expect=revision)])
    return record, text, ends


def revoke_key(call: Call) -> Reply:
    """Revoke an API key.

    Revokes the key at once: the next request with it gets 401 `INVALID_API_KEY`. A key cannot be restored.
    """
    key_id = call.params["key_id"]

    def revoke() -> ApiKey:
        document = call.services.store.get(api_keys.COLLECTION, key_id)
        if document is None or not _may_manage(call.caller, key := api_keys.load(document)):
            raise NotFound("The API key")  # also for a key of another user, so that its existence stays unknown
        call.services.store.delete(api_keys.COLLECTION, key_id, document.revision)
        return key

    call.services.publish("api_key.revoked", api_keys.about(repeated(revoke)))
    return Reply({"id": key_id, "revoked": True})


def _check_scope(call: Call) -> None:
    """Raises `Invalid` for a scope that would be good for nothing, or that names what is not there."""
    scope = call.body.scope
    if scope is None:
        return
    for kind in NAMED.values():
        if scope.named(kind.collection) is not None:
            _check_objects(call, scope, kind)
    if scope.accounts is not None:
        _check_account_scope(call, scope)


def _check_objects(call: Call, scope: api_keys.Scope, kind: Kind[Any]) -> None:
    field = f"scope.{kind.collection}"
    if scope.proxies is None and (scope.accounts is None or kind is not LISTS):
        beside = "scope.proxies or scope.accounts" if kind is LISTS else "scope.proxies"
        raise Invalid(field, f"is for a key with {beside}: without it a key reaches all {kind.collection}")
    if not call.caller.may("proxy.read"):
        raise Invalid(field, "needs proxy.read, which you don't have")
    known = {each.record.name for each in call.services.shared_objects.all(kind)}
    for index, name in enumerate(scope.named(kind.collection) or ()):
        if name not in known:
            raise Invalid(f"{field}[{index}]", f"there is no {kind.name} {name!r}")


def _check_account_scope(call: Call, scope: api_keys.Scope) -> None:
    permissions = call.body.permissions
    if scope.proxies is not None:
        raise Invalid("scope.proxies", "must not be given beside scope.accounts")
    if not holds(call.caller.permissions() if permissions is None else permissions, "proxy.write"):
        raise Invalid("permissions", "must have proxy.write, which scope.accounts needs")
    if not scope.accounts:
        raise Invalid("scope.accounts", "must name at least one account; leave it out for a key without this scope")
    for index, account_id in enumerate(scope.accounts):
        if not call.services.account_store.revision_of(ACCOUNTS, account_id):
            raise Invalid(f"scope.accounts[{index}]", f"there is no account {account_id!r}")


def _check_key_limit(call: Call, user_id: str) -> None:
    """Raises `Invalid` when the user has the maximum number of keys, expired ones included."""
    most = call.services.settings.auth.max_api_keys
    if len(call.services.store.find(api_keys.COLLECTION, user_id=user_id)) >= most:
        raise Invalid(None, f"a user has at most {most} API keys (auth.max_api_keys): revoke one first")


def _may_manage(caller: Caller, key: api_keys.ApiKey) -> bool:
    return key.user_id == caller.user.id or caller.may(ADMIN)


ROWS = resource(f"{V1}/api-keys", read=PERSON, write=PERSON)(
    get("", "listApiKeys", list_keys, ApiKeys),
    create("", "createApiKey", create_key, NewApiKey, body=api_keys.ApiKeyCreate, read_only=api_keys.READ_ONLY_FIELDS),
    create(
        "/{key_id}/rotate", "rotateApiKey", rotate_key, RotatedApiKey, body=api_keys.ApiKeyRotate, optional_body=True
    ),
    delete("/{key_id}", "revokeApiKey", revoke_key, Revoked),
)
