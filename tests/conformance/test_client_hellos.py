"""ClientHellos as OpenSSL's server reads them: real ones, and thousands that are nearly right (`tls_reference`)."""

from __future__ import annotations

import ssl
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

from actors.net.client_hello import NOT_TLS, BadHello
from tests.conformance.hello_mutations import mutated
from tests.conformance.tls_reference import UNSUPPORTED, as_ours, check, openssl, ours
from tests.kit.certificates import make_pair
from tests.kit.client_hellos import records, samples

CASES = 2_000
"""Some second; each takes OpenSSL's handshake and ours."""


def test_openssl_reads_the_names_of_real_hellos_as_expected() -> None:
    for sample in samples():
        kind, said = openssl(records(sample.message, 700))
        assert said in UNSUPPORTED or (kind, as_ours(said)) == ("name", sample.name), sample.client


def test_openssl_acts_on_the_same_name_and_refuses_the_same() -> None:
    random, outcomes = Random(7), Counter[str]()
    for _ in range(CASES):
        outcomes[check(mutated(random))] += 1
    assert min(outcomes[each] for each in ("name", "refused", "more", "name, refused")) > CASES / 100, outcomes


def test_pieces_don_t_matter_where_a_hello_is_wrong_either() -> None:
    random = Random(8)
    for _ in range(CASES // 10):
        stream = mutated(random)
        cuts = sorted(random.choices(range(len(stream) + 1), k=3))
        pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
        assert repr(ours(pieces)) == repr(ours([stream])), stream.hex()


def test_a_hello_in_the_form_of_sslv2_has_no_name_for_openssl_and_is_no_tls_here() -> None:
    suites = bytes.fromhex("00002f 000035 00c013 00c014")
    body = b"\x01\x03\x03" + bytes((0, len(suites), 0, 0, 0, 32)) + suites + bytes(range(32))
    octets = bytes((0x80, len(body))) + body
    refused = ours([octets])
    assert openssl(octets) == ("name", "")
    assert isinstance(refused, BadHello)
    assert refused.kind == NOT_TLS


def test_a_resumed_session_has_the_name_of_the_hello_in_tls_1_3_alone(tmp_path: Path) -> None:
    """docs/security.md says so: before, a client may have the session from elsewhere, and another name in the hello."""
    assert resumed(make_pair(tmp_path), ssl.TLSVersion.TLSv1_3) == ["first.example", "second.example"]
    assert resumed(make_pair(tmp_path), ssl.TLSVersion.TLSv1_2) == ["first.example", "first.example"]


def resumed(pair: tuple[str, str], version: ssl.TLSVersion) -> list[str | None]:
    """The names that a server is given; the second handshake resumes the session of the first."""
    names: list[str | None] = []
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(*pair)
    server.sni_callback = lambda _tls, name, _context: names.append(name)
    client.maximum_version = version
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    session = None
    for name in ("first.example", "second.example"):
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = client.wrap_bio(down, up, server_hostname=name, session=session), server.wrap_bio(up, down, True)
        for _ in range(4):
            for end in ends:
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
        with suppress(ssl.SSLWantReadError):
            ends[0].read()
        session = ends[0].session
    assert ends[0].session_reused
    return names
