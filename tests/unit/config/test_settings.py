"""The configuration: where it comes from, and what is refused with the key, the value and what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from config.settings.loading import load
from config.settings.runtime import overlay
from config.settings.settings import Auth, ConfigError, plain
from tests.kit.tables import table


def test_command_line_over_environment_over_file_over_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text("[server]\nport = 1001\nhost = '127.0.0.2'\ndrain_timeout = 3\n")
    monkeypatch.setenv("PROXYFLEET_SERVER__PORT", "1002")
    monkeypatch.setenv("PROXYFLEET_SERVER__HOST", "127.0.0.3")
    settings = load(file, {"server": {"port": 1003}})
    assert settings.server.port == 1003
    assert settings.server.host == "127.0.0.3"
    assert settings.server.drain_timeout == 3
    assert settings.server.max_connections == 1000


def test_lists_in_the_environment_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYFLEET_PROXY__EGRESS_ALLOW", '["127.0.0.0/8", "::1", "*.intra.example"]')
    assert load().proxy.egress_allow == ("127.0.0.0/8", "::1", "*.intra.example")
    monkeypatch.setenv("PROXYFLEET_PROXY__EGRESS_ALLOW", "127.0.0.0/8")
    with pytest.raises(ConfigError, match=r"PROXYFLEET_PROXY__EGRESS_ALLOW: must be a JSON list"):
        load()


@pytest.mark.parametrize("variable", ["PROXYFLEET_TELEMETRY__OTLP__HEADERS", "PROXYFLEET_SERVER"])
def test_a_table_in_the_environment_that_is_no_json_is_refused_by_its_variable_and_not_printed(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "authorization: hush")
    with pytest.raises(ConfigError, match=rf"^{variable}: must be a JSON object") as refused:
        load()
    assert "hush" not in str(refused.value)


def test_a_variable_of_our_prefix_that_names_no_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYFLEET_SEVER__PORT", "1")
    with pytest.raises(ConfigError, match="PROXYFLEET_SEVER__PORT: unknown key; allowed: "):
        load()


def test_variables_that_are_options_of_commands_are_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYFLEET_NEW_PASSWORD", "something long")
    load()


@table(
    ("text", "problem"),
    [
        ("[server]\nport = 0", "server.port: "),
        ("[server]\nprot = 1", "server.prot: unknown key; allowed here: "),
        ("[logging]\nlevel = 'loud'", "logging.level: "),
        ("[logging]\noutput = 'syslog'", "logging.output: "),
        ("[logging]\noutput = 'jsonl:relative/path'", "logging.output: "),
        ("[logging]\nretention_days = 0", "logging.retention_days: "),
        ("[logging]\nretention_size = -1", "logging.retention_size: "),
        ("[server.tls]\nenabled = true", "server.tls: "),
        ("[proxy]\negress_allow = ['10.0.0.0/33']", "proxy.egress_allow[0]: "),
        ("[proxy]\negress_allow = ['bad name']", "proxy.egress_allow[0]: "),
        ("[proxy]\ntest_url = 'nonsense'", "proxy.test_url: "),
        ("[proxy]\ncontact = 'mailto:x@a.example'", "or a mail address without mailto:"),
        *(
            (f"[proxy]\ncontact = '{bad}'", "proxy.contact: must be an absolute http or https URL, or a mail address")
            for bad in (
                "",
                "call Bob",
                "javascript:alert(1)",
                "ftp://a.example/",
                "https://",
                "https://[1",
                "https://a.example/ b",
                "https://a.example/<b>",
                "it@",
                "@a.example",
                "it@a.example\\r\\nX: 1",
                "https://a.example/" + "a" * 1001,
            )
        ),
        ("[proxy]\nworkers = 65", "proxy.workers: must be a whole number from 1 to 64, or auto (got 65)"),
        ("[proxy]\nworkers = 'all'", "proxy.workers: must be a whole number from 1 to 64, or auto (got 'all')"),
        ("[server]\ntrusted_proxies = ['x']", "server.trusted_proxies[0]: "),
        ("not toml", "not TOML"),
    ],
)
def test_bad_files_are_refused_by_key(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert any(problem in each for each in caught.value.problems)


@pytest.mark.parametrize("contact", ["it-help@corp.example", "https://help.corp.example:8443/proxy?from=error#ask"])
def test_a_contact_is_a_url_or_a_mail_address(tmp_path: Path, contact: str) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(f'[proxy]\ncontact = "{contact}"\n')
    assert load(file).proxy.contact == contact


OAUTH = """[auth.oauth2]
enabled = true
provider = "custom"
client_id = "fleet"
client_secret = "planted-secret"
redirect_uri = "https://fleet.example/signed-in"
"""
FOUND = 'discovery_url = "https://login.example/.well-known/openid-configuration"\n'


def oauth(tmp_path: Path, text: str) -> list[str]:
    """What is wrong with a configuration of the identity provider."""
    file = tmp_path / "fleet.toml"
    file.write_text(text)
    try:
        load(file)
    except ConfigError as error:
        return error.problems
    return []


@table(
    ("text", "problem"),
    [
        ("[auth.oauth2]\nenabled = true", "auth.oauth2: provider: is required"),
        (OAUTH, "authorize_url: is required"),
        (OAUTH.replace("fleet", "", 1) + FOUND, "client_id: is required"),
        (OAUTH.replace("custom", "google").replace("planted-secret", ""), "client_secret: is required"),
        (OAUTH.replace("custom", "okta"), "auth.oauth2.provider: "),
        (OAUTH.replace("https://fleet", "fleet") + FOUND, "auth.oauth2.redirect_uri: "),
        (OAUTH.replace("signed-in", "signed-in#here") + FOUND, "auth.oauth2.redirect_uri: "),
        (OAUTH + FOUND.replace("https", "http"), "auth.oauth2.discovery_url: "),
        (OAUTH + FOUND.replace("//", "//me:planted-secret@"), "auth.oauth2.discovery_url: "),
        (OAUTH + FOUND + "scopes = ['email']", "scopes: must contain openid"),
        (OAUTH + FOUND + "scopes = ['openid email']", "auth.oauth2.scopes[0]: "),
        (OAUTH + "authorize_url = 'https://a.example'", "token_url: is required"),
        (OAUTH + "authorize_url = 'https://a.example'\ntoken_url = 'https://a.example'", "userinfo_url: is required"),
        (
            OAUTH
            + "authorize_url = 'https://a.example'\ntoken_url = 'https://a.example'\njwks_url = 'https://a.example'",
            "jwks_url and issuer: are both needed",
        ),
        (OAUTH + FOUND + "tenant = 'a/b'", "auth.oauth2.tenant: "),
        (OAUTH + FOUND + "tenants = 'a'", "auth.oauth2.tenants: unknown key; allowed here: allowed_domains, "),
        (OAUTH + FOUND + "allowed_domains = ['a b']", "auth.oauth2.allowed_domains[0]: "),
        (OAUTH + FOUND + "role_mapping = { 'example.com' = 'root' }", "auth.oauth2.role_mapping.example.com: "),
        (OAUTH + FOUND + "role_mapping = { 'groups=' = 'user' }", "auth.oauth2.role_mapping."),
        (OAUTH + FOUND + "client_secrets = 'planted-secret'", "auth.oauth2.client_secrets: unknown key"),
    ],
)
def test_an_identity_provider_that_can_not_work_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    problems = oauth(tmp_path, text)
    assert any(problem in each for each in problems), problems
    assert "planted-secret" not in str(problems)


@table(
    "text",
    [
        OAUTH + FOUND,
        OAUTH.replace("planted-secret", "") + FOUND,
        OAUTH + FOUND.replace("https://login.example", "http://127.0.0.1:9000"),
        OAUTH + FOUND.replace("https://login.example", "http://localhost:9000"),
        OAUTH.replace("custom", "google"),
        OAUTH.replace("custom", "github"),
        OAUTH.replace("custom", "microsoft") + "tenant = 'contoso.example'",
        OAUTH.replace("true", "false").replace("fleet", "", 1),
        OAUTH + FOUND + "[auth.oauth2.role_mapping]\n'@Example.com' = 'operator'\n'groups=a.b=c' = 'administrator'",
    ],
)
def test_an_identity_provider_that_can_work_is_taken(tmp_path: Path, text: str) -> None:
    assert oauth(tmp_path, text) == []


def test_the_identity_provider_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "ENABLED": "true",
        "PROVIDER": "google",
        "CLIENT_ID": "fleet",
        "CLIENT_SECRET": "planted-secret",
        "REDIRECT_URI": "https://fleet.example/signed-in",
        "SCOPES": '["openid", "email"]',
        "ROLE_MAPPING": '{"groups=ops": "operator", "example.com": "auditor"}',
    }.items():
        monkeypatch.setenv(f"PROXYFLEET_AUTH__OAUTH2__{name}", value)
    settings = load()
    assert settings.auth.oauth2.scopes == ("openid", "email")
    assert list(settings.auth.oauth2.role_mapping.items()) == [("groups=ops", "operator"), ("example.com", "auditor")]
    assert "planted-secret" not in repr(settings) + settings.model_dump_json()
    assert plain(settings)["auth"]["oauth2"]["client_secret"] == "planted-secret"
    auth = overlay(settings, {"auth": {"session_timeout": 60}})["auth"]  # as when it is set through the API
    assert isinstance(auth, Auth)
    assert auth.oauth2 == settings.auth.oauth2
    monkeypatch.setenv("PROXYFLEET_AUTH__OAUTH2__SCOPES", "openid email")
    with pytest.raises(ConfigError, match="must be a JSON list"):
        load()


def test_all_problems_are_reported_at_once() -> None:
    overrides: dict[str, Any] = {"server": {"port": 0, "nonsense": 1}, "logging": {"format": "xml"}}
    with pytest.raises(ConfigError) as caught:
        load(None, overrides)
    assert len(caught.value.problems) == 3


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        load(tmp_path / "none.toml")


def test_the_first_password_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYFLEET_ADMIN_PASSWORD", "planted-secret")
    assert "planted-secret" not in repr(load())


def test_every_problem_is_reported_at_once_with_its_file_and_line_or_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(
        "[server]\nport = 0\nprot = 1\n\n[proxy]\negress_allow = [\n  'bad name',\n]\n[logging]\nlevel = 'x'\n"
    )
    monkeypatch.setenv("PROXYFLEET_LOGGING__LEVEL", "loud")
    monkeypatch.setenv("PROXYFLEET_SEVER__PORT", "1")
    with pytest.raises(ConfigError) as caught:
        load(file, {"metrics": {"publish": "udp://x"}})
    beginnings = (
        "PROXYFLEET_SEVER__PORT: unknown key",
        f"{file}:2: server.port: ",
        f"{file}:3: server.prot: unknown key",
        f"{file}:6: proxy.egress_allow[0]: ",
        "PROXYFLEET_LOGGING__LEVEL: logging.level: ",
        "metrics.publish: ",
    )
    problems = caught.value.problems
    assert len(problems) == len(beginnings)
    for beginning in beginnings:
        assert any(problem.startswith(beginning) for problem in problems), (beginning, problems)
    assert any(problem.endswith("did you mean port?") for problem in problems)


def test_a_file_that_is_no_toml_is_reported_with_the_line(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text("[server]\nport = \n")
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert caught.value.problems[0].startswith(f"{file}:2: not TOML: ")


@table(
    ("text", "problem"),
    [
        ("[server]\nport = 'x'", ":2: server.port: must be a whole number (got 'x')"),
        ("[server]\nport = 65536", ":2: server.port: must be at most 65535 (got 65536)"),
        ("[server]\nhost = '256.1.1.1'", ":2: server.host: "),
        ("[server]\nhost = 'two words'", ":2: server.host: must be an IP address or a host name"),
        ("[server]\ndrain_timeout = '10s'", ":2: server.drain_timeout: must be a number, without a unit (got '10s')"),
        ("[server]\ntrusted_proxies = '::/0'", ":2: server.trusted_proxies: must be a list, such as "),
        ("[security]\nhttps_only = 'please'", ":2: security.https_only: must be true or false (got 'please')"),
        ("[metrics]\nprometheus_token = 'short'", ":2: metrics.prometheus_token: must have at least 16 characters\n"),
        ("[proxy]\negress_guard = 'on'", ":2: proxy.egress_guard: must be 'public_only' or 'off' (got 'on')"),
        ("server = 'x'", ":1: server: must be a table (got 'x')"),
        ("[Server]\nport = 0", ":2: server.port: must be at least 1 (got 0)"),
        ("[[proxies]]\nname = 'x'", "it is made through the API, from a file by `proxyfleet apply -f FILE`"),
        ("[server]\nhost = 127.0.0.1", "(at line 2, column 13); texts need quotes"),
    ],
)
def test_a_problem_says_where_it_is_and_what_is_allowed(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(file)
    assert problem in f"{refused.value}\n"


def test_problems_of_a_file_are_in_the_order_of_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text("[server]\nunknown = 1\nport = 0\nmax_connections = 0\n[logging]\nlevel = 'loud'\n")
    with pytest.raises(ConfigError) as refused:
        load(file)
    assert [problem.split(":")[1] for problem in refused.value.problems] == ["2", "3", "4", "6"]
