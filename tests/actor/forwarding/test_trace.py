"""At the level `debug` the log has a line for each decision about a connection; at others it has none."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import bcrypt
import pytest

from actors.bus.messages.common import ApplySettings, Done
from actors.bus.messages.specs import AccessSpec
from actors.forwarding.access.authenticator import prehash
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.kit import forked_actor
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, responds
from tests.kit.settings import boot_settings
from tests.kit.upstreams import of_rig, upstream_list

SECRET = "s3cret-word"


@contextmanager
def logging_to(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """What the actors of the test have logged: their zygote inherits this standard error.

    `capfd` would lose what is written while it empties its file.
    """
    monkeypatch.setattr(forked_actor, "_zygotes", {})  # it is to be made by the test itself
    previous = os.dup(2)
    with file.open("ab") as opened:
        os.dup2(opened.fileno(), 2)
    try:
        yield file.read_text
        for each in forked_actor._zygotes.values():
            each.end()
    finally:
        os.dup2(previous, 2)
        os.close(previous)


def test_each_decision_has_a_line_while_the_level_is_debug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = bcrypt.hashpw(prehash(SECRET.encode()), bcrypt.gensalt(4)).decode()
    fields = [
        "Proxy-Authorization: Basic " + base64.b64encode(f"alice:{word}".encode()).decode() for word in (SECRET, "no")
    ]
    to_file = logging_to(tmp_path / "stderr", monkeypatch)
    with to_file as log, Rig() as far, Rig(auth_username="alice", auth_hash=stored) as rig:
        with Origin(responds(*[counted(b"one")] * 4)) as origin, connect(rig) as client:
            client.sendall(get(origin, "/quiet", fields[0]))
            read_response(client)
            assert rig.ask(ApplySettings({"logging": boot_settings(logging={"level": "debug"})["logging"]})) == Done()
            for path in (f"/{SECRET}", "/again"):
                client.sendall(get(origin, path, fields[0]))
                read_response(client)
            client.sendall(get(origin, "/wrong", fields[1]))
            read_response(client)
            rig.configure(upstreams=upstream_list(of_rig(far)))
            client.sendall(get(origin, "/far", fields[0]))
            read_response(client)
            rig.configure(upstreams=upstream_list(), access=AccessSpec(deny_destinations=("127.0.0.0/8",)))
            with connect(rig) as refused:
                refused.sendall(get(origin, "/refused", fields[0]))
                read_response(refused)
        start = rf"p \({rig.port}\): connection [0-9a-f]+: "
        for wanted in (
            "accepted from 127.0.0.1",
            "authenticated as 'alice'",
            "wrong or no credentials",
            f"to {origin.authority} by a kept connection",
            f"upstreams tried: http-{far.port}",
            f"through upstream http-{far.port} by failover",
            f"connected to 127.0.0.1 port {far.port}",
            f"GET {origin.authority}: status 200; [0-9]+ bytes in, [0-9]+ out",
            r"GET [0-9.:]+: status 403, destination_denied: [^(]*\(by [^)]*127.0.0.0/8",
            "ended after [0-9.]+ s",
        ):
            until(lambda wanted=wanted: re.search(start + wanted, log()), wanted)  # type: ignore[misc]
        seen = log()
        assert SECRET not in seen
        assert "accepted" not in seen.partition("authenticated")[0], "not before the level was debug"
        assert rig.ask(ApplySettings({"logging": boot_settings()["logging"]})) == Done()
        before = len(log())
        with connect(rig) as client:
            client.sendall(b"nonsense\r\n\r\n")
            rig.record(status_code=400)
        assert "connection" not in log()[before:]
