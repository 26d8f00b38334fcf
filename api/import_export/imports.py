"""Carrying an import out, all of it or nothing.

In this order: the plan is made; with every other change held up, the supervisor binds all new addresses; the store
takes all documents in one step; what follows from that commit is done. Until the store has it nothing
has changed, and from then on a crash loses nothing, since each of them gets the whole state at its next start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from actors.bus.messages.common import SUPERVISOR
from actors.bus.messages.supervision import (
    CancelListeners,
    ListenerRefused,
    ListenerReserved,
    ReserveListener,
)
from api.bus_bridge import request
from api.container import Services
from api.engine.transfer import Planning
from api.errors import Invalid, StaleRevision
from api.import_export.account_entries import names_of, plan_accounts
from api.import_export.checks import refuse_invalid
from api.import_export.document import ConfigDocument
from api.import_export.minimal import completed
from api.import_export.plan import (
    PASSWORDS_MAX,
    ImportPlan,
    ImportRequest,
    Problems,
    Step,
    pending,
    plan_kind,
    plan_settings,
    rules_with,
)
from api.import_export.present_state import read_state
from api.objects import live_settings
from api.objects.kinds import KINDS
from api.objects.named.list_kind import LISTS
from api.objects.nodes.fleet_nodes import FleetNodes
from api.objects.users.user_kind import commit_and_revoke
from api.security import api_keys, users
from api.security.api_keys import ApiKey
from api.store import RevisionConflict, Write, repeated
from api.store.accounts import ACCOUNTS
from config.model.proxies import ProxyRecord
from config.net.names import Range


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was changed, or would be; `mark` is the ETag of the configuration.

    `revision` is the one that the change has made, if it has.
    """

    plan: ImportPlan
    mark: int
    revision: int | None = None


def run(services: Services, request: ImportRequest) -> Outcome:
    """Carry out an import, or try it. Raises `Invalid`, `StaleRevision`, `PeerUnavailable`, `StoreError`."""
    _refuse_too_many_passwords(request.document)
    return carry_out(services, lambda: make_plan(services, request), request.if_match, request.dry_run)


def carry_out(services: Services, make: Callable[[], ImportPlan], if_match: int | None, dry_run: bool) -> Outcome:
    """Carry out the plan that `make` makes, or try it. Raises as `run`, and what `make` raises."""
    return repeated(lambda: _carry_out(services, make, if_match, dry_run))


def _carry_out(services: Services, make: Callable[[], ImportPlan], if_match: int | None, dry_run: bool) -> Outcome:
    plan = make()  # before the locks, since hashing passwords takes long
    revoked: list[ApiKey] | None = None
    try:
        with _locked(services):
            if read_state(services.store).revisions != plan.state.revisions:
                plan = make()
            if if_match not in (None, plan.state.mark):
                raise StaleRevision(plan.state.mark)
            if not plan.pending() and not plan.changed_settings:
                return Outcome(plan, plan.state.mark)
            with _reserved_listeners(services, plan, keep=not dry_run):
                if dry_run:
                    return Outcome(plan, plan.state.mark)
                _prepare_lists(services, plan)
                services.self_service.end_sign_ins(ended_sign_ins(plan))
                with services.store.rechecked(lambda: _refuse_overtaken(services, plan)):
                    revoked = _commit(services, plan)
            outcome = Outcome(plan, read_state(services.store).mark, services.revisions.newest)
    finally:  # settings that can't be applied yet are stored, too
        if revoked is not None:
            _publish_events(services, plan, revoked)
    return outcome


def make_plan(services: Services, request: ImportRequest) -> ImportPlan:
    """The plan of an import. Raises `InvalidMany` with all errors, `StoreError`."""
    state, problems, now = read_state(services.store), Problems(), time.time()
    of_settings, rules = plan_settings(state, request, services.settings, problems), services.proxies.rules
    if of_settings is not None:
        rules = rules_with(of_settings.changed, rules)
    request = replace(request, document=completed(request.document, rules, problems))
    weak = services.settings.accounts.weak_passwords
    planning = Planning(services.seal, now, rules, request.secrets, problems.add, weak)
    of = {name: plan_kind(KINDS[name], found, request, planning, problems) for name, found in state.records.items()}
    names = names_of(state, of)
    of[ACCOUNTS] = plan_accounts(request, planning, services.account_store, names, problems)
    plan = ImportPlan(state, of, of_settings)
    refuse_invalid(services, plan, request.caller_id, problems)
    return plan


def _refuse_overtaken(services: Services, plan: ImportPlan) -> None:
    """Another node has changed something since: it is planned anew."""
    now = read_state(services.store)
    if now.revisions != plan.state.revisions:
        raise RevisionConflict("configuration", "", plan.state.mark, now.mark)


def _refuse_too_many_passwords(document: ConfigDocument) -> None:
    proxies = document.section("proxies") or []
    given = sum(entry.auth is not None and entry.auth.password is not None for entry in proxies)
    people = [account for entry in proxies for account in entry.accounts or ()]
    people += [entry for name in ("users", "accounts") for entry in document.section(name) or ()]
    given += sum(each.password is not None for each in people)
    if given > PASSWORDS_MAX:
        problems = Problems()
        problems.add("proxies", f"at most {PASSWORDS_MAX} passwords can be given in the clear; seal the others")
        problems.refuse()


@contextmanager
def _locked(services: Services) -> Iterator[None]:
    """Holds up all other changes."""
    with (
        services.live.lock,
        users.one_change,
        services.objects["webhooks"].hooks.lock(()),
        services.proxies.lock(),
        services.account_names.lock(),
    ):
        yield


# --- addresses ----------------------------------------------------------------------------------------------------


class _Listening(NamedTuple):
    """A proxy on this machine, before and after."""

    id: str
    path: str
    before: ProxyRecord | None
    after: ProxyRecord | None


@contextmanager
def _reserved_listeners(services: Services, plan: ImportPlan, keep: bool) -> Iterator[None]:
    """Every address that the plan needs is bound within the block; released at its end unless it succeeded."""
    steps = [_here(services.nodes, step) for step in plan.of["proxies"]]
    wanted = [step for step in steps if _binds(step.before, step.after)]
    leaving = tuple(step.id for step in steps if _binds(step.after, step.before))
    kept = False
    try:
        _reserve(services, wanted, leaving)
        if plan.settings is not None and plan.settings.changed:
            _validate_settings(services, plan.settings.stored)
        yield
        kept = keep
    finally:
        if not kept:
            _release_listeners(services, wanted)


def _here(nodes: FleetNodes, step: Step[Any]) -> _Listening:
    """What a step changes on this machine."""
    before, after = (None if each is None else nodes.as_here(each) for each in (step.before, step.after))
    return _Listening(step.id, step.path, before, None if nodes.drains else after)


def _binds(before: ProxyRecord | None, after: ProxyRecord | None) -> bool:
    """Whether `after` listens at an address at which `before` does not."""
    address = _listens_at(after)
    return address is not None and address != _listens_at(before)


def _listens_at(record: ProxyRecord | None) -> Range | None:
    return record.listens_at if record is not None and record.status == "active" else None


def _reserve(services: Services, wanted: Sequence[_Listening], leaving: tuple[str, ...]) -> None:
    problems = Problems()
    for step in wanted:
        record = step.after
        assert record is not None
        message = ReserveListener(step.id, record.host, record.port, leaving, record.last_port)
        reply: Any = request(services.bridge, SUPERVISOR, message, ListenerReserved, ListenerRefused)
        if isinstance(reply, ListenerRefused):
            problems.add(f"{step.path}.{reply.field}", services.proxies.refusal(reply, step.id))
    problems.refuse()


def _validate_settings(services: Services, stored: Any) -> None:
    try:
        services.live.validate(stored)
    except Invalid as error:
        raise Invalid(f"settings.{error.field}" if error.field else "settings", error.error) from error


def _release_listeners(services: Services, wanted: Sequence[_Listening]) -> None:
    """Without a reply nothing is to be done: the supervisor's reservations expire."""
    if wanted:
        services.bridge.ask(SUPERVISOR, CancelListeners(tuple(step.id for step in wanted)))


# --- the change itself --------------------------------------------------------------------------------------------


def _prepare_lists(services: Services, plan: ImportPlan) -> None:
    """Compile the lists that come with their entries: their files are there when proxies learn of them."""
    for step in pending(plan.of[LISTS.collection]):
        if step.after is not None:
            services.list_contents.prepare(step.after)


def _commit(services: Services, plan: ImportPlan) -> list[ApiKey]:
    """Store all of it, or nothing; the keys of deleted users, which are revoked with it."""
    changed = [(step.before, step.after) for step in plan.of["users"] if step.before is not None]
    return commit_and_revoke(services.store, _writes(plan), changed)[1]


def _writes(plan: ImportPlan) -> list[Write]:
    writes = [step.write() for step in plan.pending()]
    if plan.settings is not None and plan.settings.changed:
        body = {"id": live_settings.DOCUMENT, **plan.settings.stored}
        key = live_settings.COLLECTION, live_settings.DOCUMENT
        known = (revision for *each, revision in plan.state.revisions if tuple(each) == key)
        writes.append(Write(*key, body, next(known, 0)))
    return writes


def ended_sign_ins(plan: ImportPlan) -> list[str]:
    """The accounts whose sign-ins end for good: else one of before could hold again with the password of then."""
    before, after = _accounts_of(plan, "before"), _accounts_of(plan, "after")
    return [each for each in {**before, **after} if before.get(each) != after.get(each)]


def _accounts_of(plan: ImportPlan, moment: Literal["before", "after"]) -> dict[str, tuple[object, ...]]:
    """By id what sign-ins depend on, of the accounts in the plan."""
    proxies = [getattr(step, moment) for step in pending(plan.of["proxies"])]
    inline = [account for proxy in proxies if proxy is not None for account in proxy.accounts]
    accounts = [getattr(step, moment) for step in pending(plan.of["accounts"])]
    return {
        each.id: (each.password_hash, each.enabled, each.expires_at)
        for each in (*inline, *accounts)
        if each is not None
    }


# --- events -------------------------------------------------------------------------------------------------------


def _publish_events(services: Services, plan: ImportPlan, revoked: Sequence[ApiKey]) -> None:
    for key in revoked:
        services.publish("api_key.revoked", api_keys.about(key))
    for step in plan.of["proxies"]:
        for kind in _proxy_events(step):
            services.proxies.publish_event(kind, step.record)
    for each in pending([*plan.objects, *plan.of["accounts"], *plan.of["users"]]):
        services.publish(f"{each.kind.name}.{each.action}d", each.kind.about(each.record))
    if plan.changed_settings:
        services.live.publish_change(plan.changed_settings)


def _proxy_events(step: Step[ProxyRecord]) -> list[str]:
    """A change of nothing but the status is a start or a stop."""
    if step.before is None or step.after is None:
        return [f"proxy.{step.action}d"]
    events = ["proxy.updated"] if any(each.field != "status" for each in step.changes) else []
    if step.before.status != step.after.status:
        events.append("proxy.started" if step.after.status == "active" else "proxy.stopped")
    return events
