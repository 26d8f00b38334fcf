"""Accounts of the fleet, which any number of proxies use."""

from __future__ import annotations

from api.openapi.schemas.base import Deleted
from api.openapi.schemas.fleet_accounts import FleetAccountPage, OneFleetAccount
from api.operations.operation import V1, create, delete, get, post, resource, update
from api.resources import fleet_accounts
from config.model.fleet_accounts import READ_ONLY_FIELDS, FleetAccountCreate, FleetAccountUpdate

_ONE = "/{account_id}"

TABLE = resource(f"{V1}/accounts", read="proxy.read", write="proxy.write", delete="proxy.delete")(
    get(
        "",
        "listFleetAccounts",
        fleet_accounts.list_accounts,
        FleetAccountPage,
        query=fleet_accounts.ListFleetAccounts,
        errors=(404,),
    ),
    create(
        "",
        "createFleetAccount",
        fleet_accounts.create_account,
        OneFleetAccount,
        body=FleetAccountCreate,
        read_only=READ_ONLY_FIELDS,
    ),
    get(_ONE, "getFleetAccount", fleet_accounts.get_account, OneFleetAccount, if_match=True),
    *update(
        _ONE,
        ("replaceFleetAccount", "updateFleetAccount"),
        fleet_accounts.update_account,
        OneFleetAccount,
        body=FleetAccountUpdate,
        read_only=READ_ONLY_FIELDS,
        if_match=True,
    ),
    post(
        f"{_ONE}/reset-usage",
        "resetFleetAccountUsage",
        fleet_accounts.reset_usage,
        OneFleetAccount,
        audit="account.usage_reset",
    ),
    delete(_ONE, "deleteFleetAccount", fleet_accounts.delete_account, Deleted, if_match=True),
)
