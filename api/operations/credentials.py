"""Signing in and out, with a password or at an identity provider, and API keys."""

from __future__ import annotations

from api.engine.operation import ANY, BEARER, NONE, PERSON, V1, create, delete, get, post, resource
from api.openapi.schemas.base import Message, Revoked
from api.openapi.schemas.keys import ApiKeys, NewApiKey, RotatedApiKey
from api.openapi.schemas.sign_in import (
    Authorization,
    EndedSession,
    Redirected,
    Sessions,
    SignedIn,
    SignInMethods,
    TokenPair,
    ValidToken,
    WhoAmI,
)
from api.openapi.schemas.system import RotatedKey
from api.resources import api_keys as keys
from api.resources import auth, oauth, sessions
from api.security.api_keys import READ_ONLY_FIELDS, ApiKeyCreate, ApiKeyRotate
from api.security.permissions import ADMIN

TABLE = (
    *resource(f"{V1}/auth")(
        get("/methods", "getSignInMethods", sessions.sign_in_methods, SignInMethods, NONE),
        post("/login", "login", auth.login, SignedIn, NONE, body=auth.Login, session_cookie=True),
        post(
            "/refresh",
            "refreshToken",
            auth.refresh,
            TokenPair,
            NONE,
            body=auth.Refresh,
            optional_body=True,
            session_cookie=True,
            audit=False,
        ),
        post("/validate", "validateToken", auth.validate, ValidToken, BEARER, audit=False),
        post("/logout", "logout", auth.logout, Message, BEARER, session_cookie=True),
        post("/first-password/keep", "keepFirstPassword", auth.keep_first_password, Message, BEARER),
        get("/sessions", "listSessions", sessions.list_own, Sessions, PERSON),
        delete("/sessions/{session_id}", "endSession", sessions.end_own, EndedSession, PERSON),
        get(
            "/oauth2/authorize",
            "authorizeOAuth2",
            oauth.authorize,
            Authorization,
            NONE,
            query=oauth.Authorize,
            redirects=True,
            session_cookie=True,
            errors=(502,),
        ),
        post(
            "/oauth2/callback",
            "finishOAuth2",
            oauth.callback,
            SignedIn,
            NONE,
            body=oauth.OAuthCallback,
            session_cookie=True,
            errors=(502,),
        ),
        get(
            "/oauth2/callback",
            "returnFromOAuth2",
            oauth.browser_callback,
            Redirected,
            NONE,
            query=oauth.Returned,
            redirects=True,
            session_cookie=True,
            errors=(401, 502),
        ),
        post(
            "/signing-key/rotate",
            "rotateSigningKey",
            auth.rotate_signing_key,
            RotatedKey,
            ADMIN,
            body=auth.RotateKey,
            optional_body=True,
        ),
        get("/test", "testAuth", auth.who_am_i, WhoAmI, ANY, scoped=True),
    ),
    *resource(f"{V1}/api-keys", read=PERSON, write=PERSON)(
        get("", "listApiKeys", keys.list_keys, ApiKeys),
        create("", "createApiKey", keys.create_key, NewApiKey, body=ApiKeyCreate, read_only=READ_ONLY_FIELDS),
        create(
            "/{key_id}/rotate", "rotateApiKey", keys.rotate_key, RotatedApiKey, body=ApiKeyRotate, optional_body=True
        ),
        delete("/{key_id}", "revokeApiKey", keys.revoke_key, Revoked),
    ),
)
