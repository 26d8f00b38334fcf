"""What the nodes and the database have at the end, compared with each other and with what was confirmed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from api.audit.trail import GENESIS, Broken, chain_hash, verify
from api.engine.loose import LOOSE
from api.store.accounts.columns import TABLES
from config.files.paths import DataDir
from soaking.cluster.changes import Confirmed
from soaking.cluster.fleet import SoakedFleet, SoakedNode
from soaking.faults import Journal
from soaking.verdict import Findings, growths, sample

MOST_CONNECTIONS = 8
"""Of a node to the database."""
MOST_BYTES = 4 << 20
"""Of a table whose rows are only updated, after a vacuum."""
UPDATED = ("fleet", "heartbeats", "duties", "leases", "usage_totals", "usage_ledgers", "loose_heads")

OF_EDGES = ("proxies", "accounts", "plans", "lists", "policies", "pools")
"""Collections that an edge has whole, since its proxies run everywhere."""

Documents = dict[tuple[str, str], tuple[int, str]]
"""By collection and id, revision and digest."""


def of_fleet(fleet: SoakedFleet, confirmed: Iterable[Confirmed], undone: Sequence[tuple[float, float]]) -> Findings:
    """`undone` are times whose changes a restore may have undone."""
    return {
        "all nodes are at one commit with equal documents": _differences(fleet),
        "sign-ins and credentials are the same on all nodes": _loose(fleet),
        "no row is pending": _pending(fleet),
        "every revision is there once, without gaps": _revisions(fleet, confirmed, undone),
        "every chain of audit is whole, here and there": _chains(fleet),
        "nothing leaks in the database": _of_database(fleet),
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def documents(fleet: SoakedFleet) -> Documents:
    """Of the database."""
    query = "SELECT collection, id, revision, body::text FROM proxyfleet.documents WHERE body IS NOT NULL"
    return {(str(c), str(i)): (int(str(r)), _digest(str(b))) for c, i, r, b in fleet.execute(query)}


def documents_of(node: SoakedNode) -> Documents:
    """Of the replica of a node."""
    tables = [f"SELECT '{name}', id, revision, body FROM {name}" for name in TABLES if name not in LOOSE]
    rows = node.replica(" UNION ALL ".join(["SELECT collection, id, revision, body FROM documents", *tables]))
    return {(c, i): (r, _digest(b)) for c, i, r, b in rows if c not in LOOSE}


def _differences(fleet: SoakedFleet) -> list[str]:
    found = []
    ((head,),) = fleet.execute("SELECT head FROM proxyfleet.fleet")
    wanted = documents(fleet)
    for node in fleet.nodes:
        ((number,),) = node.replica("SELECT revision FROM steps")
        if number != head:
            found.append(f"{node.name} is at the commit {number}, and the last one is {head}")
        has = documents_of(node)
        others = {*wanted, *has} if node.is_full else {*has, *(key for key in wanted if key[0] in OF_EDGES)}
        found += [
            f"{node.name}: {key}: {has.get(key)} in place of {wanted.get(key)}"
            for key in sorted(others)
            if has.get(key) != wanted.get(key)
        ]
    return found


def _loose(fleet: SoakedFleet) -> list[str]:
    """The database has them without what has ended."""
    wanted = {
        (str(c), str(i)): str(b)
        for c, i, b in fleet.execute("SELECT collection, id, body::text FROM proxyfleet.loose WHERE body IS NOT NULL")
    }
    found = []
    for node in fleet.full:
        rows = node.replica("SELECT 'credentials', id, body FROM credentials")
        names = ", ".join(f"'{each}'" for each in LOOSE)
        rows += node.replica(f"SELECT collection, id, body FROM documents WHERE collection IN ({names})")
        has = {(c, i): b for c, i, b in rows}
        found += [f"{node.name} lacks {key}" for key in wanted.keys() - has.keys()]
        found += [f"{node.name} alone has {key}" for key in has.keys() - wanted.keys()]
        both = wanted.keys() & has.keys()
        found += [f"{node.name} has another {key}" for key in both if json.loads(has[key]) != json.loads(wanted[key])]
    return found


def _pending(fleet: SoakedFleet) -> list[str]:
    return [
        f"{each['name']}: {name}: {count}" for each in fleet.known() for name, count in each["pending"].items() if count
    ]


def _revisions(fleet: SoakedFleet, confirmed: Iterable[Confirmed], undone: Sequence[tuple[float, float]]) -> list[str]:
    rows = fleet.execute('SELECT number, author, "timestamp" FROM proxyfleet.revisions ORDER BY number')
    numbers = [int(str(each[0])) for each in rows]
    ((history,),) = fleet.execute("SELECT history FROM proxyfleet.fleet")
    found = []
    if numbers and numbers != [*range(numbers[0], int(str(history)) + 1)]:
        gaps = sorted({*range(numbers[0], int(str(history)) + 1)} ^ {*numbers})
        found.append(f"revisions are missing or too many: {gaps[:20]}")
    changed = fleet.execute(
        'SELECT r."commit", c.collection, c.id, count(*) FROM proxyfleet.revisions r'
        " JOIN proxyfleet.revision_changes c USING (number) GROUP BY 1, 2, 3"
    )
    made = {(int(str(n)), str(c), str(i)): int(str(count)) for n, c, i, count in changed}
    for each in confirmed:
        if any(begin <= each.at <= end for begin, end in undone):
            continue
        if (count := made.get((each.number, each.collection, each.id), 0)) != 1:
            found.append(f"{each.collection} {each.id} is {count} times in a revision of the commit {each.number}")
    for node in fleet.full:
        here = node.replica("SELECT number, author, timestamp FROM revisions ORDER BY number")
        if missing := sorted({*rows} ^ {*here}):
            found.append(f"{node.name} and the database differ in revisions: {missing[:10]}")
    return found


def _chains(fleet: SoakedFleet) -> list[str]:
    found = []
    for node in fleet.nodes:
        whole = verify(DataDir(node.data_dir))
        if isinstance(whole, Broken):
            found.append(f"{node.name}: entry {whole.seq}: {whole.error}")
        here = {seq: (content, digest) for seq, content, digest in node.replica("SELECT seq, content, hash FROM audit")}
        query = f"SELECT seq, content, hash FROM proxyfleet.audit WHERE node = '{node.id}' ORDER BY seq"
        last, hash_before = None, GENESIS
        there: dict[Any, Any] = {}
        for seq, content, digest in fleet.execute(query):
            there[seq] = content, digest
            if last is not None and seq != last + 1:
                found.append(f"{node.name}: the database lacks entries between {last} and {seq}")
            elif last is not None and chain_hash(hash_before, str(content)) != digest:
                found.append(f"{node.name}: the chain in the database is broken at {seq}")
            last, hash_before = seq, str(digest)
        if node.is_full and there != here:
            differ = sorted(seq for seq in {*there, *here} if there.get(seq) != here.get(seq))
            found.append(f"{node.name}: audit here and in the database differs in {len(differ)} entries: {differ[:8]}")
    return found


def _of_database(fleet: SoakedFleet) -> list[str]:
    found = []
    connections = fleet.execute(
        "SELECT usename, count(*) FROM pg_stat_activity WHERE usename LIKE 'pf_nod_%' GROUP BY 1"
    )
    found += [f"{role} has {count} connections" for role, count in connections if int(str(count)) > MOST_CONNECTIONS]
    for what, query in (
        (
            "idle in a transaction",
            "SELECT pid, query FROM pg_stat_activity"
            " WHERE state LIKE 'idle in%' AND state_change < now() - interval '8 s'",
        ),
        ("a lock is waited for", "SELECT pid, mode FROM pg_locks WHERE NOT granted"),
        ("prepared", "SELECT gid FROM pg_prepared_xacts"),
    ):
        found += [f"{what}: {each}" for each in fleet.execute(query)]
    fleet.execute("VACUUM")
    for name in UPDATED:
        ((size,),) = fleet.execute(f"SELECT pg_relation_size('proxyfleet.{name}')")
        if int(str(size)) > MOST_BYTES:
            found.append(f"{name} has {size} bytes")
    dead = fleet.execute("SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE n_dead_tup > 10000")
    return found + [f"{name} has {count} dead rows after a vacuum" for name, count in dead]


def samples(fleet: SoakedFleet) -> dict[str, dict[str, tuple[float, float]]]:
    """Of each node, see `soaking.verdict.sample`."""
    return {each.name: sample(each) for each in fleet.nodes}


def leaks(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Growth of a node's processes."""
    return [f"{name}: {each}" for name in before for each in growths(before[name], after[name])]


def table_of_drills(journal: Journal, failed: Sequence[tuple[float, float]]) -> str:
    """Each drill, how often, and how long until all was whole."""
    rows = ["| drill | times | until all was whole, at most | calls that failed |", "|---|---:|---:|---:|"]
    for kind in sorted({each.kind for each in journal.faults}):
        faults = [each for each in journal.faults if each.kind == kind]
        longest = max((each.end or each.begin) - each.begin for each in faults)
        count = sum(any(each.covers(*times) for each in faults) for times in failed)
        rows.append(f"| {kind} | {len(faults)} | {longest:.1f} s | {count} |")
    return "\n".join(rows)
