"""Plans: their declaration, and what is asked and done around a change, which holds for all accounts of a plan at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Protocol

from api.engine.kind import ObjectKind, Resource, Texts
from api.engine.objects import Hooks, Proposal, Proposals, load
from api.engine.records import Stored, view_of
from api.engine.responses import OF_INSTALLATION, ResponseModel, ScheduleView, all_of, one_of, shows
from api.engine.transfer import Transfer, entry_of, with_usual_quota
from api.errors import Invalid
from api.security.caller import Caller
from api.store import Store
from api.store.accounts import AccountStore
from api.store.loaded import Loaded
from config.model.fields import Name
from config.model.object_fields import Named, names_of_rules
from config.model.plans import READ_ONLY_FIELDS, Plan, PlanCreate, PlanUpdate, change_plan, new_plan
from config.text.formatting import counted

MAX_PLANS = 1_000


@shows(Plan)
class PlanView(ResponseModel):
    """A plan. `accounts` is the number of accounts that have it."""

    schedule: ScheduleView | None
    accounts: int


class PlanEntry(PlanUpdate):
    """A plan, known by its `name`."""

    name: Name


@shows(Plan, but=OF_INSTALLATION)
class ExportedPlan(ResponseModel):
    """A plan."""

    schedule: ScheduleView | None


_BLANK = entry_of(Plan(id="", name="blank", created_at=0.0, updated_at=0.0))

PLANS = ObjectKind(
    name="plan",
    collection="plans",
    transfer=Transfer(model=PlanEntry, exported=ExportedPlan, blank=_BLANK, usual=with_usual_quota(_BLANK)),
    most=MAX_PLANS,
    model=Plan,
    create=PlanCreate,
    update=PlanUpdate,
    read_only=READ_ONLY_FIELDS,
    new=lambda body, now, _seal: new_plan(body, now),
    change=lambda record, body, now, _seal: change_plan(record, body, now),
    refers=names_of_rules,
    resource=Resource(
        texts=Texts(
            list="Returns all plans, the oldest first. `accounts` is the number of accounts that have the plan.",
            create="Stores rules that accounts inherit. Accounts name the plan by its name.",
            get="Returns the rules of a plan. Null says that the plan leaves a field open.",
            update="Changes the given fields and keeps all others; null leaves a field open. The change holds for all "
            "accounts of the plan at once, on open connections, too.",
            delete="Deletes a plan that no account has. If there are accounts with it, the response is 400 with their "
            "number.",
        ),
        one=one_of("plan", PlanView),
        page=all_of("PlanList", "plans", PlanView),
        read="proxy.read",
        write="proxy.write",
        delete="proxy.delete",
    ),
)


class Plans:
    """The `Records` of plans. Thread-safe."""

    def __init__(self, store: Store, accounts: AccountStore) -> None:
        """`accounts` is where `store` has them."""
        self._store = store
        self._accounts = accounts
        self._loaded: Loaded[Stored[Plan]] = Loaded(PLANS.collection, partial(load, PLANS))

    def all(self) -> Sequence[Stored[Plan]]:
        """All of them, oldest first."""
        found = [load(PLANS, each) for each in self._accounts.find(PLANS.collection)]
        return sorted(found, key=lambda plan: (plan.record.created_at, plan.record.id))

    def get(self, identifier: str) -> Stored[Plan] | None:
        """The one with this id."""
        return self._loaded.get(self._store, identifier)

    def named(self, name: str) -> str | None:
        """The id of the one with this name."""
        found = self._accounts.plan_named(name)
        return None if found is None else found.id

    def known(self, plan_id: str) -> Plan | None:
        """The plan with this id, or None. It is shared and must not be altered."""
        found = self.get(plan_id) if plan_id else None
        return None if found is None else found.record

    def id_of(self, name: str, field: str = "plan") -> str:
        """The id of the plan with this name. Raises `Invalid` on `field`."""
        found = self.named(name)
        if found is None:
            raise Invalid(field, f"there is no plan {name!r}")
        return found


class Announced(Protocol):
    """Holds up changes of accounts and plans, which get these policies: proxies have them before one can need them."""

    def __call__(self, policies: Collection[str]) -> AbstractContextManager[None]:
        """Raises `PeerUnavailable`."""
        ...


def policies_given(proposals: Proposals[Any]) -> set[str]:
    """The policies that accounts or plans get by these changes."""
    given = ((each.before and each.before.record.policy, each.after and each.after.policy) for each in proposals)
    return {after for before, after in given if after is not None and after != before}


def hooks_of_plans(
    accounts: AccountStore, announced: Announced, refuse_unknown: Callable[[Iterator[Named]], None]
) -> Hooks[Plan]:
    """A change holds up those of accounts."""

    def check(proposals: Proposals[Plan]) -> None:
        for each in proposals:
            if each.after is not None:
                refuse_unknown(PLANS.refers(each.after))

    @contextmanager
    def guard(proposal: Proposal[Plan]) -> Iterator[None]:
        users = 0 if proposal.after or not proposal.before else accounts.plan_users(proposal.before.record.id)
        if users:
            raise Invalid(None, f"the plan has {counted(users, 'account')}; give them another one first")
        yield

    def views(_caller: Caller, stored: Sequence[Stored[Plan]], whole: bool) -> list[dict[str, Any]]:
        used = {each.record.id: accounts.plan_users(each.record.id) for each in stored if whole}
        used = used or accounts.users_by_plan()
        return [{**view_of(each.record), "accounts": used.get(each.record.id, 0)} for each in stored]

    return Hooks(lock=lambda proposals: announced(policies_given(proposals)), check=check, guard=guard, views=views)
