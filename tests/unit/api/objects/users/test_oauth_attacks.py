"""What must not get anybody in: forged tokens, states of others, codes used again, providers that misbehave."""

from __future__ import annotations

import base64
import hmac
import json
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from actors.net.egress_guard import OutgoingGuard
from api.errors import Invalid, PeerUnavailable
from api.oauth import transport
from api.oauth.id_token import KEYS_TTL, REFETCH_PAUSE, IdentityRefused, KeySet, verified_address
from api.oauth.provider import Endpoints, find_endpoints
from api.oauth.sign_in import _UNKNOWN, LIFETIME, PER_ADDRESS, PendingSignIns, cookie_name
from config.settings.groups import OAuth2
from tests.kit.api_stage import error_of
from tests.kit.certificates import make_pair
from tests.kit.endless_peer import EndlessPeer
from tests.kit.fake_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    RSA_KEY,
    FakeProvider,
    Make,
    begin,
    curve_key,
    finish,
    other_rsa_key,
    public_jwk,
    sign_in,
)
from tests.kit.tables import table

ORIGIN = {"Origin": "https://fleet.example"}
Claims = dict[str, Any]
REFUSED = (401, "UNAUTHORIZED")


# --- states -------------------------------------------------------------------------------------------------------


def test_a_state_is_good_once(make: Make, provider: FakeProvider) -> None:
    api = make()
    url = begin(api)["authorization_url"]
    first, second = provider.sign_in(url), provider.sign_in(url)
    assert finish(api, first).status_code == 200
    assert error_of(finish(api, second))[::2] == (400, {"field": "state", "error": _UNKNOWN})
    assert len(provider.token_requests) == 1


def test_a_state_is_used_up_also_when_the_sign_in_fails(make: Make, provider: FakeProvider) -> None:
    api = make()
    back = provider.sign_in(begin(api)["authorization_url"])
    assert error_of(finish(api, {**back, "code": "guessed"}))[2]["field"] == "code"
    assert error_of(finish(api, back))[2]["field"] == "state"


def test_of_twenty_callbacks_at_the_same_time_one_gets_in(make: Make, provider: FakeProvider) -> None:
    api = make()
    back = provider.sign_in(begin(api)["authorization_url"])
    start, statuses = threading.Barrier(20), []

    def run() -> None:
        start.wait()
        statuses.append(finish(api, back).status_code)

    threads = [threading.Thread(target=run) for _ in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert statuses.count(200) == 1
    assert set(statuses) <= {200, 400, 429}


def test_a_made_up_state_is_refused_without_asking_the_provider(make: Make, provider: FakeProvider) -> None:
    api = make()
    assert error_of(finish(api, {"code": "c", "state": "made-up"}))[2]["field"] == "state"
    assert provider.asked == []


def test_a_code_is_not_good_twice(make: Make, provider: FakeProvider) -> None:
    api = make()
    back = provider.sign_in(begin(api)["authorization_url"])
    assert finish(api, back).status_code == 200
    again = {**back, "state": begin(api)["state"]}
    assert error_of(finish(api, again))[::2][0] == 400


def test_a_code_of_another_sign_in_lacks_the_verifier(make: Make, provider: FakeProvider) -> None:
    """Injected into one's own session, a stolen code is worth nothing: PKCE."""
    api = make()
    stolen = provider.sign_in(begin(api)["authorization_url"])["code"]
    assert error_of(finish(api, {"code": stolen, "state": begin(api)["state"]}))[2]["field"] == "code"


def test_a_response_of_another_issuer_is_rejected(make: Make, provider: FakeProvider) -> None:
    api = make()
    back = provider.sign_in(begin(api)["authorization_url"])
    assert error_of(finish(api, {**back, "iss": "https://elsewhere.example"}))[:2] == REFUSED
    back = provider.sign_in(begin(api)["authorization_url"])
    assert finish(api, {**back, "iss": provider.url}).status_code == 200


def test_states_are_gone_after_ten_minutes() -> None:
    now = [0.0]
    states = PendingSignIns(lambda: now[0])
    early = states.start("192.0.2.1")
    now[0] = LIFETIME - 1.0
    late = states.start("192.0.2.1")
    now[0] = float(LIFETIME)
    with pytest.raises(Invalid, match=r"^state: "):
        states.take(early.state, None)
    assert states.take(late.state, None) == late


@pytest.mark.parametrize(("theirs", "own_address"), [("192.0.2.1", "192.0.2.2"), ("2001:db8:1::1", "2001:db8::{:x}")])
def test_who_begins_many_sign_ins_pushes_out_only_their_own(theirs: str, own_address: str) -> None:
    states = PendingSignIns()
    other = states.start(theirs)
    own = [states.start(own_address.format(each + 1)) for each in range(PER_ADDRESS + 1)]
    with pytest.raises(Invalid, match=r"^state: "):
        states.take(own[0].state, None)
    assert states.take(own[1].state, None) == own[1]
    assert states.take(other.state, None) == other


def test_there_are_never_more_states_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.oauth.sign_in.REMEMBERED", 3)
    states = PendingSignIns()
    begun = [states.start(f"192.0.2.{each}") for each in range(5)]
    assert len(states._entries) == len(states._by_address) == 3
    assert [states.take(each.state, None) for each in begun[2:]] == begun[2:]


# --- the browser that began ---------------------------------------------------------------------------------------


def test_what_a_browser_began_it_can_finish(make: Make, provider: FakeProvider) -> None:
    api = make()
    begun = api.get("/auth/oauth2/authorize", {"Accept": "text/html"})
    cookie = begun.headers["set-cookie"]
    for part in ("__Host-proxyfleet-sign-in-", "; Secure", "; HttpOnly", "; SameSite=Lax", "; Path=/", "Max-Age=600"):
        assert part in cookie
    back = provider.sign_in(begun.headers["location"])
    response = finish(api, back, **ORIGIN, Cookie=f"theme=dark; {cookie.partition(';')[0]}")
    assert response.status_code == 200
    assert "Max-Age=0" in response.headers["set-cookie"]


@pytest.mark.parametrize("header", [ORIGIN, {"Sec-Fetch-Site": "same-origin"}, {"Origin": "null"}])
def test_a_sign_in_that_another_browser_began_is_rejected(
    make: Make, provider: FakeProvider, header: dict[str, str]
) -> None:
    api = make()
    own = api.get("/auth/oauth2/authorize").headers["set-cookie"].partition(";")[0]
    for cookie in ({}, {"Cookie": own}, {"Cookie": own.partition("=")[0] + "="}):
        attackers = provider.sign_in(begin(api)["authorization_url"])
        assert error_of(finish(api, attackers, **header, **cookie))[2]["field"] == "state"
    assert provider.token_requests == []


def test_the_cookie_of_a_state_must_have_its_value(make: Make, provider: FakeProvider) -> None:
    api = make()
    back = provider.sign_in(begin(api)["authorization_url"])
    forged = f"__Host-{cookie_name(back['state'])}="
    for value in ("", "x", "\xff"):
        assert error_of(finish(api, back, **ORIGIN, Cookie=forged + value))[2]["field"] == "state"


# --- ID tokens ----------------------------------------------------------------------------------------------------


def with_key(key: Any, algorithm: str, kid: str = "k1") -> Callable[[Claims], str]:
    return lambda claims: jwt.encode(claims, key, algorithm, headers={"kid": kid})


def hand_signed(secret: bytes) -> Callable[[Claims], str]:
    """By hand: pyjwt would not take a public key for a secret, but an attacker does."""

    def encoded(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    def sign(claims: Claims) -> str:
        head = encoded(json.dumps({"alg": "HS256", "kid": "k1", "typ": "JWT"}).encode())
        signed = f"{head}.{encoded(json.dumps(claims).encode())}"
        return f"{signed}.{encoded(hmac.digest(secret, signed.encode(), 'sha256'))}"

    return sign


PUBLIC_PEM = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@table(
    "sign",
    [
        with_key("", "none"),
        hand_signed(PUBLIC_PEM),
        hand_signed(CLIENT_SECRET.encode()),
        with_key(other_rsa_key(), "RS256"),
        with_key(curve_key(), "ES256"),
        with_key(RSA_KEY, "RS512"),
        with_key(RSA_KEY, "RS256", "unknown"),
        lambda claims: FakeProvider.signed(claims)[:-8] + "AAAAAAAA",
        lambda _claims: "not.a.token",
        lambda _claims: "x" * 10_000,
    ],
    ids=["none", "hs256_public_key", "hs256_secret", "other_key", "curve", "rs512", "kid", "cut", "text", "long"],
)
def test_a_forged_id_token_is_rejected(make: Make, provider: FakeProvider, sign: Callable[[Claims], str]) -> None:
    api = make()
    provider.sign = sign
    assert error_of(sign_in(api, provider))[:2] == REFUSED
    assert len(api.store.find("users")) == 1


@table(
    "change",
    [
        {"nonce": "of another sign-in"},
        {"nonce": None},
        {"nonce": 7},
        {"nonce": "\ud800"},
        {"iss": "https://elsewhere.example"},
        {"aud": "another client"},
        {"aud": ["another client", "a third"]},
        {"aud": [CLIENT_ID, "another client"]},
        {"azp": "another client"},
        {"aud": [CLIENT_ID], "azp": "another client"},
        {"exp": 1_000_000_000},
        {"exp": "soon"},
        {"iat": 4_000_000_000},
        {"nbf": 4_000_000_000},
        {"sub": ""},
        {"sub": None},
        {"sub": "x" * 256},
        {"sub": {"id": 1}},
    ],
    ids=str,
)
def test_an_id_token_with_other_claims_is_rejected(make: Make, provider: FakeProvider, change: Claims) -> None:
    api = make()
    provider.alter = lambda claims: {name: each for name, each in {**claims, **change}.items() if each is not None}
    assert error_of(sign_in(api, provider))[:2] == REFUSED
    assert len(api.store.find("users")) == 1


def test_an_id_token_is_not_good_a_minute_after_its_end(make: Make, provider: FakeProvider) -> None:
    provider.alter = lambda claims: {**claims, "exp": int(time.time()) - 60}
    assert error_of(sign_in(make(), provider))[:2] == REFUSED


@table("name", ["iss", "sub", "aud", "exp", "iat", "nonce"])
def test_an_id_token_must_have_all_of_its_claims(make: Make, provider: FakeProvider, name: str) -> None:
    provider.alter = lambda claims: {key: value for key, value in claims.items() if key != name}
    assert error_of(sign_in(make(), provider))[:2] == REFUSED


def test_clocks_may_differ_a_little_and_several_audiences_name_their_party(make: Make, provider: FakeProvider) -> None:
    def differing(claims: dict[str, Any]) -> dict[str, Any]:
        now = int(time.time())
        return {**claims, "exp": now - 5, "iat": now + 5, "aud": [CLIENT_ID, "another"], "azp": CLIENT_ID}

    provider.alter = differing
    assert sign_in(make(), provider).status_code == 200


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256"])
def test_all_three_algorithms_are_taken_and_a_lone_key_needs_no_id(
    make: Make, provider: FakeProvider, algorithm: str
) -> None:
    key = curve_key() if algorithm == "ES256" else RSA_KEY
    jwk = public_jwk(key, algorithm, "k2")
    del jwk["kid"], jwk["alg"], jwk["use"]
    provider.keys = [jwk]
    provider.sign = lambda claims: jwt.encode(claims, key, algorithm)
    assert sign_in(make(), provider).status_code == 200


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
def test_keys_that_are_not_for_this_are_not_taken(make: Make, provider: FakeProvider) -> None:
    good = provider.keys[0]
    weak = other_rsa_key(1024)
    for keys in (
        [],
        [{**good, "use": "enc"}],
        [{**good, "alg": "RS512"}],
        [{**good, "n": "AQAB"}],
        [good, good],
        ["x"],
    ):
        provider.keys = keys
        assert error_of(sign_in(make(), provider))[:2] == REFUSED
    provider.keys = [public_jwk(weak, "RS256", "k1")]
    provider.sign = with_key(weak, "RS256")
    assert error_of(sign_in(make(), provider))[:2] == REFUSED


def test_new_keys_are_found_and_made_up_ones_do_not_become_requests() -> None:
    now, fetches, keys = [0.0], [0], [public_jwk(RSA_KEY, "RS256", "old")]

    def fetch() -> dict[str, Any]:
        fetches[0] += 1
        return {"keys": list(keys)}

    known = KeySet(fetch, lambda: now[0])
    header = {"alg": "RS256", "kid": "old"}
    assert known.key_for(header).key_id == "old"
    for _ in range(50):
        with pytest.raises(IdentityRefused):
            known.key_for({"alg": "RS256", "kid": "made up"})
    assert fetches == [1]
    keys.append(public_jwk(RSA_KEY, "RS256", "new"))
    now[0] = REFETCH_PAUSE
    assert known.key_for({"alg": "RS256", "kid": "new"}).key_id == "new"
    assert fetches == [2]
    del keys[0]
    now[0] += KEYS_TTL
    with pytest.raises(IdentityRefused):
        known.key_for(header)


# --- addresses of providers ---------------------------------------------------------------------------------------


def endpoints(issuer: str) -> Endpoints:
    return Endpoints("https://x/a", "https://x/t", None, "https://x/k", issuer, "client_secret_post")


def test_a_shared_directory_of_microsoft_is_one_issuer_for_each_directory() -> None:
    shared = endpoints("https://login.microsoftonline.com/{tenantid}/v2.0")
    one = "https://login.microsoftonline.com/11111111-2222/v2.0"
    assert shared.accepts_issuer({"iss": one, "tid": "11111111-2222"})
    assert not shared.accepts_issuer({"iss": one, "tid": "other"})
    assert not shared.accepts_issuer({"iss": one})
    assert not endpoints(one).accepts_issuer({"iss": "https://login.microsoftonline.com/other/v2.0", "tid": "other"})


def test_microsoft_says_by_a_claim_of_its_own_that_an_address_is_verified() -> None:
    claims: Claims = {"email": "jane@contoso.example"}
    assert verified_address(claims) is None
    assert verified_address({**claims, "xms_edov": False}) is None
    for value in (True, 1, "1", "true"):
        assert verified_address({**claims, "xms_edov": value}) == "jane@contoso.example"


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://elsewhere.example"},
        {"issuer": None},
        {"token_endpoint": None},
        {"token_endpoint": "http://elsewhere.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": 7},
        {"userinfo_endpoint": "https://user:password@elsewhere.example/"},
    ],
    ids=str,
)
def test_a_discovery_document_that_can_not_be_right_is_not_used(provider: FakeProvider, metadata: Claims) -> None:
    provider.metadata = metadata
    with pytest.raises(PeerUnavailable):
        find_endpoints(provider.settings(), OutgoingGuard(()))


# --- providers that misbehave -------------------------------------------------------------------------------------

PLAIN = {"Content-Type": "application/json"}
LOST = (502, "EXTERNAL_SERVICE_ERROR")


@table(
    "response",
    [
        (302, {"Location": "https://elsewhere.example/"}, b""),
        (200, PLAIN, b'{"access_token": "' + b"x" * transport.LARGEST + b'"}'),
        (200, PLAIN, b"[" * 100_000),
        (200, PLAIN, b"not json"),
        (200, PLAIN, b"[]"),
        (200, PLAIN, b"{}"),
        (200, PLAIN, b'{"access_token": 7}'),
        (200, PLAIN, b'{"access_token": "x", "expires_in": "soon"}'),
        (200, PLAIN, b'{"access_token": "x", "expires_in": 1e999}'),
        (200, PLAIN, b'{"access_token": "x"}'),
        (200, {**PLAIN, "Content-Encoding": "gzip"}, b"\x1f\x8b"),
        (200, {"Content-Length": "100"}, b"{"),
        (400, PLAIN, b'{"error": "invalid_client"}'),
        (400, PLAIN, b'{"error": ["invalid_grant"]}'),
        (500, PLAIN, b"{}"),
        (503, PLAIN, b"later"),
    ],
    ids=range(16),
)
def test_a_token_endpoint_that_misbehaves_is_a_502_without_the_inside(
    make: Make, provider: FakeProvider, response: Any
) -> None:
    api = make()
    back = provider.sign_in(begin(api)["authorization_url"])
    provider.responses["/token"] = response
    refused = finish(api, back)
    assert error_of(refused)[:2] == LOST
    assert error_of(refused)[2] == {"service": "identity_provider"}
    assert CLIENT_SECRET not in refused.text
    assert provider.url not in refused.text


@pytest.mark.parametrize(
    ("response", "error"),
    [
        ((302, {"Location": "/elsewhere"}, b"{}"), "redirect"),
        ((307, {"Location": "/elsewhere"}, b"{}"), "redirect"),
        ((200, PLAIN, b" " * transport.LARGEST + b"{}"), "more than 262144 bytes"),
        ((200, {**PLAIN, "Content-Encoding": "br"}, b"{}"), "only identity is accepted"),
        ((201, PLAIN, b"{}"), "status 201"),
        ((200, PLAIN, b"[" * 100_000), "recursion"),
    ],
)
def test_the_reason_why_a_response_is_not_used_is_logged(provider: FakeProvider, response: Any, error: str) -> None:
    provider.responses["/here"] = response
    provider.responses["/elsewhere"] = (200, PLAIN, b"{}")
    with pytest.raises(PeerUnavailable, match=error):
        transport.get_json(f"{provider.url}/here", OutgoingGuard(()), "a token")
    assert provider.asked == ["/here"]


def test_a_code_is_not_sent_to_where_a_token_endpoint_points(make: Make, provider: FakeProvider) -> None:
    api = make()
    back = provider.sign_in(begin(api)["authorization_url"])
    provider.responses["/token"] = (307, {"Location": "/elsewhere"}, b"")
    assert error_of(finish(api, back))[:2] == LOST
    assert "/elsewhere" not in provider.asked


@table("path", ["/userinfo", "/jwks"])
@table("response", [(302, {"Location": "/x"}, b""), (404, PLAIN, b"{}"), (200, PLAIN, b"[]")], ids=str)
def test_other_endpoints_that_misbehave_are_a_502_too(
    make: Make, provider: FakeProvider, path: str, response: Any
) -> None:
    provider.claims = {"sub": "1"}
    provider.responses.clear()
    provider.responses[path] = response
    assert error_of(sign_in(make(), provider))[:2] == LOST


def test_a_provider_that_is_gone_is_a_502_and_left_alone_for_a_while(
    make: Make, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.oauth.provider.FAILURE_TTL", 3600.0)
    api = make()
    provider.responses["/.well-known/openid-configuration"] = (503, {}, b"")
    for _ in range(5):
        assert error_of(api.get("/auth/oauth2/authorize"))[:2] == LOST
    assert len(provider.asked) == 1


def test_a_silent_provider_holds_up_three_requests_and_no_more(make: Make, provider: FakeProvider) -> None:
    api = make()
    backs = [provider.sign_in(begin(api)["authorization_url"]) for _ in range(4)]
    provider.pause.clear()
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda b=back: statuses.append(finish(api, b).status_code)) for back in backs[:3]
    ]
    for each in threads:
        each.start()
    deadline = time.monotonic() + 120
    while provider.asked.count("/token") < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    busy = finish(api, backs[3])
    assert error_of(busy) == (429, "RATE_LIMITED", {"retry_after": 1})
    sign_ins = api.services.sign_ins
    with pytest.raises(Invalid):  # so it had a place
        sign_ins.finish("code", "unknown", None, None, "198.51.100.7")
    provider.pause.set()
    for each in threads:
        each.join()
    assert statuses == [200, 200, 200]
    assert finish(api, backs[3]).status_code == 200  # being turned away costs no state


def test_a_silent_provider_is_given_up(make: Make, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    api = make()
    back = provider.sign_in(begin(api)["authorization_url"])
    monkeypatch.setattr(transport, "SILENCE", 0.05)
    provider.pause.clear()
    assert error_of(finish(api, back))[:2] == LOST


def test_a_response_that_trickles_is_given_up(
    make: Make, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = make()
    back = provider.sign_in(begin(api)["authorization_url"])
    monkeypatch.setattr(transport, "DEADLINE", -1.0)
    assert error_of(finish(api, back))[:2] == LOST


def test_a_response_without_an_end_is_given_up_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = (
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b" "),
    )
    ended: dict[str, str] = {}

    def ask(url: str) -> None:
        try:
            transport.get_json(url, OutgoingGuard(()))
        except PeerUnavailable as error:
            ended[url] = str(error)

    with ExitStack() as peers:
        urls = [peers.enter_context(EndlessPeer(*each)).url for each in endless]
        proxies = {f"http://login{number}.invalid/here": url for number, url in enumerate(urls)}
        monkeypatch.setattr(transport, "DEADLINE", 1.0)
        monkeypatch.setattr(transport, "_proxies", lambda url: {"http": proxies[url]} if url in proxies else {})
        asked = [*(f"{url}/here" for url in urls), *proxies]
        with ThreadPoolExecutor(len(asked)) as threads:
            list(threads.map(ask, asked))
    assert [url for url in asked if "took longer than 1 s" not in ended.get(url, "")] == []


def test_only_a_provider_whose_certificate_is_trusted_is_spoken_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, key = make_pair(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted, key)
    provider = FakeProvider(context)
    try:
        with pytest.raises(PeerUnavailable, match="certificate verify failed"):
            find_endpoints(provider.settings(), OutgoingGuard(()))
        monkeypatch.setenv("SSL_CERT_FILE", trusted)
        assert find_endpoints(provider.settings(), OutgoingGuard(())).issuer == provider.url
    finally:
        provider.close()


def test_a_proxy_of_the_environment_is_used_but_not_for_this_machine(
    make: Make, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", provider.url)
    monkeypatch.setenv("HTTPS_PROXY", provider.url)
    assert sign_in(make(), provider).status_code == 200
    assert transport._proxies("https://login.example/token")["https"] == provider.url
    monkeypatch.setenv("NO_PROXY", "login.example")
    assert transport._proxies("https://login.example/token") == {}


def test_credentials_of_a_netrc_file_are_not_sent(
    make: Make, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    provider.claims = {"sub": "1"}
    provider.userinfo = {"sub": "1", "email": "jane@example.com", "email_verified": True}
    assert sign_in(make(), provider).status_code == 200  # the provider asserts that it got what was meant


def test_the_client_secret_is_in_no_text(provider: FakeProvider, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    api = make()
    settings: OAuth2 = provider.settings()
    assert CLIENT_SECRET not in repr(settings)
    assert CLIENT_SECRET not in settings.model_dump_json()
    back = provider.sign_in(begin(api)["authorization_url"])
    provider.responses["/token"] = (400, PLAIN, b'{"error": "invalid_client"}')
    with caplog.at_level("DEBUG"):
        assert error_of(finish(api, back))[:2] == LOST
    assert "invalid_client" in caplog.text
    assert CLIENT_SECRET not in caplog.text
    assert back["code"] not in caplog.text


def test_no_provider_is_a_listener_of_the_product_itself_or_link_local(provider: FakeProvider) -> None:
    own = OutgoingGuard([("127.0.0.1", int(provider.url.rpartition(":")[2]))])
    with pytest.raises(PeerUnavailable, match="the target is this service itself"):
        transport.get_json(f"{provider.url}/here", own)
    with pytest.raises(PeerUnavailable, match="link-local"):
        transport.get_json("http://169.254.169.254/latest/meta-data/", OutgoingGuard(()))
