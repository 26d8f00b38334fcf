"""Signing in and out, with a password or at an identity provider, and API keys."""

from __future__ import annotations

from api import api_keys, queries
from api.operations.operation import ANY, BEARER, NONE, PERSON, V1, Operation
from api.resources import api_keys as key_handlers
from api.resources import auth, oauth
from api.security.permissions import ADMIN

OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", f"{V1}/auth/login", NONE, "login", "Sign in", auth.login, auth.Login),
    Operation("POST", f"{V1}/auth/refresh", NONE, "refreshToken", "Get new tokens", auth.refresh, auth.Refresh),
    Operation("POST", f"{V1}/auth/validate", BEARER, "validateToken", "Check a token", auth.validate),
    Operation("POST", f"{V1}/auth/logout", BEARER, "logout", "Sign out", auth.logout),
    Operation(
        "GET",
        f"{V1}/auth/oauth2/authorize",
        NONE,
        "authorizeOAuth2",
        "Go to the identity provider to sign in",
        oauth.authorize,
        query=queries.AUTHORIZE,
        redirects=True,
    ),
    Operation(
        "POST",
        f"{V1}/auth/oauth2/callback",
        NONE,
        "finishOAuth2",
        "Sign in with what the identity provider sent back",
        oauth.callback,
        oauth.OAuthCallback,
    ),
    Operation(
        "POST",
        f"{V1}/auth/signing-key/rotate",
        ADMIN,
        "rotateSigningKey",
        "Sign with a new key",
        auth.rotate_signing_key,
        auth.RotateKey,
        optional_body=True,
    ),
    Operation("GET", f"{V1}/auth/test", ANY, "testAuth", "Who am I", auth.who_am_i),
    Operation("GET", f"{V1}/api-keys", PERSON, "listApiKeys", "List API keys", key_handlers.list_keys),
    Operation(
        "POST",
        f"{V1}/api-keys",
        PERSON,
        "createApiKey",
        "Make an API key",
        key_handlers.create_key,
        api_keys.ApiKeyCreate,
        api_keys.READ_ONLY_FIELDS,
        status=201,
    ),
    Operation(
        "DELETE", f"{V1}/api-keys/{{key_id}}", PERSON, "revokeApiKey", "Revoke an API key", key_handlers.revoke_key
    ),
)
