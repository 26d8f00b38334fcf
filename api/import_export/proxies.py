"""Planning of proxies."""

from __future__ import annotations

import secrets as random
from collections.abc import Sequence
from typing import Any

from api.import_export.document import ProxyEntry
from api.import_export.entries import proxy_entry
from api.import_export.plan import ImportRequest, PlanContext, Problems, Step
from api.import_export.sealed_secrets import ProxySecrets, UpstreamSecret
from api.import_export.state import State, StoredRecord
from api.services.proxy_backend import with_backend
from api.services.proxy_cache import COLLECTION
from api.services.proxy_upstreams import with_upstreams
from api.store import StoreWriteError
from config.files.secret_box import SecretBox, SecretBoxError
from config.model.accounts import ProxyAccount, refuse_weak
from config.model.auth_backend import change_backend
from config.model.fields import InvalidProxy
from config.model.proxies import AuthInput, ProxyAuth, ProxyRecord, apply, blank_record
from config.model.proxy_certificates import check_certificate
from config.model.upstreams import PURPOSE, ProxyUpstream, refuse_circle

NOTHING_SEALED = ProxySecrets()

Stored = StoredRecord[ProxyRecord] | None


def plan_proxies(
    state: State, request: ImportRequest, context: PlanContext, problems: Problems
) -> list[Step[ProxyRecord]]:
    """A step for each entry, in their order; then, to prune, one for each proxy that has none."""
    entries = request.document.proxies
    if entries is None:
        return []
    steps, named = [], dict[str, int]()
    for index, entry in enumerate(entries):
        path = f"proxies[{index}]"
        if entry.name in named:
            problems.add(f"{path}.name", f"is the name of proxies[{named[entry.name]}], too")
            continue
        named[entry.name] = index
        step = _plan_one(state.proxies.get(entry.name), entry, path, request, context, problems)
        if step is not None:
            steps.append(step)
    if request.prune:
        steps += [_step("proxies", each, None) for name, each in sorted(state.proxies.items()) if name not in named]
    _refuse_addresses(state, steps, context, problems)
    return steps


def _plan_one(
    stored: Stored,
    entry: ProxyEntry,
    path: str,
    request: ImportRequest,
    context: PlanContext,
    problems: Problems,
) -> Step[ProxyRecord] | None:
    sealed = request.secrets.proxies.get(entry.name, NOTHING_SEALED)
    try:
        step = _step(path, stored, _wanted(stored, entry, sealed, context))
        if step.action != "unchanged" and step.after is not None:
            check_certificate(step.after, context.rules.tls)
    except InvalidProxy as error:
        problems.add(f"{path}.{error.field}", error.error)
        return None
    except SecretBoxError as error:
        raise StoreWriteError(str(error)) from error
    return step


def _step(path: str, stored: Stored, after: ProxyRecord | None) -> Step[ProxyRecord]:
    return Step("proxy", COLLECTION, path, stored, after, proxy_entry)


def _wanted(stored: Stored, entry: ProxyEntry, sealed: ProxySecrets, context: PlanContext) -> ProxyRecord:
    """The record as the entry describes it. Raises `InvalidProxy`, `SecretBoxError`."""
    known = _blank(entry, context) if stored is None else stored.record
    base = _with_secrets(known, entry, sealed, context)
    record = with_upstreams(apply(base, entry, context.now), entry, context.seal)
    if not context.weak_passwords:
        refuse_weak(entry.accounts or (), base.accounts, record.accounts)
    record = with_backend(record, entry, context.seal, makes=False)
    for index, given in enumerate(entry.upstreams or ()):
        if given.hides_password and record.upstreams[index].password is None:
            raise InvalidProxy(f"upstreams[{index}].auth.password", "is null, and no such password is known here")
    status = entry.status or ("active" if stored is None else known.status)
    return record.model_copy(update={"status": status})


def _blank(entry: ProxyEntry, context: PlanContext) -> ProxyRecord:
    for name in ("port", "protocol"):
        if getattr(entry, name) is None:
            raise InvalidProxy(name, "is required for a new proxy")
    return blank_record(
        "prx_" + random.token_hex(8),
        entry.name,
        entry.host or "127.0.0.1",
        entry.port or 0,
        entry.protocol or "",
        context.now,
        context.rules.default_timeout,
        context.rules.sleep_after,
        context.rules.workers,
    )


# --- secrets that come with the document --------------------------------------------------------------------------


def _with_secrets(record: ProxyRecord, entry: ProxyEntry, sealed: ProxySecrets, context: PlanContext) -> ProxyRecord:
    """`record` as if it had these secrets already, so that the entry keeps them where it gives none."""
    auth = record.auth
    if entry.auth is not None and entry.auth.password is None and sealed.auth is not None:
        auth = auth.model_copy(update={"password_hash": sealed.auth})
    if entry.auth is not None and "username" in entry.auth.model_fields_set and entry.auth.username is None:
        auth = auth.model_copy(update={"username": None, "password_hash": None})
    auth = _with_backend_secret(auth, entry.auth, sealed, context)
    if entry.accounts and not record.accounts and (entry.auth is None or entry.auth.enabled is None):
        auth = auth.model_copy(update={"enabled": True})  # as the first account does; here it may be known already
    return record.model_copy(
        update={
            "auth": auth,
            "accounts": _accounts(record.accounts, entry, sealed, context.now),
            "upstreams": _upstreams(record.upstreams, sealed.upstreams, context.seal),
        }
    )


def _with_backend_secret(
    auth: ProxyAuth, given: AuthInput | None, sealed: ProxySecrets, context: PlanContext
) -> ProxyAuth:
    if given is None or given.backend is None or given.backend.secret is not None or sealed.backend is None:
        return auth
    complete = given.backend.model_copy(update={"secret": sealed.backend})
    backend = change_backend(auth.backend, complete, context.seal)
    enabled = auth.enabled or (auth.backend is None and given.enabled is None)
    return auth.model_copy(update={"backend": backend, "enabled": enabled})


def _accounts(known: Sequence[ProxyAccount], entry: ProxyEntry, sealed: ProxySecrets, now: float) -> list[ProxyAccount]:
    """The known accounts and those that the entry adds, which may have expired already."""
    by_name = {account.username: account for account in known}
    for given in entry.accounts or ():
        account = by_name.get(given.username) or ProxyAccount(
            id="acc_" + random.token_hex(8), username=given.username, created_at=now
        )
        update: dict[str, Any] = {"expires_at": given.expires_at} if given.expires_at is not None else {}
        if given.password is None and given.username in sealed.accounts:
            update["password_hash"] = sealed.accounts[given.username]
        by_name[given.username] = account.model_copy(update=update)
    return list(by_name.values())


def _upstreams(
    known: Sequence[ProxyUpstream], sealed: Sequence[UpstreamSecret], seal: SecretBox
) -> list[ProxyUpstream]:
    by_identity = {upstream.identity: upstream for upstream in known}
    for each in sealed:
        identity = (each.protocol, each.host, each.port, each.username)
        before = by_identity.get(identity)
        if before is None:
            before = ProxyUpstream.model_validate({"name": each.host, **each.model_dump(exclude={"password"})})
        if before.password is None or seal.open(before.password, PURPOSE) != each.password:
            before = before.model_copy(update={"password": seal.seal(each.password, PURPOSE)})
        by_identity[identity] = before
    return list(by_identity.values())


# --- all of them together -----------------------------------------------------------------------------------------


def _refuse_addresses(
    state: State, steps: Sequence[Step[ProxyRecord]], context: PlanContext, problems: Problems
) -> None:
    """Circles of upstreams among the proxies as they would be, and upstreams and name servers that may not be used."""
    wanted = {name: stored.record for name, stored in state.proxies.items()}
    for step in steps:
        if step.after is None:
            del wanted[step.name]
        else:
            wanted[step.name] = step.after
    for step in steps:
        if step.after is None or step.action == "unchanged":
            continue
        try:
            if step.before is None or step.before.dns.servers != step.after.dns.servers:
                context.rules.upstream_policy.refuse_name_servers(step.after, wanted.values())
            if step.after.upstreams:
                refuse_circle(step.after, wanted.values())
            if step.before is None or step.before.upstreams != step.after.upstreams:
                context.rules.upstream_policy.refuse(step.after, wanted.values())
        except InvalidProxy as error:
            problems.add(f"{step.path}.{error.field}", error.error)
