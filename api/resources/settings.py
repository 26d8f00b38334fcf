"""The system settings: the four groups, as they are in force."""

from __future__ import annotations

from api.http.call import Call, Reply
from api.services.settings import Shown


def get_settings(call: Call) -> Reply:
    """What is in force, whoever said it."""
    shown = call.services.live.show()
    return Reply(dict(shown.groups), revision=shown.revision)


def update_settings(call: Call) -> Reply:
    """Partial and deep, for PUT as for PATCH. A new address is taken when this answer is on its way."""
    return _changed(call, *call.services.live.update(call.body, call.if_match))


def unset_setting(call: Call) -> Reply:
    """What the configuration says of it holds again; all settings as they are then."""
    return _changed(call, *call.services.live.unset(call.params["setting"], call.if_match))


def _changed(call: Call, shown: Shown, moved: bool) -> Reply:
    then = call.services.on_moved if moved else None
    return Reply(dict(shown.groups), revision=shown.revision, then=then)
