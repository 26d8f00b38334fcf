"""The configuration as a whole."""

from __future__ import annotations

from api.http.body import IMPORT_PATH, MAX_IMPORT
from api.import_export.document import ConfigDocument
from api.operations import query_parameters
from api.operations.operation import V1, Operation
from api.resources import transfer
from api.security.permissions import ADMIN

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        f"{V1}/config/export",
        ADMIN,
        "exportConfig",
        "Export the configuration",
        transfer.export_config,
        description=(
            "Returns proxies, users, webhooks and changed settings as one document. Secrets are left out, or "
            "sealed under the passphrase in `X-Passphrase` with `secrets=encrypted`."
        ),
        query=query_parameters.EXPORT_CONFIG,
        matches=True,
        passphrase=True,
    ),
    Operation(
        "POST",
        IMPORT_PATH,
        ADMIN,
        "importConfig",
        "Import a configuration",
        transfer.import_config,
        ConfigDocument,
        description=(
            "Changes the configuration to what the document says, all or nothing, and returns the differences. "
            "With `dry_run=true` it only returns what would change."
        ),
        query=query_parameters.IMPORT_CONFIG,
        matches=True,
        passphrase=True,
        largest_body=MAX_IMPORT,
    ),
)
