"""Signing in and out, with a password or at an identity provider, and API keys."""

from __future__ import annotations

from api.operations import query_parameters
from api.operations.operation import ANY, BEARER, NONE, PERSON, V1, Operation
from api.resources import api_keys as key_handlers
from api.resources import auth, oauth
from api.security.permissions import ADMIN
from api.services import api_keys

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        f"{V1}/auth/login",
        NONE,
        "login",
        "Sign in",
        auth.login,
        auth.Login,
        description=(
            "Exchanges a user name and a password for an access token and a refresh token. After too many "
            "failures for one user from one address, sign-ins are refused with 429 for 15 minutes."
        ),
    ),
    Operation(
        "POST",
        f"{V1}/auth/refresh",
        NONE,
        "refreshToken",
        "Get new tokens",
        auth.refresh,
        auth.Refresh,
        description=(
            "Exchanges a refresh token for a new access token and a new refresh token. A refresh token is valid "
            "once; using an old one again revokes all tokens of that sign-in."
        ),
    ),
    Operation(
        "POST",
        f"{V1}/auth/validate",
        BEARER,
        "validateToken",
        "Validate an access token",
        auth.validate,
        description=(
            "Checks the signature and the expiry of the access token in `Authorization` and returns its owner "
            "and permissions. An expired token is answered with 401 `TOKEN_EXPIRED`."
        ),
    ),
    Operation(
        "POST",
        f"{V1}/auth/logout",
        BEARER,
        "logout",
        "Sign out",
        auth.logout,
        description=(
            "Revokes the access token in `Authorization` and its refresh tokens. Both stay revoked after a restart."
        ),
    ),
    Operation(
        "GET",
        f"{V1}/auth/oauth2/authorize",
        NONE,
        "authorizeOAuth2",
        "Start a sign-in at an identity provider",
        oauth.authorize,
        description=(
            "Redirects to the identity provider with state, nonce and PKCE challenge. With `Accept: "
            "application/json` it returns the address instead of redirecting."
        ),
        query=query_parameters.AUTHORIZE,
        redirects=True,
        asks_elsewhere=True,
    ),
    Operation(
        "POST",
        f"{V1}/auth/oauth2/callback",
        NONE,
        "finishOAuth2",
        "Finish a sign-in at an identity provider",
        oauth.callback,
        oauth.OAuthCallback,
        asks_elsewhere=True,
        description=(
            "Exchanges the code and the state from the identity provider for tokens of this API. A first sign-in "
            "creates a user of role `user`, unless `auth.oauth2.auto_create` is off."
        ),
    ),
    Operation(
        "POST",
        f"{V1}/auth/signing-key/rotate",
        ADMIN,
        "rotateSigningKey",
        "Rotate the signing key of access tokens",
        auth.rotate_signing_key,
        auth.RotateKey,
        description=(
            "Signs new access tokens with a new key. Tokens signed with the previous key stay valid until they "
            "expire, unless `revoke_previous` is true."
        ),
        optional_body=True,
    ),
    Operation(
        "GET",
        f"{V1}/auth/test",
        ANY,
        "testAuth",
        "Show who the caller is",
        auth.who_am_i,
        description=(
            "Returns the identity behind the credentials of this request: a key with its permissions, or a user. "
            "It changes nothing, so a client can use it to check its credentials."
        ),
        scoped=True,
    ),
    Operation(
        "GET",
        f"{V1}/api-keys",
        PERSON,
        "listApiKeys",
        "List API keys",
        key_handlers.list_keys,
        description=(
            "Returns the API keys of the caller, and those of all users for an administrator. Only the prefix of "
            "a key is shown."
        ),
    ),
    Operation(
        "POST",
        f"{V1}/api-keys",
        PERSON,
        "createApiKey",
        "Create an API key",
        key_handlers.create_key,
        api_keys.ApiKeyCreate,
        api_keys.READ_ONLY_FIELDS,
        description=(
            "Creates a key with some of the permissions of its owner, optionally limited to proxies and client "
            "networks. The key is in this response only; it cannot be shown again."
        ),
        status=201,
    ),
    Operation(
        "POST",
        f"{V1}/api-keys/{{key_id}}/rotate",
        PERSON,
        "rotateApiKey",
        "Rotate an API key",
        key_handlers.rotate_key,
        api_keys.ApiKeyRotate,
        description=(
            "Creates a key with the name, the permissions, the scope and the lifetime of this one, and revokes this "
            "one at once or after `grace` seconds. Only its owner can rotate a key. The new key is in this response "
            "only."
        ),
        status=201,
        optional_body=True,
    ),
    Operation(
        "DELETE",
        f"{V1}/api-keys/{{key_id}}",
        PERSON,
        "revokeApiKey",
        "Revoke an API key",
        key_handlers.revoke_key,
        description=(
            "Revokes the key at once: the next request with it gets 401 `INVALID_API_KEY`. A key cannot be restored."
        ),
    ),
)
