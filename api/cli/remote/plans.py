"""`proxyfleet plans …`: what accounts have in common."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from api.cli.commands import Session, YesOption, add_group, command, confirm
from api.cli.lookup import PLAN, find, find_id
from api.cli.quantities import Size
from api.cli.remote.account_fields import CONNECTIONS, PERIOD, QUOTA, parsed
from api.cli.request_body import FileOption, body_of, require_changes, set_option
from api.cli.terminal.completion import plan_names
from api.cli.terminal.field_groups import Fields
from api.cli.terminal.output import Column, inside

group = typer.Typer(help="Plans: what accounts have in common.", no_args_is_help=True)

PlanArgument = Annotated[str, typer.Argument(metavar="PLAN", help="Its name or id.", autocompletion=plan_names)]
FIELDS: dict[str, Any] = {
    "description": Annotated[str | None, typer.Option("--description", help="What it is for.")],
    "quota.bytes": QUOTA,
    "quota.period": PERIOD,
    "limits.connections": CONNECTIONS,
    "policy": Annotated[
        str | None, typer.Option("--policy", help="The policy that judges requests; none: --set policy=null.")
    ],
    "disclose": Annotated[
        bool | None,
        typer.Option("--disclose/--no-disclose", help="Whether clients read which policy, rule and list refuse them."),
    ],
}
"""Options of `create` and `update` by the field of the API that they set."""
NEW_NAME = Annotated[str | None, typer.Option("--name", help="Another name.")]
SetOption = Annotated[
    list[str] | None, set_option("limits.bandwidth_out=1Mbit/s", 'allow_destinations=["*.example"]', "quota=null")
]


def add_commands(app: typer.Typer) -> None:
    """Add the group to `app`."""
    add_group(app, "plans", group)


def quota_of(row: Any) -> Size | None:
    """The quota in bytes, None without one."""
    count = inside(row, "quota.bytes")
    return Size(count, is_setting=True) if count else None


COLUMNS = (
    Column("NAME", "name"),
    Column("QUOTA", quota_of, right=True),
    Column("PERIOD", "quota.period"),
    Column("LIMITS", lambda row: Fields(row["limits"] or {}), spare=True),
    Column("DESCRIPTION", "description", spare=True),
    Column("ID", "id", whole=True),
)


@command(group, "list")
def list_plans(session: Session) -> None:
    """List plans."""
    data = session.api.get("/plans")
    session.out.data(data, lambda: session.out.table(COLUMNS, data["plans"], "There is no plan."))


@command(group, "show")
def show_plan(session: Session, plan: PlanArgument) -> None:
    """Show a plan."""
    data = session.api.get(f"/plans/{find_id(session.api, PLAN, plan)}")
    session.out.data(data, lambda: session.out.details(_details(data["plan"])))


@command(group, "create", fields=FIELDS)
def create_plan(
    session: Session,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Accounts refer to it by this name; or in a file.", show_default=False),
    ] = None,
    *,
    fields: dict[str, Any],
    settings: SetOption = None,
    file: FileOption = None,
) -> None:
    """Create a plan."""
    data = session.api.post("/plans", body_of({"name": name, **parsed(fields)}, settings, file))
    session.out.done(data, f"{data['plan']['name']} is created ({data['plan']['id']}).")


@command(group, "update", fields={**FIELDS, "name": NEW_NAME})
def update_plan(
    session: Session, plan: PlanArgument, fields: dict[str, Any], settings: SetOption = None, file: FileOption = None
) -> None:
    """Change a plan, for all its accounts at once: only what is given changes."""
    body = body_of(parsed(fields), settings, file)
    require_changes(body, "plans")
    data = session.api.patch(f"/plans/{find_id(session.api, PLAN, plan)}", body)
    session.out.done(data, f"{data['plan']['name']} is changed.")


@command(group, "delete")
def delete_plan(session: Session, plan: PlanArgument, yes: YesOption = False) -> None:
    """Delete a plan that no account has."""
    found = find(session.api, PLAN, plan)
    confirm(f"Delete the plan {found['name']}?", yes)
    data = session.api.delete(f"/plans/{found['id']}")
    session.out.done(data, f"{found['name']} is deleted.")


def _details(plan: dict[str, Any]) -> list[tuple[str, Any]]:
    """Names and values of `plans show`; what it doesn't say is `-`."""
    return [
        *((name, plan[name]) for name in ("name", "id", "description")),
        ("quota", quota_of(plan)),
        ("period", inside(plan, "quota.period")),
        ("limits", Fields(plan["limits"] or {})),
        ("destinations", plan["allow_destinations"]),
        ("denied destinations", plan["deny_destinations"]),
        ("schedule", plan["schedule"]),
        ("policy", plan["policy"]),
        ("egress", plan["egress"]),
        ("disclose", plan["disclose"]),
        ("self-service", Fields(plan["self_service"] or {})),
        ("created", plan["created_at"]),
    ]
