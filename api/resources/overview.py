"""The first screen in one response."""

from __future__ import annotations

from api.call import Call, Document, Reply
from api.http.query import Query, choice
from api.services.overview import RANGES, Sight


class OverviewRange(Query):
    """The time that lists and series look back on."""

    range: str = choice("What is used most in the last 5 minutes, hour or day, and the series", tuple(RANGES), "1h")


def overview(call: Call) -> Reply:
    """Show the state of everything at a glance.

    Returns health, current metrics with a short series, proxies by state, what is used most, and what needs attention.
    Parts that the caller has no permission for are null. Poll it with `If-None-Match`; it is made once a second for
    all.
    """
    caller = call.caller
    scope = None if caller.scope is None else tuple(sorted(caller.scope))
    sight = Sight(
        metrics=caller.may("metrics.read"),
        proxies=caller.may("proxy.read"),
        settings=caller.may("settings.read"),
        users=caller.may("users.read"),
        scope=scope,
    )
    return Reply({}, document=Document(call.services.overviews.get(sight, call.query.range), "application/json"))
