"""The API about itself."""

from __future__ import annotations

from api.operations.operation import NONE, V1, Operation
from api.resources import openapi_page

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        f"{V1}/openapi.json",
        NONE,
        "getOpenapi",
        "Get the OpenAPI document",
        openapi_page.openapi,
        description=(
            "Returns this API as an OpenAPI 3.1 document, without the usual envelope. It needs no credentials."
        ),
        enveloped=False,
    ),
    Operation(
        "GET",
        f"{V1}/docs",
        NONE,
        "getDocs",
        "Show the documentation page",
        openapi_page.page,
        description=(
            "Shows the operations of this API in the browser and sends requests to them. The page loads nothing "
            "from other hosts."
        ),
        enveloped=False,
        produces="text/html",
    ),
    Operation(
        "GET",
        f"{V1}/docs/{{file}}",
        NONE,
        "getDocsFile",
        "Get a file of the documentation page",
        openapi_page.page_file,
        description=("Returns a script or style sheet that the documentation page loads. It needs no credentials."),
        enveloped=False,
        produces="*/*",
    ),
)
