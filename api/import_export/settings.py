"""Planning of settings: of those that the document names, the ones that differ from the effective ones.

An export names those that were set through the API, since the others are the configuration file's. They are never
pruned; a minimal document with settings forgets those that it leaves out, as `proxyfleet settings unset` does.
"""

from __future__ import annotations

from dataclasses import replace

from api.import_export.diff import differences
from api.import_export.plan import ImportRequest, PlanContext, Problems, SettingsStep
from api.import_export.state import State
from api.services.proxies import ProxyRules
from config.settings.runtime import ReadOnlySetting, SettingsUpdate, Stored, changes, merge, visible_settings


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
    forgotten = _left_out(state.settings, wanted) if request.document.minimal else {}
    kept = {
        group: {key: value for key, value in values.items() if key not in forgotten.get(group, {})}
        for group, values in state.settings.items()
    }
    stored = {group: values for group, values in merge(kept, changed).items() if values}
    changed = merge(changed, forgotten)
    before = {group: {key: now[group][key] for key in values} for group, values in changed.items()}
    return SettingsStep(changed, stored, differences(before, changed))


def _left_out(stored: Stored, wanted: SettingsUpdate) -> Stored:
    """The overrides that the document does not have, as null: the configuration's values are to apply again."""
    given = wanted.model_dump(exclude_none=True)
    left = {group: dict.fromkeys(values.keys() - given.get(group, {}).keys()) for group, values in stored.items()}
    return {group: values for group, values in left.items() if values}


def rules_with(changed: Stored, now: ProxyRules) -> ProxyRules:
    """The settings that new proxies have, with changes of them. `proxy.workers` is the configuration file's alone."""
    proxy = changed.get("proxy", {})
    known = {name: proxy[name] for name in ("default_timeout", "sleep_after") if proxy.get(name) is not None}
    return replace(now, **known)
