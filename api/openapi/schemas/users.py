"""Views of users and of roles."""

from __future__ import annotations

from typing import Literal

from api.openapi.schemas.base import Moment, ResponseModel


class UserView(ResponseModel):
    """A user of the management API."""

    id: str
    username: str
    email: str | None
    role: str
    status: Literal["active", "disabled"]
    permissions: list[str]
    oauth_provider: str | None
    last_login: Moment | None
    created_at: Moment
    updated_at: Moment


class OneUser(ResponseModel):
    """A user."""

    user: UserView


class Users(ResponseModel):
    """Users, oldest first."""

    users: list[UserView]
    total: int


class Role(ResponseModel):
    """A role and its default permissions; `*` stands for all."""

    name: str
    permissions: list[str]


class Roles(ResponseModel):
    """All roles, and all permissions."""

    roles: list[Role]
    permissions: list[str]
