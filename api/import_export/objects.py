"""Planning of lists, pools and policies, which are known by their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from api.import_export.document import EntryPoolUpstream, ListEntry, PoolEntry
from api.import_export.entries import object_entry
from api.import_export.plan import ImportRequest, PlanContext, Problems, Step, pending
from api.import_export.sealed_secrets import SourceSecrets, UpstreamSecret
from api.import_export.state import State, StoredRecord
from api.services.object_kinds import KINDS, ObjectKind
from api.services.shared_objects import kind_of
from api.store import StoreWriteError
from config.files.secret_box import SecretBox, SecretBoxError
from config.model.fields import InvalidResource
from config.model.object_names import Named
from config.model.pools import Pool
from config.model.upstreams import PURPOSE

E = TypeVar("E", ListEntry, PoolEntry)
Stored = StoredRecord[Any] | None


def plan_objects(state: State, request: ImportRequest, context: PlanContext, problems: Problems) -> list[Step[Any]]:
    """A step for each entry, by kind and in their order; then, to prune, one for each object that has none."""
    steps = [step for kind in KINDS.values() for step in _plan_kind(kind, state, request, context, problems)]
    refuse_unknown_names(state, steps, problems)
    return steps


def object_step(kind: ObjectKind, path: str, stored: Stored, after: Any) -> Step[Any]:
    """The step of an object."""
    return Step(kind.name, kind.collection, path, stored, after, object_entry)


def _plan_kind(
    kind: ObjectKind, state: State, request: ImportRequest, context: PlanContext, problems: Problems
) -> Iterator[Step[Any]]:
    entries, known = getattr(request.document, kind.collection), state.objects[kind.collection]
    if entries is None:
        return
    named: dict[str, int] = {}
    for index, entry in enumerate(entries):
        path = f"{kind.collection}[{index}]"
        if entry.name in named:
            problems.add(f"{path}.name", f"is the name of {kind.collection}[{named[entry.name]}], too")
            continue
        named[entry.name] = index
        try:
            stored = known.get(entry.name)
            yield object_step(kind, path, stored, _wanted(kind, stored, entry, request, context))
        except InvalidResource as error:
            problems.add(f"{path}.{error.field}", error.error)
        except SecretBoxError as error:
            raise StoreWriteError(str(error)) from error
    left = [each for name, each in sorted(known.items()) if name not in named]
    if request.prune:
        yield from (object_step(kind, kind.collection, each, None) for each in left)
    if len(entries) + (0 if request.prune else len(left)) > kind.most:
        problems.add(kind.collection, f"there may be {kind.most} at most")


def _wanted(kind: ObjectKind, stored: Stored, entry: Any, request: ImportRequest, context: PlanContext) -> Any:
    """The record as the entry describes it. Raises `InvalidResource`, `SecretBoxError`."""
    if isinstance(entry, ListEntry):
        entry = _with_sealed_headers(entry, request.secrets.lists)
    elif isinstance(entry, PoolEntry):
        entry = _with_sealed_headers(entry, request.secrets.pool_sources)
    if stored is None:
        if getattr(entry, "kind", "") is None:
            raise InvalidResource("kind", "is required for a new list")
        after = kind.new(entry, context.now, context.seal)
    else:
        after = kind.change(stored.record, entry, context.now, context.seal)
    if isinstance(after, Pool) and entry.upstreams is not None:
        return _with_sealed(after, entry.upstreams, request.secrets.pools.get(entry.name, []), context.seal)
    return after


def _with_sealed_headers(entry: E, sealed: Sequence[SourceSecrets]) -> E:
    """The entry with the values that came with the document for headers that have none."""
    source = entry.source
    if source is None or source.headers is None:
        return entry
    sent = next((each.headers for each in sealed if (each.name, each.url) == (entry.name, source.url)), {})
    headers = {name: value or sent.get(name) for name, value in source.headers.items()}
    return entry.model_copy(update={"source": source.model_copy(update={"headers": headers})})


def _with_sealed(
    pool: Pool, given: Sequence[EntryPoolUpstream], sealed: Sequence[UpstreamSecret], seal: SecretBox
) -> Pool:
    """The pool with the passwords that came with the document for entries that give none."""
    passwords: dict[Any, str] = {(each.protocol, each.host, each.port, each.username): each.password for each in sealed}
    upstreams = list(pool.upstreams)
    for index, (entry, upstream) in enumerate(zip(given, pool.upstreams, strict=True)):
        password = None if entry.auth is not None and entry.auth.password else passwords.get(upstream.identity)
        if password is not None and (upstream.password is None or seal.open(upstream.password, PURPOSE) != password):
            upstreams[index] = upstream.model_copy(update={"password": seal.seal(password, PURPOSE)})
        if entry.hides_password and upstreams[index].password is None:
            raise InvalidResource(f"upstreams[{index}].auth.password", "is null, and no such password is known here")
    return pool.model_copy(update={"upstreams": upstreams})


def refuse_unknown_names(state: State, steps: Sequence[Step[Any]], problems: Problems) -> None:
    """Add a problem for each name of an object that is not there after these steps."""
    after = {name: {each.record.id: each.record for each in found.values()} for name, found in state.objects.items()}
    paths: dict[str, str] = {}
    for step in steps:
        after[step.collection].pop(step.id, None)
        if step.after is not None:
            after[step.collection][step.id] = step.after
    for step in pending(steps):
        paths[step.id] = step.path
    names = {
        collection: {each.name: kind_of(each) for each in records.values()} for collection, records in after.items()
    }
    for kind in KINDS.values():
        for record in after[kind.collection].values():
            found = kind.names(record)
            refuse_missing(found, names, f"{kind.name} {record.name!r}", paths.get(record.id), problems)


Names = Mapping[str, Mapping[str, str]]
"""By collection the names of objects, with the kind of a list."""


def refuse_missing(found: Iterable[Named], names: Names, user: str, path: str | None, problems: Problems) -> None:
    """Add a problem for each of these that can't be named; `path` is that of `user`, None if it stays."""
    for each in found:
        kind = names[each.collection].get(each.name)
        misfit = "" if kind is None else each.misfit(kind)
        if misfit:
            problems.add(f"{path}.{each.field}" if path else each.collection, f"{misfit} ({user})")
        if kind is not None:
            continue
        if path is not None:
            problems.add(f"{path}.{each.field}", f"there is no {each.kind} {each.name!r}")
        else:
            problems.add(each.collection, f"the {each.kind} {each.name!r} would be deleted, and the {user} names it")
