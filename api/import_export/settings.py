"""Planning of settings: of those that the document names, the ones that differ from the effective ones.

An export names those that were set through the API, since the others are the configuration file's. They are never
pruned: `proxyfleet reset-settings` forgets them.
"""

from __future__ import annotations

from dataclasses import replace

from api.import_export.diff import differences
from api.import_export.plan import ImportRequest, PlanContext, Problems, SettingsStep
from api.import_export.state import State
from api.services.proxies import ProxyRules
from config.settings.runtime import ReadOnlySetting, Stored, changes, merge, visible_settings


def plan_settings(
    state: State, request: ImportRequest, context: PlanContext, problems: Problems
) -> SettingsStep | None:
    """None when the document has no settings."""
    wanted = request.document.settings
    if wanted is None:
        return None
    try:
        changed = changes(context.settings, wanted)
    except ReadOnlySetting as error:
        problems.add(f"settings.{error.field}", error.error)
        return None
    now = visible_settings(context.settings)
    before = {group: {key: now[group][key] for key in values} for group, values in changed.items()}
    return SettingsStep(changed, merge(state.settings, changed), differences(before, changed))


def rules_with(changed: Stored, now: ProxyRules) -> ProxyRules:
    """The settings that new proxies have, with changes of them. `proxy.workers` is the configuration file's alone."""
    proxy = changed.get("proxy", {})
    return replace(now, **{name: proxy[name] for name in ("default_timeout", "sleep_after") if name in proxy})
