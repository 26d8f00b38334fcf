"""The configuration as a whole."""

from __future__ import annotations

from api import queries
from api.http.body import IMPORT_PATH, MAX_IMPORT
from api.operations.operation import V1, Operation
from api.resources import transfer
from api.security.permissions import ADMIN
from api.transfer.document import ConfigDocument

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        f"{V1}/config/export",
        ADMIN,
        "exportConfig",
        "The configuration as one document",
        transfer.export_config,
        query=queries.EXPORT_CONFIG,
        matches=True,
        passphrase=True,
    ),
    Operation(
        "POST",
        IMPORT_PATH,
        ADMIN,
        "importConfig",
        "Make the configuration what a document says, or say what that would change",
        transfer.import_config,
        ConfigDocument,
        query=queries.IMPORT_CONFIG,
        matches=True,
        passphrase=True,
        max_body=MAX_IMPORT,
    ),
)
