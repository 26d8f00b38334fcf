"""The declaration of plans."""

from __future__ import annotations

from api.engine.kind import ObjectKind, Resource, Texts
from api.engine.responses import OF_INSTALLATION, all_of, one_of, shows
from api.engine.transfer import Transfer, entry_of, with_usual_quota
from api.openapi.schemas.base import ResponseModel
from api.openapi.schemas.fleet_accounts import ScheduleView
from config.model.fields import Name
from config.model.object_names import names_of_rules
from config.model.plans import READ_ONLY_FIELDS, Plan, PlanCreate, PlanUpdate, change_plan, new_plan

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
