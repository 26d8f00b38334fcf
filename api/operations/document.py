"""The API about itself."""

from __future__ import annotations

from api.operations.operation import NONE, V1, Operation
from api.resources import document

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET", f"{V1}/openapi.json", NONE, "getOpenapi", "This API as OpenAPI 3.1", document.openapi, enveloped=False
    ),
    Operation(
        "GET", f"{V1}/docs", NONE, "getDocs", "This API as a page", document.page, enveloped=False, produces="text/html"
    ),
    Operation(
        "GET",
        f"{V1}/docs/{{file}}",
        NONE,
        "getDocsFile",
        "A file of that page",
        document.page_file,
        enveloped=False,
        produces="*/*",
    ),
)
