"""How a machine becomes a node of a fleet, by a token: what it does, and what the node does that it asks.

    new machine                                 a full node
      makes its key and certificate
      compares the fingerprint ── TLS ──────────
      POST /join: the secret, its certificate,
        and a signature: it has the key ───────► one commit: its document, and the token is used up
                                                 the role in the database, with a new password
      ◄───────────────────────────────────────── DSN, and the key that seals secrets
      keeps the reply (`data.joining`)
      reads the state into a file of its own
        (while its API serves, if it runs)
      puts key, file and `data.node` in place

Each step can be done again, so being killed at any moment leaves a machine that has not joined, or one that finishes at
its next start. The same machine may use its token again until that is over, and is the same node: it has the key of the
certificate. With `data.joining` it has joined, though it may still lack the state.

**An edge node gets the fleet's key**, since the passwords of upstreams are sealed by it; what it may read in the
database is what it needs. So its key opens nothing else that it can get, unless together with a copy of the database:
after an edge was stolen it is removed, the key is replaced (`api.cluster.keys`), and upstreams get other passwords.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from actors.cluster.database import CHANGE, Database
from actors.cluster.errors import DatabaseError
from actors.cluster.identity import NodeIdentity
from api.audit.audit_context import on_behalf_of
from api.cluster.following.rereading import Rereading
from api.cluster.links.certificates import (
    Certificates,
    KnownNode,
    canonical,
    fingerprint_of,
    is_signed,
    own_certificate,
)
from api.cluster.links.internal_api import NodeRefused, NodeUnreachable, ask
from api.cluster.roles import NodeLogin
from api.cluster.shared_ledger import SharedLedger
from api.engine.commit import Engine
from api.store import NotStored, RevisionConflict, StoreError, Write
from config import VERSION, OperatorError
from config.files.durable import KEY_BYTES, replace_file, sync
from config.files.paths import DataDir, open_data_dir, private_directory
from config.files.secret_box import SecretBox, SecretBoxError, seal_file, secret_box_of
from config.model.nodes import (
    COLLECTION,
    INTERNAL_ADDRESS,
    MAX_NODES,
    NodeCertificate,
    NodeRecord,
    name_of_machine,
    new_node_id,
    node_address,
    node_name,
)
from config.model.nodes import tokens as node_tokens
from config.model.nodes.tokens import NodeTokenRecord, TokenLine, with_port_of
from config.text.formatting import counted

WITHIN = 20.0
"""Seconds that a node has to let another one in."""
PATH = "/join"
_ADMINISTRATOR = "admin"
_TRIES = 5
_FRESH, _READ = "fresh", "read"
"""Folders in `data.cluster`: where the state is read to, and where it is when it is whole."""
_UNKNOWN = "there is no such token: it was revoked, or is of another fleet"


class JoinRefused(OperatorError):
    """The installation does not become a node; the text says why, and what can be done."""


# --- the node that is asked ---


class Admission:
    """Lets machines join by tokens. Thread-safe."""

    def __init__(
        self,
        engine: Engine,
        seal: SecretBox,
        identity: NodeIdentity,
        database: Database,
        certificates: Certificates,
        publish: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._publish = publish
        self._engine = engine
        self._seal = seal
        self._identity = identity
        self._database = database
        self._certificates = certificates

    def handle(self, _node: KnownNode | None, body: Mapping[str, Any]) -> dict[str, Any]:
        """Respond to `POST /join`. Raises `NodeRefused`, also for what the database refuses."""
        given = {name: _text(body, name) for name in ("token", "secret", "certificate", "signature", "name", "address")}
        for _ in range(_TRIES):
            try:
                with on_behalf_of("system", "join"):
                    return self._let_in(given)
            except (RevisionConflict, NotStored):
                continue  # the token was used or revoked at this moment
            except (StoreError, DatabaseError, SecretBoxError) as error:
                raise NodeRefused(f"the node can't be let in now: {error}", 503) from error
        raise NodeRefused("the token is in use", 409)

    def _let_in(self, given: Mapping[str, str]) -> dict[str, Any]:
        token, revision = self._token(given)
        fingerprint = fingerprint_of(given["certificate"])
        if not is_signed(given["certificate"], _proven(token.id, self._certificates.own.fingerprint), _octets(given)):
            raise NodeRefused("the signature is not by the key of the certificate")
        before = next((each for each in self._nodes() if each.certificate.fingerprint == fingerprint), None)
        self._check_token(token, before)
        record = self._record(given, token, before, fingerprint)
        used = token.model_copy(update={"used_by": record.id, "used_at": token.used_at or self._database.time()})
        expect = 0 if before is None else self._engine.revision_of(COLLECTION, record.id)
        with self._engine.rechecked(lambda: self._check_name(record)):
            self._engine.commit(
                [
                    Write(COLLECTION, record.id, record.model_dump(mode="json"), expect),
                    Write(node_tokens.COLLECTION, token.id, used.model_dump(mode="json"), revision),
                ]
            )
        if before is None:
            self._publish("node.joined", {"node_id": record.id, "name": record.name})
        return {
            "fleet": str(self._identity.fleet),
            "id": record.id,
            "name": record.name,
            "role": record.role,
            "key": self._seal.exported(),
            **self._logins(record),
        }

    def _token(self, given: Mapping[str, str]) -> tuple[NodeTokenRecord, int]:
        """The token, if the secret is good, and the revision of its document."""
        document = self._engine.get(node_tokens.COLLECTION, given["token"])
        if document is None:
            raise NodeRefused(_UNKNOWN)
        token = NodeTokenRecord.model_validate(document.body)
        if not token.is_secret(given["secret"]):
            raise NodeRefused(_UNKNOWN)
        return token, document.revision

    def _check_token(self, token: NodeTokenRecord, before: NodeRecord | None) -> None:
        if token.used_by is not None and (before is None or before.id != token.used_by):
            raise NodeRefused("the token was used by another machine, or its node was removed: make a new one")
        if token.expires_at <= self._database.time():
            raise NodeRefused("the token is over: make a new one, `proxyfleet nodes token`")
        if token.role == "edge" and not self._has_roles():
            raise NodeRefused("this fleet has one database role for all nodes, so there can be no edge nodes")

    def _record(
        self, given: Mapping[str, str], token: NodeTokenRecord, before: NodeRecord | None, fingerprint: str
    ) -> NodeRecord:
        try:
            name = node_name(token.name or given["name"])
        except ValueError as error:
            raise NodeRefused(f"--name: {error}", 400) from None
        try:
            address = node_address(given["address"])
        except ValueError as error:
            raise NodeRefused(f"--address: {error}", 400) from None
        record = before or NodeRecord(id=new_node_id(), name=name, created_at=self._database.time())
        changed: dict[str, Any] = {"name": name, "role": token.role, "tags": token.tags}
        changed["addresses"] = {**record.addresses, INTERNAL_ADDRESS: address}
        changed["certificate"] = NodeCertificate(fingerprint=fingerprint, pem=canonical(given["certificate"]))
        joined = record.model_copy(update=changed)
        self._check_name(joined)
        return joined

    def _check_name(self, record: NodeRecord) -> None:
        others = [each for each in self._nodes() if each.id != record.id]
        if any(each.name.lower() == record.name.lower() for each in others):
            raise NodeRefused(f"there is a node {record.name} already: join with another --name, or remove it", 409)
        if len(others) >= MAX_NODES:
            raise NodeRefused(f"a fleet has at most {MAX_NODES} nodes", 409)

    def _nodes(self) -> list[NodeRecord]:
        return [NodeRecord.model_validate(each.body) for each in self._engine.find(COLLECTION)]

    def _has_roles(self) -> bool:
        ((found,),) = self._database.transaction("SELECT has_roles FROM proxyfleet.fleet")
        return bool(found)

    def _logins(self, record: NodeRecord) -> dict[str, str]:
        """How the node reaches the database: with a new password each time that a node asks."""
        dsns = {"dsn": self._identity.dsn, "listen_dsn": self._identity.listen_dsn}
        if not self._has_roles():
            return dsns
        login = NodeLogin(record.id, record.role)
        self._database.transaction(*login.statement, CHANGE)
        return {name: login.dsn(each) if each else "" for name, each in dsns.items()}


def _proven(token: str, fingerprint: str) -> str:
    """What a machine signs that joins."""
    return f"proxyfleet join {token} {fingerprint}"


def _text(body: Mapping[str, Any], name: str) -> str:
    found = body.get(name, "")
    if not isinstance(found, str) or len(found) > 8192:
        raise NodeRefused(f"{name} is no text, or too long", 400)
    return found


def _octets(given: Mapping[str, str]) -> bytes:
    try:
        return base64.b64decode(given["signature"], validate=True)
    except (binascii.Error, ValueError):
        return b""


# --- the machine that joins ---


def what_is_there(engine: Engine) -> list[str]:
    """What an installation has that would be lost; nothing of one that was never used."""
    others = [each for each in engine.find("users") if each.body.get("username") != _ADMINISTRATOR]
    found = {"proxy": engine.find("proxies"), "user": others, "account": engine.find("accounts")}
    return [counted(len(each), one) for one, each in found.items() if each]


def ask_to_join(data: DataDir, line: str, name: str = "", address: str = "", listen: str = "") -> str:
    """Join the fleet, and keep what the asked node gave (`data.joining`); the name that the node has.

    `finish_joining` makes the installation a node, then or at its next start. An address without a port has that of
    `listen`. Raises `JoinRefused`,
    `NodeCertificateError` when another machine is at the address, `NodeUnreachable`, `NodeRefused`.
    """
    if data.node.exists():
        raise JoinRefused("this installation is a node of a fleet already: see `proxyfleet cluster status`")
    try:
        token = TokenLine.parse(line)
    except ValueError as error:
        raise JoinRefused(str(error)) from None
    own = own_certificate(data)
    try:
        reply = ask(
            token.place,
            token.fingerprint,
            PATH,
            {
                "token": token.id,
                "secret": token.secret,
                "certificate": own.pem,
                "signature": base64.b64encode(own.sign(_proven(token.id, token.fingerprint))).decode(),
                "name": name or name_of_machine() or "node",
                "address": with_port_of(address or _address_towards(token.place), listen),
                "version": VERSION,
            },
            WITHIN,
        )
    except NodeUnreachable as error:
        raise NodeUnreachable(f"{error}; that node's cluster.listen has to be reachable from here there") from error
    try:
        identity, _ = _read(reply)
        with closing(Database(identity.dsn)) as database:
            database.check()
        shutil.rmtree(data.cluster / _READ, ignore_errors=True)  # of another fleet
        replace_file(data.joining, json.dumps(reply).encode())
    except (ValueError, KeyError, TypeError) as error:
        raise JoinRefused(f"the response of {token.address} can't be read: is it of another release?") from error
    except DatabaseError as error:
        raise JoinRefused(
            f"the fleet's database can't be used from here: {error}; the token is still good for this machine"
        ) from error
    except OSError as error:
        raise JoinRefused(f"{data.joining}: {error.strerror or error}") from error
    return identity.name


def read_state(identity: NodeIdentity, data: DataDir) -> None:
    """Make the file of the fleet in this data directory of what the database has. Raises `StoreError`."""
    with (
        closing(Database(identity.dsn)) as database,
        closing(Engine(data, None, ledger := SharedLedger(database, identity.fleet, identity.id))) as engine,
    ):
        Rereading(ledger, identity, engine, lambda _kind, _data: None)()


def read_ahead(data: DataDir, read_state: Callable[[NodeIdentity, DataDir], object] = read_state) -> None:
    """Read the state of the fleet that this installation has joined, for `finish_joining`, which is short then.

    What the installation has is not touched, so its API may serve. Raises as `finish_joining`.
    """
    with _translated():
        _read_into_place(_read(json.loads(data.joining.read_bytes()))[0], data, read_state)


def has_read(data: DataDir) -> bool:
    """Whether `read_ahead` has read it."""
    return (data.cluster / _READ).exists()


def finish_joining(data: DataDir, read_state: Callable[[NodeIdentity, DataDir], object] = read_state) -> bool:
    """Make an installation a node that has joined; False when it has not.

    `read_state` makes the file of the fleet in a data directory of its own. The caller holds the lock. Raises
    `StoreError`: then it is to be done again.
    """
    if not data.joining.exists():
        return False
    whole = data.cluster / _READ
    with _translated():
        identity, key = _read(json.loads(data.joining.read_bytes()))
        if not data.node.exists():
            if not whole.exists():
                _read_into_place(identity, data, read_state)
            _take_key(data, key)
            _replace_store(data, DataDir(whole))
            identity.save(data, secret_box_of(data))
        shutil.rmtree(whole, ignore_errors=True)
        data.joining.unlink()
        sync(data.cluster)
    return True


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (OSError, OperatorError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"this installation has joined a fleet, and can't be its node yet: {error}") from error


def _read(reply: Mapping[str, Any]) -> tuple[NodeIdentity, str]:
    """What the asked node gave. Raises `ValueError`, `KeyError`, `TypeError`."""
    texts = {name: reply[name] for name in ("id", "name", "role", "dsn", "listen_dsn")}
    if not all(isinstance(each, str) for each in texts.values()) or texts["role"] not in ("full", "edge"):
        raise ValueError("not the texts that are expected")
    key = bytes.fromhex(reply["key"])  # while the fleet's is replaced there are two
    if not key or len(key) % KEY_BYTES:
        raise ValueError("not a key")
    return NodeIdentity(UUID(reply["fleet"]), **texts), reply["key"]


def _read_into_place(identity: NodeIdentity, data: DataDir, read: Callable[[NodeIdentity, DataDir], object]) -> None:
    fresh, whole = data.cluster / _FRESH, data.cluster / _READ
    for each in (fresh, whole):
        shutil.rmtree(each, ignore_errors=True)
    read(identity, open_data_dir(fresh))
    os.replace(fresh, whole)
    sync(data.cluster)


def _take_key(data: DataDir, key: str) -> None:
    file = seal_file(data)
    if file.exists() and file.read_text().strip() == key:
        return
    if file.parent != data.keys:
        raise JoinRefused(f"{file} is given by systemd, and is another key than the fleet's: remove the credential")
    private_directory(data.keys)
    replace_file(file, f"{key}\n".encode())


def _replace_store(data: DataDir, fresh: DataDir) -> None:
    """What the installation had is no more: its file, and what belongs to that."""
    for each in ("-wal", "-shm"):
        Path(f"{data.fleet}{each}").unlink(missing_ok=True)
    if fresh.fleet.exists():
        os.replace(fresh.fleet, data.fleet)
    for path in (data.unsettled, data.initial_password, data.account_sessions):
        path.unlink(missing_ok=True)
    shutil.rmtree(data.idempotency, ignore_errors=True)
    sync(data.path)


def _address_towards(place: tuple[str, int]) -> str:
    """The address of this machine from which it reaches another one; nothing is sent."""
    with suppress(OSError):
        for family, kind, protocol, _, found in socket.getaddrinfo(*place, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind, protocol) as tried:
                tried.connect(found)
                return str(tried.getsockname()[0])
    return ""
