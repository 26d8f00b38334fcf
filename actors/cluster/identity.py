"""What makes an installation a node of a fleet: a file of the data directory, without which it stands alone."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Literal
from uuid import UUID

from actors.cluster.errors import DatabaseUnusable
from config.files.durable import replace_file
from config.files.paths import DataDir, private_directory
from config.files.secret_box import SealedFor, SecretBox, SecretBoxError

NodeRole = Literal["full", "edge"]


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """This node. `id` is that of its document in the collection `nodes`, for ever its own: in the database it stands
    for the node, so that another one may have its name later. `dsn` has the password of its role."""

    fleet: UUID
    id: str
    name: str
    role: NodeRole
    dsn: str = field(repr=False)
    listen_dsn: str = field(default="", repr=False)
    """A direct connection, where `dsn` leads through a pooler; empty for `dsn` itself."""

    def save(self, data: DataDir, seal: SecretBox) -> None:
        """Write it, with sealed DSNs. Raises `OSError`, `PathError` and `SecretBoxError`."""
        private_directory(data.cluster)
        plain = {**asdict(self), "fleet": str(self.fleet)}
        for name in ("dsn", "listen_dsn"):
            plain[name] = seal.seal(plain[name], SealedFor.DSN)
        replace_file(data.node, json.dumps(plain, indent=1).encode())


def identity_of(data: DataDir, seal: SecretBox) -> NodeIdentity | None:
    """That of this installation; None when it stands alone. Raises `DatabaseUnusable` for a file that can't be read."""
    try:
        plain = json.loads(data.node.read_bytes())
        opened = {name: seal.open(plain[name], SealedFor.DSN) for name in ("dsn", "listen_dsn")}
        return NodeIdentity(**{**plain, **opened, "fleet": UUID(plain["fleet"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, SecretBoxError) as error:
        raise DatabaseUnusable(f"{data.node}: can't be read: {error}") from error
