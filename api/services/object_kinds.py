"""The kinds of objects that any number of proxies name: pools, lists and policies. One row each.

Store, operations, audit trail, history, export, import, backup, events and the messages to the supervisor follow
from the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from api.services.object_specs import list_ref, policy_spec, pool_spec
from api.services.source_warnings import warnings_of_policy
from config.files.secret_box import SecretBox
from config.model import lists, policies, pools
from config.model.declaration import visible
from config.model.exposure_warnings import Warned
from config.model.lists import DestinationList, ListCreate, ListUpdate
from config.model.object_names import Named, named_by, named_in
from config.model.policies import Policy, PolicyCreate, PolicyUpdate
from config.model.pools import Pool, PoolCreate, PoolUpdate
from config.model.sources import Source
from config.text.formatting import timestamp_text

Record = Pool | DestinationList | Policy
FileOf = Callable[[DestinationList], str]
"""The name of the compiled file of a list, empty while there is none."""


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A kind of object. `name` is what one is called, `collection` where documents are.

    `entries` is the field of its entries, which lists of objects leave out, and `entry` what one of them is called.
    `new` and `change` make the record of a body; they raise `InvalidResource` and `SecretBoxError`. `spec` is what
    forwarding actors get, of a record and its revision; of a list with the name of its compiled file.
    """

    name: str
    collection: str
    most: int
    model: type[Any]
    create: type[BaseModel]
    update: type[BaseModel]
    entries: str
    entry: str
    new: Callable[[Any, float, SecretBox], Any]
    change: Callable[[Any, Any, float, SecretBox], Any]
    spec: Callable[[Any, int, SecretBox, FileOf], Any]
    entry_view: Callable[[Any], Any] = lambda entry: entry
    names: Callable[[Any], Iterator[Named]] = lambda _record: iter(())
    warnings: Callable[[Any], list[Warned]] = lambda _record: []

    @property
    def count(self) -> str:
        """The field of responses that has the number of entries."""
        return f"{self.entry}_count"

    def brief(self, record: Any) -> dict[str, Any]:
        """The view in lists of objects: all but the entries."""
        view = {name: _plain(getattr(record, name)) for name, _ in visible(self.model) if name != self.entries}
        moments = {name: timestamp_text(view[name]) for name in ("created_at", "updated_at")}
        return {**view, **moments, self.count: len(getattr(record, self.entries))}

    def view(self, record: Any) -> dict[str, Any]:
        """The whole view, without secrets."""
        return {**self.brief(record), self.entries: [self.entry_view(each) for each in getattr(record, self.entries)]}


def _plain(value: Any) -> Any:
    if isinstance(value, Source):
        return value.view()
    return value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else value


def _names_of_policy(policy: Policy) -> Iterator[Named]:
    for index, rule in enumerate(policy.rules):
        path = f"rules[{index}]"
        yield from named_in(rule.match.destinations, f"{path}.match.destinations")
        pool = named_by(rule.action.use, f"{path}.action.use")
        if pool is not None:
            yield pool


def _warnings_of_pool(pool: Pool) -> list[Warned]:
    if pool.upstreams:
        return []
    if pool.source is not None:
        return [Warned("source", "no upstreams are fetched yet: nothing can be reached through the pool")]
    return [Warned("upstreams", "nothing can be reached through a pool without upstreams")]


LISTS = ObjectKind(
    "list",
    "lists",
    1_000,
    DestinationList,
    ListCreate,
    ListUpdate,
    "entries",
    "entry",
    new=lists.new_list,
    change=lists.change_list,
    spec=lambda record, revision, _seal, file_of: list_ref(record, revision, file_of(record)),
)
POOLS = ObjectKind(
    "pool",
    "pools",
    1_000,
    Pool,
    PoolCreate,
    PoolUpdate,
    "upstreams",
    "upstream",
    new=pools.new_pool,
    change=pools.change_pool,
    spec=lambda record, revision, seal, _file_of: pool_spec(record, revision, seal),
    entry_view=pools.pool_upstream_view,
    warnings=_warnings_of_pool,
)
POLICIES = ObjectKind(
    "policy",
    "policies",
    1_000,
    Policy,
    PolicyCreate,
    PolicyUpdate,
    "rules",
    "rule",
    new=lambda body, now, _seal: policies.new_policy(body, now),
    change=lambda record, body, now, _seal: policies.change_policy(record, body, now),
    spec=lambda record, revision, _seal, _file_of: policy_spec(record, revision),
    entry_view=policies.rule_view,
    names=_names_of_policy,
    warnings=warnings_of_policy,
)

KINDS: Mapping[str, ObjectKind] = {each.collection: each for each in (LISTS, POOLS, POLICIES)}
"""By collection; those before may be named by those behind them."""
