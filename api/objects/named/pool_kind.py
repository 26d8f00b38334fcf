"""The declaration of pools of upstreams."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from actors.bus.messages.specs import PoolSpec
from api.engine.kind import Texts
from api.engine.records import Stored
from api.engine.responses import OF_INSTALLATION, Moment, NodesMeta, ResponseModel, Warned, one_of, page_of, shows
from api.engine.transfer import PlannedRecord, Planning, Transfer, without
from api.objects.named.named_kind import (
    EntryUpstream,
    ExportedUpstream,
    ListStatus,
    NamedKind,
    NamedResource,
    UsedBy,
    UsedByThese,
    entry_with_source,
    openable_source,
    usual_source,
    with_password,
    with_sealed_headers,
    with_sealed_passwords,
    without_lost_passwords,
)
from api.objects.proxies.proxy_responses import UpstreamView
from api.objects.proxies.proxy_specs import spec, upstreams_spec
from config.files.secret_box import SecretBox
from config.model import proxy_parts as proxy_checks
from config.model.object_fields import ObjectName
from config.model.shared_objects.pools import (
    Pool,
    PoolCreate,
    PoolSource,
    PoolUpdate,
    PoolUpstreamInput,
    change_pool,
    new_pool,
)
from config.model.shared_objects.upstreams import ALL_UPSTREAMS, ONE_UPSTREAM


class EntryPoolUpstream(EntryUpstream, PoolUpstreamInput):
    """An upstream of a pool of an entry."""


EntryPoolUpstreams = Annotated[list[Annotated[EntryPoolUpstream, *ONE_UPSTREAM]], *ALL_UPSTREAMS]


class PoolEntry(PoolUpdate):
    """A pool, known by its `name`."""

    name: ObjectName
    upstreams: EntryPoolUpstreams | None = None  # type: ignore[assignment]  # the model is frozen


def _entry(record: Pool) -> dict[str, Any]:
    entry = entry_with_source(record, "upstreams")
    if record.source is None:
        pairs = zip(entry["upstreams"], record.upstreams, strict=True)
        entry["upstreams"] = [with_password(each, stored) for each, stored in pairs]
    return entry


def _wanted(stored: Stored[Pool] | None, entry: Any, planning: Planning) -> PlannedRecord:
    entry = with_sealed_headers(entry, planning.sealed.pool_sources)
    if stored is None:
        after = new_pool(entry, planning.now, planning.seal)
    else:
        after = change_pool(stored.record, entry, planning.now, planning.seal)
    if entry.upstreams is not None:
        sealed = planning.sealed.pools.get(entry.name, [])
        after = with_sealed_passwords(after, entry.upstreams, sealed, planning.seal)
    return PlannedRecord(after)


_BLANK = _entry(Pool(id="", name="blank", created_at=0.0, updated_at=0.0))


class PoolUpstreamView(UpstreamView):
    """An upstream of a pool."""

    labels: dict[str, str]


class PoolUpstreamStatus(ResponseModel):
    """What all proxies and the checks know of an upstream of a pool.

    `state` is `up`, `down` or `unknown` (not used or checked yet) since `since`. `failures` are those since it worked
    last, `latency` the milliseconds that clients wait for it lately. It is left alone until `cooldown_until` after a
    failure of the kind `cooldown`, and until `banned_until` after a report of a client's program.
    """

    name: str
    state: Literal["unknown", "up", "down"]
    since: Moment | None
    latency: float | None
    failures: int
    cooldown: Literal["connect", "407", "429", "5xx"] | None
    cooldown_until: Moment | None
    banned_until: Moment | None
    last_error: str | None
    last_error_at: Moment | None
    checks: int
    checks_failed: int


@shows(PoolSource, but=("url", "headers"))
class PoolSourceView(ResponseModel):
    """Where the upstreams of a pool come from. `interval` is the seconds between two requests.

    The values of `headers` are `***`, and null in an export.
    """

    url: str
    headers: dict[str, str | None] | None = None


class PoolSummary(ResponseModel):
    """How many upstreams of a pool are up, down, or not known yet; and how many are left alone for a time.

    `usable` are those that are up and not left alone. `state` is the pool in a word: `up`, `degraded` (some can't be
    used), `down` (none can), or `unknown` (nothing is known of those that may work). `used` says whether an active
    proxy can use the pool, `checked` whether its upstreams are checked, which those of an unused pool are not; null
    while the supervisor does not reply. `source` says how the last fetch went, null without one.
    """

    state: Literal["up", "degraded", "down", "unknown"]
    up: int
    down: int
    unknown: int
    cooling_down: int
    banned: int
    usable: int
    used: bool | None
    checked: bool | None
    source: ListStatus | None


class PoolStatus(PoolSummary):
    """The state of a pool, and of each of its upstreams in their order."""

    upstreams: list[PoolUpstreamStatus]


class PoolOnNode(PoolStatus):
    """What one node knows of a pool."""

    node: str
    source: ListStatus | None = None


@shows(Pool)
class ListedPool(ResponseModel):
    """A pool in a list of them."""

    source: PoolSourceView | None
    status: PoolSummary
    used_by: UsedBy


class PoolView(ListedPool):
    """A pool, without the passwords of its upstreams.

    In a fleet `status` is what the asked node knows, and `nodes` what each does, when a pool is shown.
    """

    status: PoolStatus
    upstreams: list[PoolUpstreamView]
    used_by: UsedByThese
    nodes: list[PoolOnNode] | None = None


class ExportedPoolUpstream(ExportedUpstream):
    """An upstream of a pool."""

    labels: dict[str, str]


@shows(Pool, but=OF_INSTALLATION)
class ExportedPool(ResponseModel):
    """A pool. It has its `upstreams`, or a `source`."""

    upstreams: list[ExportedPoolUpstream] | None = None
    source: PoolSourceView | None = None


def pool_spec(record: Pool, revision: int, seal: SecretBox) -> PoolSpec:
    """The message about a pool, with its secrets. Raises `SecretBoxError`."""
    retry = record.retry
    return spec(
        PoolSpec,
        record,
        revision=revision,
        upstreams=upstreams_spec(record.upstreams, record.policy, record.check, seal, record.source is not None),
        attempts=retry.attempts,
        retry_connect=retry.connect,
        retry_statuses=tuple(retry.statuses),
        cooldown=tuple((kind, float(span[0]), float(span[1])) for kind, span in record.cooldown),
    )


def _warnings(pool: Pool) -> list[proxy_checks.FieldWarning]:
    if pool.upstreams:
        return []
    if pool.source is not None:
        text = "no upstreams are fetched yet: nothing can be reached through the pool"
        return [proxy_checks.FieldWarning("source", text)]
    return [proxy_checks.FieldWarning("upstreams", "nothing can be reached through a pool without upstreams")]


def _openable(record: Pool, seal: SecretBox) -> tuple[Pool, list[str]]:
    kept, fields = without_lost_passwords(record.upstreams, seal)
    source, of_source = openable_source(record.source, seal)
    fields += of_source
    return (record.model_copy(update={"upstreams": kept, "source": source}) if fields else record), fields


TRANSFER = Transfer(
    model=PoolEntry,
    exported=ExportedPool,
    entry=_entry,
    wanted=_wanted,
    blank=_BLANK,
    usual=lambda entry, _rules: (
        _BLANK if entry.source is None else {**without(_BLANK, "upstreams"), "source": usual_source(PoolSource())}
    ),
    openable=_openable,
)

POOLS = NamedKind(
    name="pool",
    collection="pools",
    transfer=TRANSFER,
    model=Pool,
    create=PoolCreate,
    update=PoolUpdate,
    new=new_pool,
    change=change_pool,
    spec=lambda record, revision, seal, _file_of: pool_spec(record, revision, seal),
    warnings=_warnings,
    resource=NamedResource(
        texts=Texts(
            list="Returns one page of pools, the oldest first, without their upstreams. Follow `next_cursor` for the "
            "next page.",
            create="Stores upstreams under a name, with how one is chosen and when it is left alone. The warnings say "
            "when there is none.",
            get="Returns a pool with its upstreams. Passwords are not returned.",
            update="Changes the given fields and keeps all others. `upstreams` are replaced as a whole; an entry that "
            "is there already keeps its password.",
            delete="Deletes a pool that nothing names. If it is in use, the response is 400 with the number of its "
            "users and the first ten.",
        ),
        one=one_of("pool", PoolView, warnings=list[Warned], meta=(NodesMeta | None, None)),
        page=page_of("pool", "pools", ListedPool, left_out="upstreams"),
    ),
)
