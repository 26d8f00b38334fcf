"""The description of the API: it is that of the table, of the routes and of the responses, and it stands by itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from pydantic import BaseModel, ValidationError

from api.app import OPERATIONS
from api.engine.responses import model_of
from api.errors import (
    Behind,
    Denied,
    MissingPermission,
    NoManagementHere,
    NotAFleet,
    NotFound,
    NotReady,
    PeerUnavailable,
    StaleRevision,
    TooBusy,
    Unauthenticated,
)
from api.http.error_table import translated
from api.import_export.proxy_batches.batch_bodies import BatchedChange, ProxySelection, ProxyTagging
from api.openapi.examples import example_of
from api.operations import Operation
from api.store.interface import FleetLevel, LedgerError, OutcomeUnknown
from config.files.secret_box import SecretBox
from config.model import fields
from config.model.fields import InvalidResource
from config.model.proxies import ProxyUpdate
from config.model.shared_objects.lists import ListCreate, new_list
from config.model.shared_objects.policies import PolicyUpdate
from tests.kit.api_stage import Api
from tests.kit.openapi_document import document
from tests.kit.tables import table

ENVELOPED = [each for each in OPERATIONS if each.response is not None]


def by_id(operation: Operation) -> str:
    return operation.id


def test_the_document_is_valid_openapi_3_1() -> None:
    assert list(OpenAPIV31SpecValidator(document()).iter_errors()) == []


def test_the_document_has_exactly_the_operations_of_the_table() -> None:
    described = {(method.upper(), path) for path, item in document()["paths"].items() for method in item}
    assert described == {(each.method, each.path) for each in OPERATIONS}


@table(
    "error",
    [
        NotAFleet(),
        FleetLevel("no", 2),
        NoManagementHere(()),
        LedgerError("no"),
        OutcomeUnknown(),
        Behind(7),
        NotReady("no"),
        PeerUnavailable("metrics", "no"),
        TooBusy(1),
        Unauthenticated(),
        Denied("no"),
        MissingPermission("admin", by_key=True),
        MissingPermission("admin", by_key=False),
        NotFound("it"),
        StaleRevision(1),
    ],
)
def test_the_code_of_an_error_is_described_for_its_status(error: Exception) -> None:
    found = translated(error, "req_1")
    assert found is not None
    assert (
        found.code
        in document()["components"]["responses"][f"Failure{found.status}"]["content"]["application/json"]["schema"][
            "properties"
        ]["error"]["properties"]["code"]["enum"]
    )


def test_a_change_may_be_refused_for_the_sake_of_older_nodes() -> None:
    changes = [item[method] for item in document()["paths"].values() for method in item if method != "get"]
    assert all("409" in each["responses"] for each in changes)


def test_the_routes_are_exactly_the_operations_of_the_table(api: Api) -> None:
    for path in {each.path for each in OPERATIONS}:
        allowed = api.client.simulate_request("TRACE", re.sub(r"\{[a-z_]+\}", "x", path)).headers.get("allow", "")
        wanted = {each.method for each in OPERATIONS if each.path == path}
        assert set(re.findall("[A-Z]+", allowed)) - {"HEAD", "OPTIONS"} == wanted


def test_ids_of_operations_are_unique() -> None:
    assert len({each.id for each in OPERATIONS}) == len(OPERATIONS)


@table("operation", [each for each in OPERATIONS if each.body], ids=by_id)
def test_the_example_of_a_body_is_accepted(operation: Operation) -> None:
    assert operation.body is not None
    example = fields.example_of(operation.body)
    operation.body.model_validate(example)
    Draft202012Validator(resolved(f"#/components/schemas/{operation.body.__name__}")).validate(example)


@table("operation", ENVELOPED, ids=by_id)
def test_the_example_of_a_response_fits_its_model(operation: Operation) -> None:
    assert operation.response is not None
    model_of(operation.response).model_validate_json(json.dumps(example_of(operation.response)), strict=True)


@table("operation", [each for each in OPERATIONS if each.query], ids=by_id)
def test_the_examples_of_parameters_fit_their_schemas(operation: Operation) -> None:
    assert operation.query is not None
    for name, each in operation.query.parameters.items():
        Draft202012Validator(each.schema).validate(each.example)
        operation.query({name: str(each.example)})


@table("operation", OPERATIONS, ids=by_id)
def test_an_operation_is_described_in_two_sentences(operation: Operation) -> None:
    assert len(re.findall(r"[.](?:\s|$)", operation.description)) >= 2
    assert not operation.summary.endswith(".")


@table("operation", OPERATIONS, ids=by_id)
def test_the_page_fills_in_no_optional_parameter(operation: Operation) -> None:
    """Swagger UI sends what it finds as `example` of a parameter or of its schema; defaults change nothing."""
    described = document()["paths"][operation.path][operation.method.lower()]
    for parameter in described["parameters"]:
        assert "example" not in parameter
        assert "example" not in parameter["schema"]


def test_a_required_permission_is_described() -> None:
    for each in OPERATIONS:
        described = document()["paths"][each.path][each.method.lower()]
        assert described.get("x-permission") == each.permission
        assert ("403" in described["responses"]) or each.access == "(none)"


def test_a_body_member_that_must_not_be_null_is_not_described_as_nullable() -> None:
    properties = dict(resolved("#/components/schemas/ProxyUpdate")["properties"])
    for name in ("policy", "pool"):
        assert "null" in str(properties.pop(name))  # which takes it away
    assert "null" not in str(properties)


LIST: dict[str, Any] = {"name": "mirrors", "kind": "domains"}
RULE = {"name": "first", "action": {"use": "deny"}}
BODIES: tuple[tuple[type[BaseModel], dict[str, Any], bool], ...] = (
    (ProxyTagging, {"ids": ["a"]}, False),
    (ProxyTagging, {"ids": ["a"], "add_tags": [], "remove_tags": []}, False),
    (ProxyTagging, {"ids": ["a"], "remove_tags": ["b"]}, True),
    (ProxySelection, {"all": True}, True),
    (ProxySelection, {"tag": "office", "q": "a"}, True),
    (ProxySelection, {"tag": ["office", "paris"]}, True),
    *((ProxySelection, each, False) for each in ({}, {"all": False}, {"tag": []}, {"tag": 1}, {"ids": []})),
    *((ProxySelection, {"tag": "office", **each}, False) for each in ({"all": True}, {"ids": ["a"]})),
    (BatchedChange, {"id": "a"}, True),
    (BatchedChange, {"id": "a", "status": "inactive", "add_tags": ["b"]}, True),
    (BatchedChange, {"where": {"all": True}, "set": {}}, True),
    *((BatchedChange, each, False) for each in ({}, {"set": {}}, {"where": {"all": True}}, {"status": "active"})),
    *(
        (BatchedChange, {"where": {"all": True}, "set": {}, **each}, False)
        for each in ({"id": "a"}, {"tags": ["a"]}, {"status": "active"})
    ),
    (PolicyUpdate, {"rules": [{**RULE, "match": {"params": {"country": "de"}}}]}, True),
    (PolicyUpdate, {"rules": [{**RULE, "match": {"params": {"Country": "de"}}}]}, False),
    (PolicyUpdate, {"rules": [{**RULE, "match": {"params": {"session": "7"}}}]}, False),
    (PolicyUpdate, {"rules": [{**RULE, "match": {"params": {}}}]}, False),
    (ProxyUpdate, {"username_params": {"enabled": True, "separator": "+"}}, True),
    *((ProxyUpdate, {"username_params": {"separator": each}}, False) for each in ("_", "--", "", "a", ":", None, 5)),
    (ProxyUpdate, {"dns": {"hosts": {}}}, True),
    (ProxyUpdate, {"dns": {"hosts": {"a.example": ["10.0.0.1", "::1"]}}}, True),
    (ProxyUpdate, {"dns": {"hosts": {"a.example": "10.0.0.1"}}}, True),
    (ProxyUpdate, {"dns": {"hosts": {"a.example": "10.0.0"}}}, False),
    (ProxyUpdate, {"dns": {"hosts": {"a.example": []}}}, False),
    (ProxyUpdate, {"dns": {"hosts": {"a.example": {"b": None}}}}, False),
    (ProxyUpdate, {"dns": {"hosts": {"a b": ["10.0.0.1"]}}}, False),
    (ProxyUpdate, {"dns": {"hosts": {"": ["10.0.0.1"]}}}, False),
)


@table(("model", "body", "accepted"), BODIES)
def test_a_body_is_accepted_if_its_schema_says_so(model: type[BaseModel], body: dict[str, Any], accepted: bool) -> None:
    assert Draft202012Validator(resolved(f"/{model.__name__}")).is_valid(body) == accepted
    assert is_accepted(model, body) == accepted


@table(
    ("content", "accepted"),
    [
        ({}, False),
        ({"entries": []}, True),
        ({"source": {"url": "http://mirror.example/"}}, True),
        ({"source": {}}, False),
        ({"entries": [], "source": {"url": "http://mirror.example/"}}, False),
        ({"source": {"url": "http://mirror.example/", "format": "mmdb"}}, False),
        ({"source": {"file": "/srv/a"}}, False),
        ({"kind": "geo"}, False),
        ({"kind": "geo", "entries": []}, False),
        ({"kind": "geo", "source": {}}, False),
        ({"kind": "geo", "source": {"file": "/srv/a"}}, True),
        ({"kind": "geo", "source": {"url": "http://mirror.example/", "format": "mmdb"}}, True),
        ({"kind": "geo", "source": {"url": "http://mirror.example/", "format": "plain"}}, False),
        ({"kind": "geo", "source": {"url": "http://mirror.example/", "file": "/srv/a"}}, False),
    ],
)
def test_a_new_list_has_entries_or_a_source(content: dict[str, Any], accepted: bool) -> None:
    body = {**LIST, **content}
    assert Draft202012Validator(resolved("/ListCreate")).is_valid(body) == accepted
    if accepted:
        new_list(ListCreate.model_validate(body), 0, SecretBox(Path("unused")))
    else:
        with pytest.raises(InvalidResource):
            new_list(ListCreate.model_validate(body), 0, SecretBox(Path("unused")))


def is_accepted(model: type[BaseModel], body: dict[str, Any]) -> bool:
    """Whether the model reads it."""
    try:
        model.model_validate(body)
    except ValidationError:
        return False
    return True


def test_the_document_is_served_bare_and_to_anybody(api: Api) -> None:
    response = api.client.simulate_get("/api/v1/openapi.json")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json["openapi"].startswith("3.1.")
    assert response.json["info"]["title"] == "Proxyfleet"


def test_the_page_needs_nothing_from_elsewhere(api: Api) -> None:
    page = api.client.simulate_get("/api/v1/docs", headers={"Accept": "text/html"})
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for address in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert address.startswith(("/api/v1/docs/", "data:"))
        if address.startswith("/"):
            assert api.client.simulate_get(address).status_code == 200


def test_no_other_file_can_be_had_from_the_page(api: Api) -> None:
    for name in ("VERSION", "..%2f..%2fapp.py", "document.py", ".."):
        assert api.client.simulate_get(f"/api/v1/docs/{name}").status_code == 404


def resolved(reference: str) -> dict[str, Any]:
    """A schema with the definitions that it refers to."""
    name = reference.rsplit("/", 1)[1]
    schemas = document()["components"]["schemas"]
    return {**schemas[name], "components": {"schemas": schemas}}
