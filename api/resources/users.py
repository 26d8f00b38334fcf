"""Users of the management API."""

from __future__ import annotations

import threading

from api import users
from api.http.call import Call, Reply
from api.http.errors import invalid, lacks_permission
from api.security.permissions import first_not_held

_one_create = threading.Lock()
"""Names are unique because one user is created at a time."""


def list_users(call: Call) -> Reply:
    """All of them, oldest first."""
    found = [users.load(document) for document in call.services.store.find(users.COLLECTION)]
    found.sort(key=lambda user: (user.created_at, user.id))
    return Reply({"users": [user.view() for user in found], "total": len(found)})


def create_user(call: Call) -> Reply:
    """A new user who has nothing that the creator hasn't."""
    user = users.new_user(call.body)
    missing = first_not_held(call.caller.permissions(), user.granted())
    if missing is not None:
        raise lacks_permission(missing, by_key=False)
    store = call.services.store
    with _one_create:
        if users.by_name(store, user.username) is not None:
            raise invalid("username", f"the user name {user.username!r} is in use")
        document = store.put(users.COLLECTION, user.model_dump(mode="json"), expect=0)
    about = {"user_id": user.id, "username": user.username, "role": user.role}
    call.services.publish("user.created", about)
    return Reply({"user": user.view()}, 201, document.revision)
