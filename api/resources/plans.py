"""The operations on plans."""

from __future__ import annotations

from api.call import Call, Reply
from api.services.account_views import plan_view
from api.services.plans import StoredPlan


def list_plans(call: Call) -> Reply:
    """List plans.

    Returns all plans, the oldest first. `accounts` is the number of accounts that have the plan.
    """
    views = [plan_view(each) for each in call.services.plans.all()]
    return Reply({"plans": views, "total": len(views)})


def create_plan(call: Call) -> Reply:
    """Create a plan.

    Stores rules that accounts inherit. Accounts name the plan by its name.
    """
    plan = call.services.plans.create(call.body)
    return _one(plan, 201, {"Location": f"/api/v1/plans/{plan.record.id}"})


def get_plan(call: Call) -> Reply:
    """Show a plan.

    Returns the rules of a plan. Null says that the plan leaves a field open.
    """
    return _one(call.services.plans.get(call.params["plan_id"]))


def update_plan(call: Call) -> Reply:
    """Update a plan.

    Changes the given fields and keeps all others; null leaves a field open. The change holds for all accounts of the
    plan at once, on open connections, too.
    """
    return _one(call.services.plans.update(call.params["plan_id"], call.body, call.if_match))


def delete_plan(call: Call) -> Reply:
    """Delete a plan.

    Deletes a plan that no account has. If there are accounts with it, the response is 400 with their number.
    """
    plan_id = call.params["plan_id"]
    call.services.plans.delete(plan_id, call.if_match)
    return Reply({"id": plan_id, "deleted": True})


def _one(plan: StoredPlan, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    return Reply({"plan": plan_view(plan)}, status, plan.revision, headers or {})
