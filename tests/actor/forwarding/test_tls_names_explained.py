"""What is explained about the name in a TLS handshake is what becomes of a real one, in generated configurations."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.bus.messages.forwarding import Explain, RequestExplanation
from actors.bus.messages.specs import AccessSpec, DnsSpec, PolicySpec, RuleSpec
from actors.forwarding.fleet_objects import FleetObjects
from actors.net.client_hello import UNRECOGNIZED_NAME_ALERT
from config.model.choices import TLS_NAME_CHECKS
from tests.actor.forwarding.http_client import connect
from tests.kit.forwarding_rig import Rig
from tests.kit.scripted_origins import Origin, read_all, read_head_alone
from tests.kit.upstreams import of_rig, upstream_list

DNS = DnsSpec(hosts={"site.test": ("127.0.0.1",)})
HOSTS = ("site.test", "127.0.0.1")
NAMES = ("site.test", "Site.Test", "other.example", "no.example", "")
ENTRIES = ("site.test", "*.example", "no.example", "127.0.0.0/8", "*", ":1-65535", "site.test:1")
LISTS = st.lists(st.sampled_from(ENTRIES), max_size=3).map(tuple)
ACCESS = st.builds(
    AccessSpec,
    allow_destinations=LISTS,
    deny_destinations=st.sampled_from(((), (), ("no.example",), ("*.example",))),
    mode=st.sampled_from(("enforce", "report")),
)
RULES = st.lists(
    st.builds(
        RuleSpec,
        destinations=LISTS,
        use=st.sampled_from(("", "direct", "deny")),
        report=st.booleans(),
        tls_name=st.sampled_from(("", *TLS_NAME_CHECKS)),
    ),
    max_size=2,
).map(tuple)


@cache
def hello(name: str) -> bytes:
    """The first flight of OpenSSL; empty: without a name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name or None)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def keep_nothing(sock: socket.socket) -> None:
    while sock.recv(65536):
        pass
    sock.close()


@pytest.fixture(scope="module")
def upstream() -> Iterator[Rig]:
    with Rig(id="px2", dns=DNS, tls_name="off") as shared:
        yield shared


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig(dns=DNS) as shared:
        yield shared


@pytest.fixture(scope="module")
def site() -> Iterator[Origin]:
    with Origin(keep_nothing) as origin:
        yield origin


def really(rig: Rig, host: str, port: int, flight: bytes) -> str:
    """`no tunnel`, `refused`, or the reason in the record of a tunnel that was let through."""
    with connect(rig) as sock:
        sock.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        if not read_head_alone(sock).startswith(b"HTTP/1.1 200 "):
            return "no tunnel"
        sock.sendall(flight)
        sock.shutdown(socket.SHUT_WR)
        if read_all(sock) == UNRECOGNIZED_NAME_ALERT:
            assert rig.record(reason="tls_name_denied")
            return "refused"
    return str(rig.record(status_code=200)["reason"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(
    access=ACCESS,
    rules=RULES,
    tls_name=st.sampled_from(TLS_NAME_CHECKS),
    host=st.sampled_from(HOSTS),
    name=st.sampled_from(NAMES),
    behind=st.booleans(),
)
def test_what_is_explained_is_what_becomes_of_a_handshake(
    rig: Rig,
    upstream: Rig,
    site: Origin,
    access: AccessSpec,
    rules: tuple[RuleSpec, ...],
    tls_name: str,
    host: str,
    name: str,
    behind: bool,
) -> None:
    rig.configure(
        FleetObjects(policies=(PolicySpec("policy_1", "office", rules),)),
        policy="office",
        access=access,
        tls_name=tls_name,
        tls_ports=(site.port,),
        upstreams=upstream_list(of_rig(upstream)) if behind else upstream_list(),
    )
    explained = rig.ask(Explain("127.0.0.1", None, f"{host}:{site.port}", tls_name=name))
    assert isinstance(explained, RequestExplanation)
    rig.records.clear()
    found = really(rig, host, site.port, hello(name))
    if explained.decision == "allow":
        assert found == explained.reason
    else:
        assert found == ("refused" if explained.stage == "tls_name" else "no tunnel")
