"""The table of kinds that proxies name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.objects.lists import LISTS
from api.objects.named import NamedKind
from api.objects.policies import POLICIES
from api.objects.pools import POOLS

NAMED: Mapping[str, NamedKind[Any]] = {each.collection: each for each in (LISTS, POOLS, POLICIES)}
"""By collection; those before may be named by those behind them."""
