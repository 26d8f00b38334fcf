"""The system settings: the four groups, as they are in force."""

from __future__ import annotations

from api.http.call import Call, Reply


def get_settings(call: Call) -> Reply:
    """What is in force, whoever said it."""
    shown = call.services.live.show()
    return Reply(dict(shown.groups), revision=shown.revision)


def update_settings(call: Call) -> Reply:
    """Partial and deep, for PUT as for PATCH. A new address is taken when this answer is on its way."""
    shown, moved = call.services.live.update(call.body, call.if_match)
    then = call.services.on_moved if moved else None
    return Reply(dict(shown.groups), revision=shown.revision, then=then)
