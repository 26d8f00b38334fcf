"""The service of the recipe "Accounts from LDAP or a database", as the documentation has it."""

from __future__ import annotations

import re
import sqlite3
import threading
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import bcrypt
import pytest

from actors.bus.messages.specs import BackendSpec
from config.model.webhooks import new_secret
from tests.actor.forwarding.account_client import credentials
from tests.actor.forwarding.shared_accounts import fetch
from tests.kit.auth_backends import PRIVATE_ALLOWED
from tests.kit.folders import ROOT
from tests.kit.forwarding_rig import Rig
from tests.kit.scripted_origins import Origin, counted, responds


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Quiet."""


def test_the_recipe_lets_in_who_is_in_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "how-to" / "access.md").read_text()
    section = text.partition("## Accounts from LDAP or a database")[2]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(found[1], names)
    with sqlite3.connect(tmp_path / "staff.db") as database:
        database.execute("CREATE TABLE staff (name TEXT, hash TEXT)")
        hashed = bcrypt.hashpw(b"pw", bcrypt.gensalt(4)).decode()
        database.execute("INSERT INTO staff VALUES ('alice', ?)", [hashed])
    secret = new_secret()
    monkeypatch.setenv("BACKEND_SECRET", secret)
    monkeypatch.setenv("STAFF", str(tmp_path / "staff.db"))
    server = make_server("127.0.0.1", 0, names["app"], handler_class=_Quiet)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        backend = BackendSpec(f"http://127.0.0.1:{server.server_port}/", secret)
        with (
            Origin(responds(*[counted(b"yes")] * 3)) as origin,
            Rig(egress=PRIVATE_ALLOWED, auth_required=True, backend=backend) as rig,
        ):
            tried = [("alice", "pw"), ("alice", "wrong"), ("bob", "pw")]
            assert [fetch(rig, origin, credentials(*each))[0] for each in tried] == [200, 407, 407]
    finally:
        server.shutdown()
        server.server_close()
