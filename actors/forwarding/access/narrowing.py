"""The destinations that an account and a credential allow and deny: rules of their own beside those of the proxy.

All must allow a target. They are enforced whatever the mode of the proxy's rules is.
"""

from __future__ import annotations

from functools import lru_cache

from actors.bus.messages.specs import AccessSpec, AccountSpec
from actors.forwarding.access.rules import ACCOUNT, CREDENTIAL, NO_LISTS, NamedLists, Rules

COMPILED_MAX = 256
"""Sets of rules that are kept compiled; accounts of one plan share theirs."""

OwnRules = tuple[Rules, ...]


def own_rules(account: AccountSpec | None, credential: AccountSpec | None, lists: NamedLists = NO_LISTS) -> OwnRules:
    """Those of the account and of the credential that was used; empty where neither has any."""
    of_account = () if account is None else _rules_of(ACCOUNT, account, lists)
    return of_account if credential is None else of_account + _rules_of(CREDENTIAL, credential, lists)


def _rules_of(owner: str, spec: AccountSpec, lists: NamedLists) -> OwnRules:
    allow, deny = spec.allow_destinations, spec.deny_destinations
    return (_compiled(owner, allow, deny, lists),) if allow or deny else ()


@lru_cache(maxsize=COMPILED_MAX)
def _compiled(owner: str, allow: tuple[str, ...], deny: tuple[str, ...], lists: NamedLists) -> Rules:
    return Rules(AccessSpec(allow_destinations=allow, deny_destinations=deny), owner, lists)
