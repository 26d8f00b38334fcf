"""The operations on the configuration as a whole. In responses an existing secret is null, others are absent.

The passphrase is in a header: a query would end up in logs. It is not stored.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any, Literal

from api.call import Call, Reply
from api.engine.kind import Kind
from api.engine.operation import V1, get, post, resource
from api.engine.responses import ResponseModel, having, mirrors
from api.errors import Invalid
from api.http.body import IMPORT_PATH, MAX_IMPORT
from api.http.query import Query, choice
from api.import_export import plan
from api.import_export.diff import Difference
from api.import_export.document import ConfigDocument, Secrets, VaultError, check_passphrase, unseal_secrets
from api.import_export.export import export, export_with_secrets, read_accounts
from api.import_export.imports import Outcome, run
from api.import_export.plan import ImportRequest, Step
from api.import_export.present_state import read_state
from api.objects.accounts.account_kind import ACCOUNTS
from api.objects.kinds import KINDS
from api.security.permissions import ADMIN

_ChangedKind: Any = Literal[(*(each.name for each in KINDS.values()), "settings")]


class Vault(ResponseModel):
    """All secrets, sealed with a key that is derived from the passphrase."""

    kdf: Literal["scrypt"]
    n: int
    r: int
    p: int
    salt: str
    cipher: Literal["AES-256-GCM"]
    nonce: str
    data: str


def _entries(kind: Kind[Any]) -> Any:
    """The section of a kind; that of accounts may be omitted."""
    entries: Any = list[kind.transfer.exported]  # type: ignore[name-defined]
    return (entries | None, None) if kind is ACCOUNTS else entries


@having({name: _entries(kind) for name, kind in KINDS.items()})
class ExportedConfig(ResponseModel):
    """The configuration as one document, which can be imported."""

    kind: Literal["proxyfleet.config"]
    version: Literal[1]
    settings: dict[str, dict[str, Any]]
    secrets: Vault | None = None


@mirrors(Difference)
class FieldChange(ResponseModel):
    """A field that differs; a secret is `***`, an absent value null."""


class ResourceChange(ResponseModel):
    """The change of one resource. `id` is null before it is created; `secret` is that of a new webhook."""

    kind: _ChangedKind
    name: str
    id: str | None
    action: Literal["create", "update", "delete", "unchanged"]
    fields: list[FieldChange]
    secret: str | None = None


class ImportSummary(ResponseModel):
    """The number of resources by action."""

    create: int
    update: int
    delete: int
    unchanged: int


class Planned(ResponseModel):
    """The changes to a configuration, or with `dry_run` those that would be made."""

    dry_run: bool
    changed: bool
    summary: ImportSummary
    changes: list[ResourceChange]


@mirrors(plan.Omissions)
class NotCompared(ResponseModel):
    """What is unchanged because the document says nothing about it.

    `fields`: whether fields that its entries leave out are not compared, as in a document that is not minimal;
    `objects`: by section the number of those without an entry; `sections`: those that it lacks.
    """


class Imported(Planned):
    """The changes of an import, or with `dry_run` those that it would make."""

    not_compared: NotCompared


PASSPHRASE = "x-passphrase"  # noqa: S105 - the name of a header


class ExportConfig(Query):
    """The secrets of an export, and whether accounts of the fleet are in it."""

    secrets: str = choice(
        "Omit secrets, or seal them with the passphrase in `X-Passphrase`", ("omitted", "encrypted"), "omitted"
    )
    accounts: str = choice("Omit accounts of the fleet, which may be too many", ("included", "omitted"), "included")


class ImportConfig(Query):
    """Options of an import."""

    dry_run: str = choice(
        "Change nothing; only return the changes that an import would make", ("false", "true"), "false"
    )
    prune: str = choice(
        "Delete resources that are not in the document, of the kinds that it contains", ("false", "true"), "false"
    )


def export_config(call: Call) -> Reply:
    """Export the configuration.

    Returns proxies, users, webhooks, plans, accounts, lists, pools, policies and changed settings as one document.
    Secrets are omitted, or sealed with the passphrase in `X-Passphrase` if `secrets=encrypted`.
    """
    secrets = call.query.secrets
    passphrase = _passphrase(call)
    omitted = call.query.accounts == "omitted"
    accounts = None if omitted else read_accounts(call.services.account_store)
    state = read_state(call.services.store)
    if secrets == "encrypted":
        document = export_with_secrets(state, accounts, call.services.seal, _required(passphrase))
    else:
        document = export(state, accounts)
    resource = {"type": "config", "id": None, "name": None}
    call.services.audit.append("config.exported", resource, details={"secrets": secrets})
    return Reply(document, revision=state.mark)


def import_config(call: Call) -> Reply:
    """Import a configuration.

    Changes the configuration to match the document, all or nothing, and returns the differences. With `dry_run=true`
    it only returns the differences. `not_compared` names what the document says nothing about.
    """
    query: ImportConfig = call.query
    request = ImportRequest(
        document=call.body,
        secrets=_unsealed(call),
        caller_id=call.caller.user.id,
        prune=query.prune == "true",
        dry_run=query.dry_run == "true",
        if_match=call.if_match,
    )
    accounts = call.services.account_store.count(ACCOUNTS.collection)
    outcome = run(call.services, request)
    left = outcome.plan.not_compared(request.document, accounts)
    view = {**import_view(outcome, request.dry_run), "not_compared": asdict(left)}
    return Reply(view, revision=outcome.mark)


def _unsealed(call: Call) -> Secrets:
    passphrase = _passphrase(call)
    if call.body.secrets is None:
        return Secrets()
    try:
        return unseal_secrets(call.body.secrets, _required(passphrase))
    except VaultError as error:
        raise Invalid(error.field, error.error) from error


def _passphrase(call: Call) -> str | None:
    given = call.headers.get(PASSPHRASE)
    try:
        return None if given is None else check_passphrase(given)
    except VaultError as error:
        raise Invalid(error.field, error.error) from error


def _required(passphrase: str | None) -> str:
    if passphrase is None:
        raise Invalid("X-Passphrase", "is required for secrets, as a header")
    return passphrase


def import_view(outcome: Outcome, dry_run: bool) -> dict[str, Any]:
    """The changes of an import, or those that it would make."""
    changes = [_step(step, dry_run) for step in outcome.plan.steps()]
    settings = outcome.plan.settings
    if settings is not None:
        action = "update" if settings.changed else "unchanged"
        changes.append({"kind": "settings", "name": "settings", "id": None, "action": action})
        changes[-1]["fields"] = list(map(_field, settings.changes))
    counted = Counter(each["action"] for each in changes)
    summary = {action: counted[action] for action in ("create", "update", "delete", "unchanged")}
    changed = counted["unchanged"] < len(changes)
    return {"dry_run": dry_run, "changed": changed, "summary": summary, "changes": changes}


def _field(change: Difference) -> dict[str, Any]:
    """As `dataclasses.asdict`, which copies all values, at a fraction of the cost: there may be 100,000s."""
    return {"field": change.field, "before": change.before, "after": change.after}


def _step(step: Step[Any], dry_run: bool) -> dict[str, Any]:
    made = step.before is not None or not dry_run
    view = {
        "kind": step.kind.name,
        "name": step.name,
        "id": step.id if made else None,
        "action": step.action,
        "fields": list(map(_field, step.changes)),
    }
    return {**view, "secret": step.secret} if step.secret is not None and made else view


ROWS = resource("", read=ADMIN, write=ADMIN)(
    get(
        f"{V1}/config/export",
        "exportConfig",
        export_config,
        ExportedConfig,
        query=ExportConfig,
        if_match=True,
        passphrase=True,
    ),
    post(
        IMPORT_PATH,
        "importConfig",
        import_config,
        Imported,
        body=ConfigDocument,
        largest_body=MAX_IMPORT,
        query=ImportConfig,
        if_match=True,
        passphrase=True,
        audit=False,
    ),
)
