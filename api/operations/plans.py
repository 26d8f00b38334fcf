"""Plans: rules that accounts of the fleet inherit."""

from __future__ import annotations

from api.openapi.schemas.base import Deleted
from api.openapi.schemas.fleet_accounts import OnePlan, PlanList
from api.operations.operation import V1, create, delete, get, resource, update
from api.resources import plans
from config.model.plans import READ_ONLY_FIELDS, PlanCreate, PlanUpdate

_ONE = "/{plan_id}"

TABLE = resource(f"{V1}/plans", read="proxy.read", write="proxy.write", delete="proxy.delete")(
    get("", "listPlans", plans.list_plans, PlanList),
    create("", "createPlan", plans.create_plan, OnePlan, body=PlanCreate, read_only=READ_ONLY_FIELDS),
    get(_ONE, "getPlan", plans.get_plan, OnePlan, if_match=True),
    *update(
        _ONE,
        ("replacePlan", "updatePlan"),
        plans.update_plan,
        OnePlan,
        body=PlanUpdate,
        read_only=READ_ONLY_FIELDS,
        if_match=True,
    ),
    delete(_ONE, "deletePlan", plans.delete_plan, Deleted, if_match=True),
)
