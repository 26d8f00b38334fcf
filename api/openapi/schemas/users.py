"""Views of users and of roles."""

from __future__ import annotations

from api.engine.responses import shows
from api.openapi.schemas.base import ResponseModel
from api.security.users import User


@shows(User)
class UserView(ResponseModel):
    """A user of the management API."""

    role: str
    permissions: list[str]
    oauth_provider: str | None


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
