"""The Helm chart and the compose file: what becomes of their values, and that image and product have what they name.

Templates are rendered by `helm` where it is installed, and by the small part of its language that they use.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from config import VERSION
from config.files.secret_box import AS_KEYS
from config.settings.settings import Settings
from tests.kit.folders import ROOT

PACKAGING = ROOT / "scripts" / "packaging"
CHART = PACKAGING / "helm" / "proxyfleet"
COMPOSE = PACKAGING / "compose" / "compose.yaml"
CONTAINERFILE = (PACKAGING / "Containerfile").read_text()
PASSWORD = "a password: with 'signs' # of YAML"
GIVEN: dict[str, Any] = {"admin": {"password": PASSWORD}}
EVERYTHING: dict[str, Any] = {
    "image": {"repository": "registry.example.net/proxyfleet", "tag": "1.2.3", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "admin": {"existingSecret": "ours"},
    "metrics": {"token": "", "serviceMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prom"}}},
    "service": {"type": "LoadBalancer", "port": 80, "proxies": [3128, 1080], "annotations": {"a/b": "c"}},
    "env": {"PROXYFLEET_LOGGING__FORMAT": "json", "PROXYFLEET_SECURITY__HTTPS_ONLY": True},
    "persistence": {"size": "20Gi", "storageClass": "fast"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "proxy", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}


class Refused(Exception):
    """A template says that a value is needed."""


class Template:
    """The part of Go's templates that the chart uses: values, `if`, `else`, `range`, and the functions below."""

    def __init__(self, text: str) -> None:
        self._parts: Iterator[str] = iter(re.split(r"(\s*\{\{-.*?\}\}|\{\{.*?\}\})", text))

    def render(self, scope: dict[str, Any], until: tuple[str, ...] = (), *, silent: bool = False) -> tuple[str, str]:
        """The text up to a tag of `until`, and that tag."""
        made = []
        for part in self._parts:
            tag = re.fullmatch(r"\s*\{\{-?\s*(.*?)\s*\}\}", part, re.DOTALL)
            if tag is None:
                made.append(part)
            elif tag[1] in until:
                return "".join(made), tag[1]
            elif tag[1].startswith(("if ", "range ")):
                made.append(self._block(tag[1], scope, silent))
            else:
                made.append("" if silent else text_of(evaluate(tag[1], scope)))
        assert until == ()
        return "".join(made), ""

    def _block(self, tag: str, scope: dict[str, Any], silent: bool) -> str:
        word, _, condition = tag.partition(" ")
        if word == "if":
            holds = not silent and bool(evaluate(condition, scope))
            then, end = self.render(scope, ("else", "end"), silent=not holds or silent)
            otherwise = self.render(scope, ("end",), silent=holds or silent)[0] if end == "else" else ""
            return "" if silent else then if holds else otherwise
        names, _, source = condition.rpartition(" := ")
        found = None if silent else evaluate(source, scope)
        inner = self._until_end()
        if not found:
            return ""
        items = found.items() if isinstance(found, dict) else ((None, each) for each in found)
        key, value = [*(name.strip() for name in names.split(",")), "", ""][:2]
        return "".join(Template(inner).render({**scope, ".": each, key: name, value: each})[0] for name, each in items)

    def _until_end(self) -> str:
        """The text of a block of `range`, which has no other block within."""
        parts = []
        for part in self._parts:
            if re.search(r"\{\{-?\s*end\s*\}\}", part):
                return "".join(parts)
            parts.append(part)
        raise AssertionError("a block has no end")


def text_of(value: Any) -> str:
    """As Go prints it."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def evaluate(pipeline: str, scope: dict[str, Any]) -> Any:
    """The value of functions, each of which gets that of the one before as its last argument."""
    last: tuple[Any, ...] = ()
    for stage in pipeline.split(" | "):
        name, *words = re.findall(r'"[^"]*"|\S+', stage)
        if name in FUNCTIONS:
            last = (FUNCTIONS[name](*(operand(word, scope) for word in words), *last),)
        else:
            last = (operand(name, scope),)
    return last[0]


def operand(word: str, scope: dict[str, Any]) -> Any:
    """A text, a number, or what the scope has under a path."""
    if word[0] == '"' or word.isdigit():
        return json.loads(word)
    if word in scope:
        return scope[word]
    value: Any = scope
    for name in word.lstrip(".").split("."):
        value = value[name]
    return value


def required(message: str, value: Any) -> Any:
    if value in (None, ""):
        raise Refused(message)
    return value


def indented(columns: int, text: str) -> str:
    return "".join(f"\n{' ' * columns}{line}" for line in text.splitlines())


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "default": lambda other, value: value or other,
    "nindent": indented,
    "not": lambda value: not value,
    "quote": lambda value: json.dumps(text_of(value)),
    "required": required,
    "toYaml": lambda value: yaml.safe_dump(value).rstrip("\n"),
}


def merged(values: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    both = {
        name: merged(values[name], given[name])
        for name in values.keys() & given.keys()
        if isinstance(values[name], dict)
    }
    return {**values, **given, **both}


def by_ourselves(given: dict[str, Any]) -> str:
    values = merged(yaml.safe_load((CHART / "values.yaml").read_text()), given)
    jsonschema.validate(values, json.loads((CHART / "values.schema.json").read_text()))
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    scope = {
        "Values": values,
        "Release": {"Name": "pf", "Namespace": "default"},
        "Chart": {"AppVersion": chart["appVersion"]},
    }
    files = sorted((CHART / "templates").glob("*.yaml"))
    return "\n---\n".join(Template(file.read_text()).render(scope)[0] for file in files)


def by_helm(given: dict[str, Any], folder: Path) -> str:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(given))
    command = ["helm", "template", "pf", str(CHART), "--values", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    if "is needed" in done.stderr:
        raise Refused(done.stderr)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(params=["ourselves", "helm"])
def render(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Objects by their kind."""
    if request.param == "helm" and shutil.which("helm") is None:
        pytest.skip("helm is not installed")

    def rendered(given: dict[str, Any]) -> dict[str, Any]:
        text = by_ourselves(given) if request.param == "ourselves" else by_helm(given, tmp_path)
        objects = [each for each in yaml.safe_load_all(text) if each]
        return {each["kind"]: each for each in objects}

    return rendered


Render = Callable[[dict[str, Any]], dict[str, Any]]


def test_the_chart_makes_a_service_a_pod_with_a_volume_and_a_secret(render: Render) -> None:
    made = render(GIVEN)
    assert made.keys() == {"Service", "StatefulSet", "Secret"}
    assert made["Secret"]["stringData"] == {"admin-password": PASSWORD}
    assert [port["port"] for port in made["Service"]["spec"]["ports"]] == [8080, 3128]
    spec = made["StatefulSet"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == made["Service"]["spec"]["selector"] == labels
    assert spec["serviceName"] == made["Service"]["metadata"]["name"]
    assert spec["volumeClaimTemplates"][0]["spec"]["resources"]["requests"] == {"storage": "8Gi"}
    (container,) = spec["template"]["spec"]["containers"]
    assert container["image"] == f"proxyfleet:{VERSION}"


def test_the_pod_runs_as_the_image_does(render: Render) -> None:
    pod = render(GIVEN)["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    user = int(re.findall(r"^USER (\d+):", CONTAINERFILE, re.MULTILINE)[0])
    account = pod["securityContext"]
    assert account["runAsNonRoot"] is True
    assert {account[name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {user}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": "/livez",
        "liveness": "/livez",
        "readiness": "/readyz",
    }
    assert {probe["port"] for probe in probes.values()} == {"api"}
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounted["secrets"] in re.findall(r"CREDENTIALS_DIRECTORY=(\S+)", CONTAINERFILE)
    assert [mounted["data"]] == json.loads(re.findall(r"^VOLUME (.*)$", CONTAINERFILE, re.MULTILINE)[0])
    (data,) = (each["value"] for each in container["env"] if each["name"] == "PROXYFLEET_DATA_DIR")
    assert Path(data).parent == Path(mounted["data"]), "the volume's own folder belongs to root"
    assert str(container["ports"][0]["containerPort"]) in re.findall(r"^EXPOSE (\d+)", CONTAINERFILE, re.MULTILINE)


def test_every_value_has_its_effect(render: Render) -> None:
    made = render(EVERYTHING)
    assert made.keys() == {"Service", "StatefulSet", "ServiceMonitor"}
    pod = made["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("registry.example.net/proxyfleet:1.2.3", "Always")
    assert pod["imagePullSecrets"] == EVERYTHING["imagePullSecrets"]
    given = {each["name"]: each["value"] for each in container["env"]}
    assert (given["PROXYFLEET_LOGGING__FORMAT"], given["PROXYFLEET_SECURITY__HTTPS_ONLY"]) == ("json", "true")
    (secrets,) = (each["secret"] for each in pod["volumes"] if each["name"] == "secrets")
    assert secrets["secretName"] == "ours"
    assert {name: pod[name] for name in ("nodeSelector", "tolerations", "affinity")} == {
        name: EVERYTHING[name] for name in ("nodeSelector", "tolerations", "affinity")
    }
    service = made["Service"]
    assert (service["spec"]["type"], service["metadata"]["annotations"]) == ("LoadBalancer", {"a/b": "c"})
    assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [
        (80, "api"),
        (3128, 3128),
        (1080, 1080),
    ]
    monitor = made["ServiceMonitor"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert monitor["metadata"]["labels"]["release"] == "prom"
    assert (endpoint["path"], endpoint["interval"]) == ("/metrics", "15s")
    assert endpoint["authorization"]["credentials"] == {"name": "ours", "key": "prometheus-token"}
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == job_of_the_alerts()
    claim = made["StatefulSet"]["spec"]["volumeClaimTemplates"][0]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("fast", "20Gi")


def test_a_password_is_needed_and_bad_values_are_refused(render: Render) -> None:
    with pytest.raises(Refused, match=r"admin\.password or admin\.existingSecret is needed"):
        render({})
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    bad: list[dict[str, Any]] = [
        {"admin": {"password": "short"}},
        {"admin": {"passwort": "a long password"}},
        {"metrics": {"token": "too short"}},
        {"service": {"proxies": [0]}},
        {"env": {"LOGGING": "json"}},
        {"replicas": 2},
    ]
    for values in bad:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(values, schema)


def test_the_chart_is_of_the_version_of_the_product_and_its_secrets_are_credentials() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["appVersion"], chart["version"]) == (VERSION, VERSION)
    secret = (CHART / "templates" / "secret.yaml").read_text()
    assert set(re.findall(r"^  ([a-z]+-[a-z-]+): ", secret, re.MULTILINE)) <= AS_KEYS.keys()


def job_of_the_alerts() -> str:
    """The name of the job that the rules are about."""
    (job,) = set(re.findall(r'job="([^"]+)"', (ROOT / "docs" / "grafana" / "alerts.yml").read_text()))
    return str(job)


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return found


def mounts(service: str) -> dict[str, Path]:
    """Files of this checkout by the places where the service has them."""
    words = (each.split(":") for each in compose()["services"][service]["volumes"])
    return {place: (COMPOSE.parent / source).resolve() for source, place, *_ in words if source.startswith(".")}


def test_compose_mounts_files_that_are_there_for_reading_alone() -> None:
    for name, service in compose()["services"].items():
        files = [each for each in service["volumes"] if each.startswith(".")]
        assert [each for each in files if not each.endswith(":ro")] == []
        assert [path for path in mounts(name).values() if not path.is_file()] == []
        named = {each.split(":")[0] for each in service["volumes"] if each not in files}
        assert named <= compose()["volumes"].keys()
        assert set(service["secrets"]) <= compose()["secrets"].keys() & AS_KEYS.keys()
        assert all(each.startswith("127.0.0.1:") for each in service["ports"])


def test_compose_builds_the_image_and_runs_it_as_it_is_made_to_be_run() -> None:
    service = compose()["services"]["proxyfleet"]
    context = (COMPOSE.parent / service["build"]["context"]).resolve()
    assert context == ROOT
    assert (context / service["build"]["dockerfile"]).read_text() == CONTAINERFILE
    assert service["read_only"] is True
    assert (service["tmpfs"], service["cap_drop"]) == (["/tmp"], ["ALL"])
    assert [each.split(":")[1] for each in service["volumes"]] == json.loads(
        re.findall(r"^VOLUME (.*)$", CONTAINERFILE, re.MULTILINE)[0]
    )
    seconds = Settings.model_fields["server"].default.drain_timeout
    assert int(service["stop_grace_period"].removesuffix("s")) > seconds


def test_prometheus_scrapes_the_product_with_its_token_and_has_its_rules() -> None:
    files = mounts("prometheus")
    settings = yaml.safe_load(files["/etc/prometheus/prometheus.yml"].read_text())
    (scrape,) = settings["scrape_configs"]
    assert (scrape["job_name"], scrape["metrics_path"]) == (job_of_the_alerts(), "/metrics")
    token = Path(scrape["authorization"]["credentials_file"])
    assert token.parent == Path("/run/secrets")
    assert AS_KEYS[token.name] == ("metrics", "prometheus_token")
    assert token.name in compose()["services"]["prometheus"]["secrets"]
    assert token.name in compose()["services"]["proxyfleet"]["secrets"]
    (target,) = (each for group in scrape["static_configs"] for each in group["targets"])
    host, port = target.split(":")
    assert host in compose()["services"]
    assert port in re.findall(r"^EXPOSE (\d+)", CONTAINERFILE, re.MULTILINE)
    assert [files[each].name for each in settings["rule_files"]] == ["alerts.yml"]


def test_grafana_has_the_dashboard_and_where_its_data_are() -> None:
    files = mounts("grafana")
    service = compose()["services"]["grafana"]
    provisioning = "/etc/grafana/provisioning"
    (source,) = yaml.safe_load(files[f"{provisioning}/datasources/proxyfleet.yml"].read_text())["datasources"]
    host, port = source["url"].removeprefix("http://").split(":")
    assert f"127.0.0.1:{port}:{port}" in compose()["services"][host]["ports"]
    dashboard = json.loads((ROOT / "docs" / "grafana" / "dashboard.json").read_text())
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    assert variables["datasource"]["query"] == source["type"]
    (provider,) = yaml.safe_load(files[f"{provisioning}/dashboards/proxyfleet.yml"].read_text())["providers"]
    home = service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert Path(home).parent == Path(provider["options"]["path"])
    assert files[home] == ROOT / "docs" / "grafana" / "dashboard.json"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_has_nothing_to_say(tmp_path: Path) -> None:
    text = (COMPOSE.parent / "prometheus.yml").read_text()
    for place, path in mounts("prometheus").items():
        text = text.replace(place, str(path))
    (tmp_path / "token").write_text("x" * 20)
    file = tmp_path / "prometheus.yml"
    file.write_text(text.replace("/run/secrets/prometheus-token", str(tmp_path / "token")))
    done = subprocess.run(["promtool", "check", "config", str(file)], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
